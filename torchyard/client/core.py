"""Every operation of a client, written once: Client and AsyncClient differ in their transport alone."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
import time
from types import MappingProxyType
from typing import Any, Unpack

from torchyard.client import calls
from torchyard.client.bundles import BundlesCore
from torchyard.client.calls import LogLines, LogStream, Spec
from torchyard.client.connection import Connection
from torchyard.client.discovery import Server
from torchyard.client.download import OnProgress, PartFile, file_to_download
from torchyard.client.job import AsyncJob
from torchyard.client.launching import Mounts, arguments, program_of, script_spec, upload_code
from torchyard.client.matching import Listed, Matching, filter_of, query_of
from torchyard.client.packing import MAX_SIZE
from torchyard.client.references import find_checkpoint, find_job, free_name
from torchyard.client.responses import file_name, parse
from torchyard.client.stream import StreamItem, StreamReader, Update, followed_kinds
from torchyard.client.team import TeamCore
from torchyard.client.transport import Transport
from torchyard.contract.artifacts import is_artifact_path
from torchyard.contract.errors import NotFound, ServerError
from torchyard.contract.filters import JobSort
from torchyard.contract.job import JobState
from torchyard.contract.requests import JobAction
from torchyard.contract.spec import JobSpec
from torchyard.contract.team import Visibility
from torchyard.contract.views.advice import AdviceView
from torchyard.contract.views.attempts import AttemptView
from torchyard.contract.views.checkpoints import ArtifactView, CheckpointFile, CheckpointView
from torchyard.contract.views.cluster import ReadyView, TrainerView, WorkerHistoryView, WorkerView
from torchyard.contract.views.curves import CurvesView
from torchyard.contract.views.jobs import ActionsView, JobSummary, JobView, QueueEntry
from torchyard.contract.views.telemetry import (
    EndView,
    EventView,
    LogLine,
    LogMatch,
    MetricsView,
    StacksView,
    StoredKind,
)

_LONGEST_WAIT_S = 20
"""For this long the server is asked to hold its answer back until the job changes."""

_STACKS_POLL_S = 0.2


class ClientCore(TeamCore):
    """The operations, over a transport that does the I/O. They wait only in calls of the transport."""

    def __init__(self, server: Server, transport: Transport, *, patience: float) -> None:
        self.server = server
        self._transport = transport
        super().__init__(Connection(server, transport, patience=patience))
        self.bundles = BundlesCore(self._connection)

    async def close(self) -> None:
        """Closes the connections."""
        await self._connection.close()

    async def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> AsyncJob:
        """Submits a job, once even if the connection breaks, and returns a `Job`, of an AsyncClient an `AsyncJob`. If
        the server knows the key, it is the job of the first call with that key.
        """
        return AsyncJob(self, await self._connection.answer(calls.submit(spec, key=idempotency_key)))

    async def run(
        self,
        program: str = "train.py",
        *,
        args: Sequence[object] = (),
        module: bool = False,
        folder: str | Path = ".",
        devices: int = 1,
        name: str | None = None,
        mounts: Mounts = MappingProxyType({}),
        checkpoints: Sequence[str] = (),
        requirements: str | None = None,
        max_size: int = MAX_SIZE,
        idempotency_key: str | None = None,
        **spec: Any,
    ) -> AsyncJob:
        """Packs `folder`, uploads what the server does not have of it, and submits a job that runs `program` of it.

        `program` is a file of the folder that ends in `.py`, a module if `module`, else a command. `mounts` are more
        folders, or URLs, which the program finds at `$TORCHYARD_MOUNTS/NAME`. `checkpoints` are patterns of files that
        become checkpoints. `max_size` is in bytes, for each folder. `spec` has further keys of a job spec: `env`,
        `time_limit`, `resources`, …. Without `name` it has the folder's name, and the next free number where a job has
        that, unless there is an `idempotency_key`, as a repeated call must be the same. Returns what `submit` does.
        Raises ConfigError, InvalidBundle, TooLarge, InvalidSpec, and QuotaExceeded.
        """
        needed = program if program.endswith(".py") and not module else None
        wanted = script_spec(name=name, folder=folder, devices=devices, more=spec)
        code = await upload_code(
            self.bundles, folder, needed=needed, mounts=mounts, requirements=requirements, max_size=max_size
        )
        config = {
            **program_of(program, module=module),
            **code,
            "args": arguments(args),
            "checkpoints": [*checkpoints],
        }
        wanted["config"] = {key: value for key, value in config.items() if value}
        if name is None and idempotency_key is None:
            wanted["name"] = await self.free_name(wanted["name"])
        return await self.submit(wanted, idempotency_key=idempotency_key)

    async def validate(self, spec: Spec) -> JobSpec:
        """Returns the spec with every default filled in; nothing is stored. Raises InvalidSpec, naming each field."""
        return (await self._connection.answer(calls.validate(spec))).spec

    async def get(self, ref: str) -> AsyncJob:
        """Returns the job with the id `ref`, else the newest job of that name, else the only one whose id begins with
        `ref`, which then has four digits at least. It is a `Job`, of an AsyncClient an `AsyncJob`.

        Raises NotFound, and Conflict if several ids begin with `ref`.
        """
        return AsyncJob(self, await find_job(self._connection, ref))

    async def free_name(self, name: str) -> str:
        """Returns `name`, or if a job has it, `name-2`, `name-3`, …: the first after that of the newest such job."""
        return await free_name(self._connection, name)

    async def advice(self, job_id: str) -> AdviceView:
        """Returns what is the matter with the job and what to do. Raises NotFound, also if the service is older."""
        return await self._connection.answer(calls.advice(job_id))

    def list(
        self, *, sort: JobSort = "created", limit: int | None = None, **matching: Unpack[Listed]
    ) -> AsyncGenerator[JobSummary]:
        """Yields the jobs that match every argument, newest first: `state` (one of these), `q`, `name`, `owner`,
        `trainer`, `labels` (all of them), `created_after` and `created_before`. `get` returns all of a job.

        `q` is a part of the name, the id, the owner or a label's value. A `sort` with a leading `-` is reversed. Raises
        InvalidRequest.
        """
        call = calls.jobs(query_of(matching), sort=None if sort == "created" else sort, limit=limit)
        return self._connection.pages(call, limit=limit)

    async def count(self, **matching: Unpack[Matching]) -> Mapping[JobState, int]:
        """Returns how many jobs that match every argument, as those of `list`, are in each state.

        States without any are left out. A `state` changes nothing.
        """
        return (await self._connection.answer(calls.counts(filter_of(matching)))).counts or {}

    async def act(
        self,
        action: JobAction,
        ids: Sequence[str] | None = None,
        *,
        now: bool = False,
        dry_run: bool = False,
        **matching: Unpack[Matching],
    ) -> ActionsView:
        """Cancels, pauses, resumes or deletes the jobs with these `ids`, else those that match every other argument, as
        those of `list`.

        At most 1,000 jobs: repeat it while the answer says `more`. What is refused leaves the others as they are. With
        `now`, a cancel kills, as in `cancel`.
        """
        call = calls.act(action, ids=ids, where=filter_of(matching), now=now, dry_run=dry_run)
        return await self._connection.answer(call)

    async def update(
        self,
        job_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        visibility: Visibility | None = None,
    ) -> JobView:
        """Changes what is given; `labels` replaces all labels. Raises Conflict if the job's state forbids it, and
        Forbidden if the job belongs to another user.
        """
        call = calls.update(job_id, name=name, labels=labels, priority=priority, visibility=visibility)
        return await self._connection.answer(call)

    async def cancel(self, job_id: str, *, now: bool = False) -> JobView:
        """Asks the job to save a checkpoint and stop. With `now` it is killed without one, also if it stops already.

        Raises Conflict if it has ended.
        """
        return await self._connection.answer(calls.cancel(job_id, now=now))

    async def pause(self, job_id: str) -> JobView:
        """Asks the job to save a checkpoint and release its devices. Raises Conflict if it has ended."""
        return await self._connection.answer(calls.pause(job_id))

    async def resume(self, job_id: str) -> JobView:
        """Lets a paused job continue from its newest checkpoint. Raises Conflict if it has ended."""
        return await self._connection.answer(calls.resume(job_id))

    async def retry(self, job_id: str, *, idempotency_key: str | None = None) -> AsyncJob:
        """Submits a new job with the same spec, which continues from the newest checkpoint of this one. Returns what
        `submit` does.

        Raises Conflict if this job has not ended.
        """
        return AsyncJob(self, await self._connection.answer(calls.retry(job_id, key=idempotency_key)))

    async def delete(self, job_id: str) -> None:
        """Removes the job and everything that it stored. Raises Conflict if it has not ended."""
        await self._connection.send(calls.delete(job_id))

    def queue(self) -> AsyncGenerator[QueueEntry]:
        """Yields the queued jobs in the order in which workers try to start them. A job that does not fit now is
        passed over.
        """
        return self._connection.pages(calls.queue())

    def events(self, job_id: str, *, after: int = 0) -> AsyncGenerator[EventView]:
        """Yields the job's events with a `seq` above `after`, in order."""
        return self._connection.pages(calls.events(job_id, after=after))

    async def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
        attempt: int | None = None,
    ) -> MetricsView:
        """Returns the job's series, each downsampled to `max_points`; without it, to the server's default."""
        call = calls.metrics(
            job_id, keys=keys, from_step=from_step, to_step=to_step, max_points=max_points, attempt=attempt
        )
        return await self._connection.answer(call)

    async def curves(
        self,
        job_ids: Sequence[str],
        *,
        keys: Sequence[str] = (),
        smooth: float = 0.0,
        max_points: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        attempt: int | None = None,
        hidden: bool = False,
    ) -> CurvesView:
        """Returns which metrics the jobs have, and in columns those that `keys` names: at most 50 jobs, 200 keys.

        A series of more than `max_points` is answered in buckets of neighbouring points, with their mean, least and
        greatest value. With `smooth`, from 0 to less than 1, there is a moving average, too. `hidden` adds what later
        attempts hide.
        """
        call = calls.curves(
            job_ids,
            keys=keys,
            hidden=hidden,
            smooth=smooth or None,
            max_points=max_points,
            from_step=from_step,
            to_step=to_step,
            attempt=attempt,
        )
        return await self._connection.answer(call)

    def attempts(self, job_id: str) -> AsyncGenerator[AttemptView]:
        """Yields the runs of the job, oldest first."""
        return self._connection.pages(calls.attempts(job_id))

    def logs(
        self,
        job_id: str,
        *,
        tail: int | None = None,
        rank: int | None = None,
        after: int | None = None,
        before: int | None = None,
        attempt: int | None = None,
        stream: LogStream | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[LogLine]:
        """Yields lines of output, oldest first: the last `tail` lines, or the first `limit` of those numbered above
        `after`, or the last `limit` of those numbered below `before`, of which there are at most 1,000.
        """
        where = LogLines(rank=rank, attempt=attempt, stream=stream)
        if tail is not None:
            return self._connection.pages(calls.log_tail(job_id, tail=tail, where=where))
        if before is not None:
            return self._connection.pages(calls.log_before(job_id, before=before, where=where, limit=limit))
        return self._connection.pages(calls.log(job_id, after=after or 0, where=where, limit=limit), limit=limit)

    def search_logs(
        self,
        job_id: str,
        pattern: str,
        *,
        regex: bool = False,
        case: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        stream: LogStream | None = None,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        searched: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[LogMatch]:
        """Yields the first `limit` lines that contain `pattern`, oldest first, with the places of the matches.

        `regex`: the pattern is a regular expression in RE2's syntax. `case`: capital and small letters differ. `after`
        and `before` are numbers of lines. A long search takes several requests: before each further one, `searched` is
        told the line up to which the log is searched. Raises InvalidRequest.
        """
        call = calls.search_logs(
            job_id,
            pattern,
            regex=regex,
            case=case,
            where=LogLines(rank=rank, attempt=attempt, stream=stream),
            after=after,
            before=before,
            limit=limit,
        )

        def going_on(cursor: str) -> None:
            if searched is not None:
                searched(int(cursor))

        return self._connection.pages(call, limit=limit, going_on=going_on)

    async def lines_before(self, job_id: str, moment: datetime) -> int:
        """Returns the number of the last line that was stored before `moment`, or 0. Fetches few lines."""
        newest = (await self._connection.answer(calls.log_tail(job_id, tail=1, where=LogLines()))).data
        low, high = 0, newest[-1].line if newest else 0
        while low < high:
            middle = (low + high) // 2
            found = await self._connection.answer(calls.log(job_id, after=middle, where=LogLines(), limit=1))
            if found.data[0].time < moment:
                low = middle + 1
            else:
                high = middle
        return low

    async def stacks(self, job_id: str, *, timeout: float = 15.0) -> StacksView:  # noqa: ASYNC109 - as in Client
        """Returns the Python stacks of every rank of a running job, as they are now. The job goes on.

        Raises TimeoutError if the job's worker has not answered after `timeout` seconds, Conflict if the job does not
        run, and Forbidden if it belongs to another user.
        """
        deadline = time.monotonic() + timeout
        found = await self._connection.answer(calls.request_stacks(job_id))
        while found.taken_at is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"the worker of job {job_id} has not answered within {timeout:g} s: it prepares the job, or is away"
                )
            await self._transport.sleep(_STACKS_POLL_S)
            found = await self._connection.answer(calls.stacks(job_id))
        return found

    def checkpoints(self, job_id: str) -> AsyncGenerator[CheckpointView]:
        """Yields the job's checkpoints, newest first."""
        return self._connection.pages(calls.checkpoints(job_id))

    async def checkpoint(self, job_id: str, ref: str | None = None) -> CheckpointView:
        """Returns one checkpoint. `ref` is an id or its beginning, `best`, `latest`, `epoch-N` or `step-N`; without it,
        the best, else the latest. Raises NotFound, and Conflict if several ids begin with `ref`.
        """
        return await find_checkpoint(self._connection, job_id, ref)

    async def download(
        self,
        job_id: str,
        ref: str | None = None,
        *,
        file: str | None = None,
        to: str | Path = ".",
        on_progress: OnProgress | None = None,
    ) -> Path:
        """Fetches a checkpoint's `state.pt`, or its `file` of that path, and returns the path that it wrote: `to`, or
        if that is a folder, the server's name for the file in it. `ref` is one of `checkpoint`.

        The file is written whole, with the listed sha256, or not at all. After a failure the bytes that arrived stay in
        a `.part` file, and the next download continues from them. Raises NotFound, OSError, Conflict if another process
        downloads the same file, and ServerError if the bytes are not those that the server lists.
        """
        checkpoint = await self.checkpoint(job_id, ref)
        expected = file_to_download(checkpoint, file)
        path = calls.file_path(job_id, checkpoint.id, file)
        target = Path(to)
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            target /= file_name(await self._connection.send(calls.head(path))) or f"{checkpoint.id}.pt"
        with PartFile(target, expected, on_progress) as part:
            await self._connection.fill(part, path)
            part.finish()
        return target

    def artifacts(self, job_id: str, *, path: str | None = None) -> AsyncGenerator[ArtifactView]:
        """Yields the files that the job left in its folder `artifacts`; with `path`, that file or those in that folder.

        They are stored at the end of each attempt.
        """
        return self._connection.pages(calls.artifacts(job_id, path=path))

    async def download_artifact(
        self, job_id: str, path: str, *, to: str | Path = ".", on_progress: OnProgress | None = None
    ) -> Path:
        """Fetches the artifact with this path, and returns the path that it wrote: `to`, or if that is a folder, the
        artifact's own name in it.

        The file is written whole or continued as by `download`, and raises what that does.
        """
        found = [item async for item in self.artifacts(job_id, path=path) if item.path == path]
        if not found:
            raise NotFound(f"job {job_id} has no artifact {path!r}")
        target, name = Path(to), path.rpartition("/")[2]
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            if not is_artifact_path(path):
                raise ServerError(f"the server lists the artifact {path!r}, which is no safe name for a file")
            target /= name
        expected = CheckpointFile(path=path, size=found[0].size, sha256=found[0].sha256)
        with PartFile(target, expected, on_progress) as part:
            await self._connection.fill(part, calls.artifact_path(job_id, path))
            part.finish()
        return target

    async def trainers(self) -> Sequence[TrainerView]:
        """Returns the trainers that a job may name, each with the JSON schema of its `config`."""
        return [item async for item in self._connection.pages(calls.trainers())]

    async def workers(self) -> Sequence[WorkerView]:
        """Returns the workers, their devices, and the job that holds each."""
        return [item async for item in self._connection.pages(calls.workers())]

    async def worker_history(
        self,
        worker_id: str,
        *,
        begins: datetime | None = None,
        ends: datetime | None = None,
        max_points: int | None = None,
    ) -> WorkerHistoryView:
        """Returns how the worker's devices were used, by default in the last hour. Raises NotFound."""
        call = calls.worker_history(worker_id, begins=begins, ends=ends, max_points=max_points)
        return await self._connection.answer(call)

    async def drain(self, worker_id: str) -> WorkerView:
        """Stops the worker from taking jobs; its running jobs save a checkpoint and return to the queue.

        Raises Forbidden.
        """
        return await self._connection.answer(calls.drain(worker_id))

    async def undrain(self, worker_id: str) -> WorkerView:
        """Lets the worker take jobs again. Raises Forbidden."""
        return await self._connection.answer(calls.undrain(worker_id))

    async def ready(self) -> ReadyView:
        """Returns the state of each part that the service needs. Raises ServerUnreachable."""
        call = calls.ready()
        return parse(await self._connection.send_once(call), call.view)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Client
        """Waits until the job has ended, and returns it. `timeout` is in seconds. Raises TimeoutError."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        job = await self._connection.answer(calls.get(job_id))
        while not job.state.terminal:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} is still {job.state} after {timeout:g} s")
            call = calls.get(job_id, wait=min(left, _LONGEST_WAIT_S), after_version=job.version)
            job = await self._connection.answer(call)
        return job

    async def wait_for_change(self, job: JobView, *, timeout: float = 20.0) -> JobView:  # noqa: ASYNC109 - as in Client
        """Returns the job once its version is another one than that of `job`, or as it is after `timeout` seconds."""
        call = calls.get(job.id, wait=min(timeout, _LONGEST_WAIT_S), after_version=job.version)
        return await self._connection.answer(call)

    def stream(
        self, job_id: str, *, after: int = 0, only: Sequence[StoredKind] = (), live: bool = False
    ) -> AsyncGenerator[StreamItem]:
        """Yields everything that the job stored after position `after`, in order and as it is stored; at last its end.

        `only` selects kinds. `live`: with the log, also the newest text of lines that have no end so far, such as
        progress bars, as `LiveLine`s, which nothing stores. If the connection breaks or the server restarts, no other
        item is lost or repeated.
        """
        return self._connection.events(calls.stream_path(job_id), StreamReader(after=after, only=only, live=live))

    async def follow(
        self, job_id: str, *, logs: bool = True, metrics: bool = True, live: bool = False
    ) -> AsyncGenerator[Update]:
        """Yields the job's events, metric points and log lines, each once, from its beginning to its end.

        A job that has not ended is yielded first; the last item is the job in its final state. `live` is as in
        `stream`.
        """
        job = await self._connection.answer(calls.get(job_id))
        if not job.state.terminal:
            yield job
        async with aclosing(self.stream(job_id, only=followed_kinds(logs=logs, metrics=metrics), live=live)) as items:
            async for item in items:
                if not isinstance(item.view, EndView):
                    yield item.view
        yield await self._connection.answer(calls.get(job_id))

    async def follow_logs(self, job_id: str, *, after: int = 0, rank: int | None = None) -> AsyncGenerator[LogLine]:
        """Yields the lines of output numbered above `after` as they are stored, until the job has ended."""
        # A line's position is never below its number.
        async with aclosing(self.stream(job_id, after=after, only=["log"])) as items:
            async for item in items:
                line = item.view
                if isinstance(line, LogLine) and line.line > after and rank in {None, line.rank}:
                    yield line
