"""The client whose methods wait for their answers."""

from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
import time
from typing import Self

from torchyard.client import calls
from torchyard.client.answers import file_name, parse
from torchyard.client.calls import Spec
from torchyard.client.connection import Connection
from torchyard.client.discovery import Server, discover
from torchyard.client.download import OnProgress, PartFile, wanted_file
from torchyard.client.stream import End, Kind, MetricPoint, Reading, StreamItem, kinds
from torchyard.contract.errors import NotFound
from torchyard.contract.spec import JobSpec
from torchyard.contract.views import (
    CheckpointView,
    EventView,
    JobView,
    LogLine,
    MetricsView,
    QueueEntry,
    ReadyView,
    TrainerView,
    WorkerView,
)

Update = JobView | EventView | MetricPoint | LogLine
"""What `Client.follow` yields."""

LONGEST_WAIT = 20
"""Seconds for which the server is asked to hold back its answer until the job changes."""


class Client:
    """Talks to one Torchyard server. Every method raises TorchyardError: by the answer's `code` the class that
    `torchyard.contract.errors` has for it, ServerUnreachable where nothing answers.

    Without arguments it finds the server through TORCHYARD_URL and TORCHYARD_TOKEN, else the user's login, else the
    `server.json` in `data_dir` that `torchyard up` keeps. `patience` is for how many seconds a call, a stream or a
    download is tried again when a server that was once reached does not answer any more.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | Path = ".torchyard",
        patience: float = 30.0,
    ) -> None:
        self.server: Server = discover(url, token, data_dir=Path(data_dir))
        self._connection = Connection(self.server, patience=patience)

    def close(self) -> None:
        """Closes the connections, as the end of the object does too."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job, once even if the connection breaks. With a key, a server that knows it gives the job of the
        first call with that key.
        """
        return self._connection.answer(calls.submit(spec, key=idempotency_key))

    def validate(self, spec: Spec) -> JobSpec:
        """The spec with every default filled in; nothing is stored. Raises InvalidSpec, naming each field."""
        return self._connection.answer(calls.validate(spec)).spec

    def get(self, job_id: str) -> JobView:
        return self._connection.answer(calls.get(job_id))

    def find(self, ref: str) -> JobView:
        """The job with the id `ref`, else the newest job of that name. Raises NotFound."""
        if ref.startswith("job_"):
            try:
                return self.get(ref)
            except NotFound:
                pass  # a job may have such a name
        newest = next(self.list(name=ref, limit=1), None)
        if newest is None:
            raise NotFound(f"there is no job with the id or name {ref!r}")
        return newest

    def list(
        self,
        *,
        state: Sequence[str] = (),
        name: str | None = None,
        owner: str | None = None,
        trainer: str | None = None,
        labels: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[JobView]:
        """Jobs, newest first, that have all `labels`; pages are fetched as they are needed."""
        call = calls.jobs(
            state=state,
            name=name,
            owner=owner,
            trainer=trainer,
            labels=labels,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
        )
        return self._connection.pages(call, limit=limit)

    def update(
        self,
        job_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
    ) -> JobView:
        """Changes what is given; `labels` replaces all of them. Raises Conflict where the state forbids it."""
        return self._connection.answer(calls.update(job_id, name=name, labels=labels, priority=priority))

    def cancel(self, job_id: str) -> JobView:
        """Asks the job to stop. Raises Conflict if it has ended."""
        return self._connection.answer(calls.cancel(job_id))

    def pause(self, job_id: str) -> JobView:
        """Asks the job to save a checkpoint and give its devices back. Raises Conflict if it has ended."""
        return self._connection.answer(calls.pause(job_id))

    def resume(self, job_id: str) -> JobView:
        """Lets a paused job go on from its newest checkpoint. Raises Conflict if it has ended."""
        return self._connection.answer(calls.resume(job_id))

    def retry(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """A new job with the same spec, which goes on from the newest checkpoint. Raises Conflict unless it ended."""
        return self._connection.answer(calls.retry(job_id, key=idempotency_key))

    def delete(self, job_id: str) -> None:
        """Removes the job and all that it stored. Raises Conflict unless it has ended."""
        self._connection.send(calls.delete(job_id))

    def queue(self) -> Iterator[QueueEntry]:
        """The queued jobs in the order in which workers look at them; what fits starts before what does not."""
        return self._connection.pages(calls.queue())

    def events(self, job_id: str, *, after: int = 0) -> Iterator[EventView]:
        """The job's events with a `seq` above `after`, in order."""
        return self._connection.pages(calls.events(job_id, after=after))

    def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
        attempt: int | None = None,
    ) -> MetricsView:
        """The job's series, each downsampled to `max_points` where that is given or the server has a limit."""
        call = calls.metrics(
            job_id, keys=keys, from_step=from_step, to_step=to_step, max_points=max_points, attempt=attempt
        )
        return self._connection.answer(call)

    def logs(
        self, job_id: str, *, tail: int | None = None, rank: int | None = None, after: int | None = None
    ) -> Iterator[LogLine]:
        """Lines of output, oldest first: the last `tail` ones, or those numbered above `after`."""
        if tail is not None:
            return self._connection.pages(calls.log_tail(job_id, tail=tail, rank=rank))
        return self._connection.pages(calls.log(job_id, after=after or 0, rank=rank))

    def lines_before(self, job_id: str, moment: datetime) -> int:
        """The number of the last line that was stored before `moment`; 0 where there is none."""
        newest = next(self.logs(job_id, tail=1), None)
        last = 0 if newest is None else newest.line
        return bisect_left(range(last), moment, key=lambda number: self._line_behind(job_id, number).time)

    def checkpoints(self, job_id: str) -> Iterator[CheckpointView]:
        """The job's checkpoints, newest first."""
        return self._connection.pages(calls.checkpoints(job_id))

    def checkpoint(self, job_id: str, ref: str = "best") -> CheckpointView:
        """`ref` is an id, `best`, `latest`, `epoch-N` or `step-N`. Raises NotFound."""
        return self._connection.answer(calls.checkpoint(job_id, ref))

    def download(
        self,
        job_id: str,
        ref: str = "best",
        *,
        file: str | None = None,
        to: str | Path = ".",
        on_progress: OnProgress | None = None,
    ) -> Path:
        """Fetches a checkpoint's `state.pt`, or its `file` of that path, and gives the path of what it wrote: `to`, or
        in that folder the server's name for it.

        The file appears whole, with the listed sha256, or not at all. A connection that breaks is made again, and what
        arrived until a download failed is kept beside it for the next one. Raises NotFound, OSError, Conflict where
        another process downloads the same, and ServerError where the bytes are not those that the server lists.
        """
        listed = self.checkpoint(job_id, ref)
        wanted = wanted_file(listed, file)
        path = calls.file_path(job_id, listed.id, file)
        target = Path(to)
        if target.is_dir():
            target /= file_name(self._connection.send(calls.head(path))) or f"{listed.id}.pt"
        with PartFile(target, wanted, on_progress) as part:
            self._connection.fill(part, path)
            part.finish()
        return target

    def trainers(self) -> Sequence[TrainerView]:
        return [*self._connection.pages(calls.trainers())]

    def workers(self) -> Sequence[WorkerView]:
        return [*self._connection.pages(calls.workers())]

    def drain(self, worker_id: str) -> WorkerView:
        """The worker takes no more jobs, and its running ones save and go back to the queue. Raises Forbidden."""
        return self._connection.answer(calls.drain(worker_id))

    def undrain(self, worker_id: str) -> WorkerView:
        """The worker takes jobs again. Raises Forbidden."""
        return self._connection.answer(calls.undrain(worker_id))

    def ready(self) -> ReadyView:
        """What the service needs and whether it answers. Raises ServerUnreachable."""
        call = calls.ready()
        return parse(self._connection.attempt(call), call.kind)

    def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:
        """The job once it has ended. `timeout` is in seconds; raises TimeoutError."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        job = self.get(job_id)
        while not job.state.terminal:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} is still {job.state} after {timeout:g} s")
            call = calls.get(job_id, wait=min(left, LONGEST_WAIT), after_version=job.version)
            job = self._connection.answer(call)
        return job

    def stream(self, job_id: str, *, after: int = 0, only: Sequence[Kind] = ()) -> Generator[StreamItem]:
        """All that the job stored behind position `after`, each thing once, in order and as it comes; last its end.

        `only` restricts the kinds. A connection that is cut, or a server that starts again, loses and repeats nothing.
        """
        return self._connection.events(calls.stream_path(job_id), Reading(after), tuple(only))

    def follow(self, job_id: str, *, logs: bool = True, metrics: bool = True) -> Generator[Update]:
        """What happens to the job, from its beginning to its end: its events, metric points and log lines, each once.
        A job that has not ended comes first itself; the last thing is the job in its final state.
        """
        job = self.get(job_id)
        if not job.state.terminal:
            yield job
        for item in self.stream(job_id, only=kinds(logs=logs, metrics=metrics)):
            if not isinstance(item.view, End):
                yield item.view
        yield self.get(job_id)

    def follow_logs(self, job_id: str, *, after: int = 0, rank: int | None = None) -> Generator[LogLine]:
        """Lines of output numbered above `after`, as they come, until the job has ended."""
        # A line's position is never below its number.
        for item in self.stream(job_id, after=after, only=["log"]):
            line = item.view
            if isinstance(line, LogLine) and line.line > after and rank in {None, line.rank}:
                yield line

    def _line_behind(self, job_id: str, number: int) -> LogLine:
        return self._connection.answer(calls.log(job_id, after=number, rank=None, limit=1)).data[0]
