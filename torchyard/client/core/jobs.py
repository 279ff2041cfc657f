"""The operations on jobs whose answers are views."""

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
    """Operations on jobs. Each raises NotFound, and Forbidden if it changes a job of another user."""

    async def submit_batch(
        self, specs: Sequence[Spec], *, atomic: bool = False, idempotency_key: str | None = None
    ) -> BatchView:
        """Submits up to 10,000 jobs, each once even if the connection breaks. Returns for each its id or its error.

        `atomic`: all jobs, at most 500, or none. Raises the error of the first that is wrong, then. If the server knows
        the key, it submits what it has not submitted yet of the same jobs.
        """
        exact = await with_ids(self._connection, specs)
        return await self._connection.answer(calls.submit_batch(exact, atomic=atomic, key=idempotency_key))

    async def validate(self, spec: Spec) -> JobSpec:
        """Returns the spec with every default filled in; nothing is stored. Raises InvalidSpec, naming each field."""
        (exact,) = await with_ids(self._connection, [spec])
        return (await self._connection.answer(calls.validate(exact))).spec

    async def forecast(self, spec: Spec) -> SpecView:
        """Returns what `validate` does in `spec`, and in `waits_for` what would become of the job if it were submitted
        now: whether it would start at once, else when, and what would start it at once. Nothing is stored.

        Raises InvalidSpec, also for secrets, GPUs and targets that are not there, and TooManyRequests.
        """
        (exact,) = await with_ids(self._connection, [spec])
        return await self._connection.answer(calls.validate(exact, forecast=True))

    async def advice(self, job_id: str) -> AdviceView:
        """Returns what is the matter with the job and what to do. Raises NotFound, also if the service is older."""
        return await self._connection.answer(calls.advice(job_id))

    def list(
        self, *, sort: JobSort = "created", limit: int | None = None, **matching: Unpack[Listed]
    ) -> AsyncGenerator[JobSummary]:
        """Yields the jobs that match every argument, newest first: `state` (one of these), `q`, `name`, `owner`,
        `trainer`, `init_from` (the id of the job from which they start), `labels` (all of them), `sweep` and `schedule`
        (their ids), `starred`, `archived`, `created_after` and `created_before`. `get` returns all of a job.

        `q` is a part of the name, the id, the owner, a label's value or the notes' beginning. With `archived`, archived
        jobs are listed in place of the others. A `sort` with a leading `-` is reversed. Raises
        InvalidRequest.
        """
        call = calls.jobs(query_of(matching), sort=None if sort == "created" else sort, limit=limit)
        return self._connection.pages(call, limit=limit)

    async def count(self, **matching: Unpack[Matching]) -> Mapping[JobState, int]:
        """Returns how many jobs that match every argument, as those of `list`, are in each state.

        States without any are left out. A `state` changes nothing. With another argument than `owner` and `archived`,
        the newest 1,000 that match are counted of more than 10,000 jobs.
        """
        return (await self._connection.answer(calls.counts(filter_of(matching)))).counts or {}

    async def groups(self, by: str, **matching: Unpack[Listed]) -> Sequence[JobGroup]:
        """Returns how many jobs that match every argument, as those of `list`, have each value of a label, by state.

        `by` is `label:KEY`. At most 200 groups, the largest first, of the newest 10,000 jobs. Raises InvalidRequest.
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
        """Does the action on the jobs with these `ids`, else on those that match every other argument, as those of
        `list`.

        At most 1,000 jobs: repeat it while the answer says `more`. What is refused leaves the others as they are. With
        `now`, a cancel kills, as in `cancel`. The action `label` sets `set_labels`, or removes those that are None.
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
        """Changes what is given; `labels` replaces all labels, and empty `notes` remove them. Raises Conflict if the
        job's state forbids it or its notes are not `notes_before` any more, and Forbidden if the job belongs to another
        user.
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
        """Stars a job that you may read, or removes your star. Only you see it."""
        await self._connection.send(calls.star(job_id, starred=starred))

    async def cancel(self, job_id: str, *, now: bool = False) -> JobView:
        """Asks the job to save a checkpoint and stop. With `now` it is killed without one, also if it stops already.

        Raises Conflict if it has ended.
        """
        return await self._connection.answer(calls.cancel(job_id, now=now))

    async def pause(self, job_id: str) -> JobView:
        """Asks the job to save a checkpoint and release its devices. Raises Conflict if it has ended."""
        return await self._connection.answer(calls.pause(job_id))

    async def price_of_stop(
        self, job_id: str, action: Literal["cancel", "pause"] = "cancel", *, now: bool = False
    ) -> StopView:
        """Returns what a cancel or a pause of the job would cost: what it loses if it does not save first, as with
        `now` it does not. Nothing is done. Raises ServerError if the service is older.
        """
        # Not by `?dry_run=true`: an older service would not know it, and stop the job.
        asked = calls.act(action, ids=[job_id], where=filter_of({}), now=now, labels=None, dry_run=True)
        answer = await self._connection.answer(asked)
        for refused in answer.refused:
            raise error_of(refused.code, refused.message)
        if answer.price is None:
            raise ServerError(
                f"{self._connection.server.url} does not tell what a stop would cost: it is of an older version"
            )
        return answer.price

    async def resume(self, job_id: str, *, devices: int | None = None) -> JobView:
        """Lets a paused job continue from its newest checkpoint, on so many `devices` of each node, or on as many as
        before. Raises Conflict if it has ended, or for other devices, if it is not paused.
        """
        return await self._connection.answer(calls.resume(job_id, devices=devices))

    async def delete(self, job_id: str) -> None:
        """Removes the job and everything that it stored. Raises Conflict if it has not ended."""
        await self._connection.send(calls.delete(job_id))

    def attempts(self, job_id: str) -> AsyncGenerator[AttemptView]:
        """Yields the runs of the job, oldest first."""
        return self._connection.pages(calls.attempts(job_id))
