"""Operations on jobs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, Unpack

from torchyard.client.calls import jobs as calls
from torchyard.client.calls.call import Spec
from torchyard.client.core.base import Core
from torchyard.client.matching import Listed, Matching, filter_of, query_of
from torchyard.client.problems import error_of
from torchyard.client.references import with_ids
from torchyard.contract.advice import AdviceView
from torchyard.contract.attempts.views import AttemptView
from torchyard.contract.errors import ServerError
from torchyard.contract.jobs.filters import JobSort
from torchyard.contract.jobs.requests import JobAction
from torchyard.contract.jobs.submissions import BatchView, SpecView
from torchyard.contract.jobs.views import ActionsView, JobGroup, JobSummary, JobView
from torchyard.contract.queue.views import StopView
from torchyard.contract.spec.spec import JobSpec
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Visibility


class JobsCore(Core):
    """Operations on jobs. A `job_id` is the full id of a job.

    Each raises NotFound for a job that you may not read, and Forbidden if it changes another user's job.
    """

    async def submit_batch(
        self, specs: Sequence[Spec], *, atomic: bool = False, idempotency_key: str | None = None
    ) -> BatchView:
        """Submits up to 10,000 jobs, each once even if the connection breaks.

        Args:
            specs: The job specs.
            atomic: Store all jobs (at most 500) or none.
            idempotency_key: A name for this request. After an interruption, the same call submits only the missing
                jobs.

        Returns:
            `data` has an id or an error for each job, in order.

        Raises:
            InvalidSpec: With `atomic`, a spec is not valid.

        Example:
            >>> found = client.jobs.submit_batch([spec, {**spec, "priority": 101}])
            >>> found.data[0].id[:4], found.data[1].error.code
            ('job_', 'invalid_spec')
        """
        exact = await with_ids(self._connection, specs)
        return await self._connection.answer(calls.submit_batch(exact, atomic=atomic, key=idempotency_key))

    async def validate(self, spec: Spec) -> JobSpec:
        """Checks a job spec, and returns it with all defaults. Stores nothing.

        Args:
            spec: The job spec.

        Raises:
            InvalidSpec: The spec is not valid. `errors` names each field.

        Example:
            >>> client.jobs.validate(spec).checkpoint.monitor
            'val/loss'
        """
        (exact,) = await with_ids(self._connection, [spec])
        return (await self._connection.answer(calls.validate(exact))).spec

    async def forecast(self, spec: Spec) -> SpecView:
        """Returns when a job would start if you submitted it now. Stores nothing.

        Args:
            spec: The job spec.

        Returns:
            `spec` with all defaults, and `waits_for`: `fits`, or the reason, the estimate, and changes with which it
                would start.

        Raises:
            InvalidSpec: The spec is not valid, or names a secret, GPU or channel that does not exist.
            TooManyRequests: You asked for more than two forecasts a second.

        Example:
            >>> client.jobs.forecast(spec).waits_for.position
            1
        """
        (exact,) = await with_ids(self._connection, [spec])
        return await self._connection.answer(calls.validate(exact, forecast=True))

    async def advice(self, job_id: str) -> AdviceView:
        """Diagnoses a job: its problem, the cause, the evidence, and the steps to take.

        Raises:
            NotFound: There is no such job, or the service is older.

        Example:
            >>> client.jobs.advice(job.id).severity
            'info'
        """
        return await self._connection.answer(calls.advice(job_id))

    def list(
        self, *, sort: JobSort = "created", limit: int | None = None, **matching: Unpack[Listed]
    ) -> AsyncGenerator[JobSummary]:
        """Yields the jobs that match every argument, newest first. `get` returns all fields of one.

        Args:
            sort: `created`, `started`, `finished`, `priority`, `name`, `owner` or `state`. A leading `-` reverses the
                order.
            limit: Maximum number of jobs; None: all.
            **matching: `state` (a list: any of them), `q` (a part of the name, id, owner, a label or the notes),
                `name`, `owner`, `trainer`, `init_from`, `retry_of`, `sweep` and `schedule` (ids), `labels` (all of
                them), `starred`, `archived` (only archived jobs), `created_after` and `created_before`.

        Raises:
            InvalidRequest: An argument is not valid.

        Example:
            >>> [row.name for row in client.jobs.list(state=["succeeded"], q="dig")]
            ['digits']
        """
        call = calls.jobs(query_of(matching), sort=None if sort == "created" else sort, limit=limit)
        return self._connection.pages(call, limit=limit)

    async def count(self, **matching: Unpack[Matching]) -> Mapping[JobState, int]:
        """Counts the jobs in each state. States without jobs are omitted.

        With an argument other than `owner` and `archived`, it counts at most the newest 1,000 matching jobs of more
        than 10,000.

        Args:
            **matching: The arguments of `list`. `state` has no effect.

        Example:
            >>> client.jobs.count(name="digits")["succeeded"]
            1
        """
        return (await self._connection.answer(calls.counts(filter_of(matching)))).counts or {}

    async def groups(self, by: str, **matching: Unpack[Listed]) -> Sequence[JobGroup]:
        """Counts the jobs with each value of a label, by state.

        Args:
            by: `label:KEY`.
            **matching: The arguments of `list`.

        Returns:
            At most 200 groups of the newest 10,000 matching jobs, the largest first.

        Raises:
            InvalidRequest: `by` is not valid.

        Example:
            >>> [(group.value, group.total) for group in client.jobs.groups("label:team")]
            [('bridges', 1)]
        """
        return (await self._connection.answer(calls.groups(query_of(matching), by=by))).groups or []

    async def act(
        self,
        action: JobAction,
        ids: Sequence[str] | None = None,
        *,
        now: bool = False,
        set_labels: Mapping[str, str | None] | None = None,
        dry_run: bool = False,
        **matching: Unpack[Matching],
    ) -> ActionsView:
        """Does one action on many jobs. A refused job does not stop the others.

        Args:
            action: `cancel`, `pause`, `resume`, `delete`, `archive`, `unarchive`, `label`, `star` or `unstar`.
            ids: The ids of the jobs; None: the jobs that match the other arguments.
            now: Kill running jobs at once (`cancel` only).
            set_labels: Labels to set (`label` only); None as a value removes a label.
            dry_run: Change nothing, only count the jobs.
            **matching: The arguments of `list` without the times.

        Returns:
            The numbers of matched and changed jobs. One call changes at most 1,000 jobs: repeat it while `more` is
                true.

        Example:
            >>> client.jobs.act("label", [job.id], set_labels={"team": "bridges"}).done
            1
        """
        where = filter_of(matching)
        call = calls.act(action, ids=ids, where=where, now=now, labels=set_labels, dry_run=dry_run)
        return await self._connection.answer(call)

    async def update(
        self,
        job_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        visibility: Visibility | None = None,
        notes: str | None = None,
        notes_before: str | None = None,
        archived: bool | None = None,
    ) -> JobView:
        """Changes fields of a job. Omitted ones stay.

        Args:
            job_id: The job's id.
            name: Its name.
            labels: All its labels.
            priority: Its priority, while it is queued.
            visibility: `private` or `team`.
            notes: Markdown of at most 64 KiB; empty removes the notes.
            notes_before: The notes that you read before: if they changed, nothing happens.
            archived: Whether lists hide the finished job.

        Raises:
            Conflict: The job's state forbids the change, or the notes are not `notes_before`.

        Example:
            >>> client.jobs.update(job.id, notes="lr too high", notes_before="").notes
            'lr too high'
        """
        call = calls.update(
            job_id,
            name=name,
            labels=labels,
            priority=priority,
            visibility=visibility,
            notes=notes,
            notes_before=notes_before,
            archived=archived,
        )
        return await self._connection.answer(call)

    async def star(self, job_id: str, *, starred: bool = True) -> None:
        """Stars a job, or removes your star. Only you see it.

        Args:
            job_id: The job's id.
            starred: False removes the star.

        Example:
            >>> client.jobs.star(job.id)
        """
        await self._connection.send(calls.star(job_id, starred=starred))

    async def cancel(self, job_id: str, *, now: bool = False) -> JobView:
        """Asks a job to save a checkpoint and stop.

        Args:
            job_id: The job's id.
            now: Kill it at once, without a checkpoint.

        Raises:
            Conflict: The job has ended.

        Example:
            >>> client.jobs.cancel(client.submit(spec).id).state.value
            'cancelled'
        """
        return await self._connection.answer(calls.cancel(job_id, now=now))

    async def pause(self, job_id: str) -> JobView:
        """Asks a job to save a checkpoint and release its devices.

        Raises:
            Conflict: The job has ended.

        Example:
            >>> waiting = client.submit(spec)
            >>> client.jobs.pause(waiting.id).state.value
            'paused'
        """
        return await self._connection.answer(calls.pause(job_id))

    async def price_of_stop(
        self, job_id: str, action: Literal["cancel", "pause"] = "cancel", *, now: bool = False
    ) -> StopView:
        """Returns the work that a stop would lose: the work since the newest checkpoint. Changes nothing.

        Args:
            job_id: The job's id.
            action: `cancel` or `pause`.
            now: Ask for a cancel without a checkpoint.

        Raises:
            ServerError: The service is older.
            Conflict: The job has ended.

        Example:
            >>> client.jobs.price_of_stop(client.submit(spec).id).device_seconds
            0.0
        """
        # Not by `?dry_run=true`: an older service would not know it, and stop the job.
        asked = calls.act(action, ids=[job_id], where=filter_of({}), now=now, labels=None, dry_run=True)
        answer = await self._connection.answer(asked)
        for refused in answer.refused:
            raise error_of(refused.code, refused.message)
        if answer.price is None:
            raise ServerError(
                f"{self._connection.server.url} cannot say what a stop would cost: its version is too old"
            )
        return answer.price

    async def resume(self, job_id: str, *, devices: int | None = None) -> JobView:
        """Queues a paused job again. It resumes from its newest checkpoint.

        Args:
            job_id: The job's id.
            devices: Devices on each node; None: as before.

        Raises:
            Conflict: The job has ended, or `devices` is given and it is not paused.

        Example:
            >>> waiting = client.submit(spec)
            >>> waiting.pause().state.value, client.jobs.resume(waiting.id).state.value
            ('paused', 'queued')
        """
        return await self._connection.answer(calls.resume(job_id, devices=devices))

    async def delete(self, job_id: str) -> None:
        """Deletes a finished job and everything that it stored.

        Raises:
            Conflict: The job has not ended.

        Example:
            >>> ended = client.submit(spec).cancel()
            >>> client.jobs.delete(ended.id)
        """
        await self._connection.send(calls.delete(job_id))

    def attempts(self, job_id: str) -> AsyncGenerator[AttemptView]:
        """Yields the attempts of a job, oldest first.

        Example:
            >>> [(attempt.number, attempt.end_reason.value) for attempt in client.jobs.attempts(job.id)]
            [(1, 'completed')]
        """
        return self._connection.pages(calls.attempts(job_id))
