"""A job and its files as objects: what a program that runs many jobs holds of each."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchyard.client.calls import jobs as calls
from torchyard.client.connection import Connection
from torchyard.client.core.files import FilesCore
from torchyard.client.core.jobs import JobsCore
from torchyard.client.core.shapes import ArtifactShape, CheckpointShape, JobShape
from torchyard.client.core.telemetry import TelemetryCore
from torchyard.client.series import Metrics, Series
from torchyard.client.stream import Update
from torchyard.client.waiting import wait_for_change, wait_for_end
from torchyard.contract.files.views import ArtifactView, CheckpointView, KeepView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.media.kinds import MediaPart
from torchyard.contract.media.views import MediaView
from torchyard.contract.queue.views import StopView
from torchyard.contract.telemetry.views import LogLine, LogMatch


class JobCore(JobsCore, TelemetryCore, FilesCore):
    """All operations on one job and its files."""

    async def retry(
        self,
        job_id: str,
        *,
        from_: str | None = None,
        devices: int | None = None,
        fresh: bool = False,
        dev: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> "AsyncJob":
        """Submits a new job with the same spec, which continues from a checkpoint of this one: `from_` is an id,
        `best`, `latest`, `epoch-N` or `step-N`; without it, the newest. `devices` are those of each node, if not as
        many as before. A script finds what this job left in its working folder; with `fresh`, the code alone, and no
        checkpoint. With `dev` it runs no program and waits, to be worked in: that has the `time_limit`, the
        `idle_timeout`, and perhaps the `name` of the new job. Returns what `submit` does.

        Raises Conflict if this job has not ended, or is no script and is to wait, and NotFound for a checkpoint that it
        does not have.
        """
        call = calls.retry(job_id, ref=from_, key=idempotency_key, devices=devices, fresh=fresh, dev=dev)
        return AsyncJob(self._connection, await self._connection.answer(call))


@dataclass(frozen=True)
class AsyncCheckpoint(CheckpointShape):
    _view: CheckpointView
    _jobs: JobCore
    _job_id: str

    @property
    def view(self) -> CheckpointView:
        return self._view

    async def download(self, to: str | Path = ".", *, file: str | None = None) -> Path:
        """Fetches its `state.pt`, or its `file`, and returns the path, as `client.jobs.download` does."""
        return await self._jobs.download(self._job_id, self.id, file=file, to=to)


@dataclass(frozen=True)
class AsyncArtifact(ArtifactShape):
    _view: ArtifactView
    _jobs: JobCore
    _job_id: str
    _kept: bool = False

    @property
    def view(self) -> ArtifactView:
        return self._view

    async def download(self, to: str | Path = ".") -> Path:
        """Fetches it, and returns the path, as `client.jobs.download_artifact` does."""
        return await self._jobs.download_artifact(self._job_id, self.path, kept=self._kept, to=to)


class AsyncJob(JobShape):
    def __init__(self, connection: Connection, view: JobView) -> None:
        self._view = view
        self._connection = connection
        self._jobs = JobCore(connection)

    @property
    def view(self) -> JobView:
        return self._view

    async def refresh(self) -> JobView:
        """Asks the server for the job, and returns it."""
        self._view = await wait_for_change(self._connection, self.view, timeout=0)
        return self.view

    async def wait(self, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Job
        """Waits until the job has ended, however it ends, and returns it. `timeout` is in seconds.

        Raises TimeoutError.
        """
        self._view = await wait_for_end(self._connection, self.id, timeout=timeout)
        return self.view

    async def follow(self, *, logs: bool = True, metrics: bool = True) -> AsyncGenerator[Update]:
        """Yields the job's events, metric points and lines of output, each once, until it has ended."""
        async with aclosing(self._jobs.follow(self.id, logs=logs, metrics=metrics)) as updates:
            async for update in updates:
                if isinstance(update, JobView):
                    self._view = update
                yield update

    def logs(self, *, tail: int | None = None, rank: int | None = None) -> AsyncGenerator[LogLine]:
        """Yields lines of output, oldest first: all, or the last `tail`."""
        return self._jobs.logs(self.id, tail=tail, rank=rank)

    def search_logs(
        self, pattern: str, *, regex: bool = False, case: bool = False, rank: int | None = None
    ) -> AsyncGenerator[LogMatch]:
        """Yields the lines that contain `pattern`, oldest first, as `client.jobs.search_logs` does."""
        return self._jobs.search_logs(self.id, pattern, regex=regex, case=case, rank=rank)

    async def metrics(self, *keys: str, max_points: int | None = None) -> Metrics:
        """Returns the series with these keys, or all, each of at most `max_points`, or of the server's default."""
        found = await self._jobs.metrics(self.id, keys=keys, max_points=max_points)
        return Metrics([Series.of(view) for view in found.data])

    async def checkpoints(self) -> AsyncGenerator[AsyncCheckpoint]:
        """Yields the checkpoints, newest first."""
        async with aclosing(self._jobs.checkpoints(self.id)) as views:
            async for view in views:
                yield AsyncCheckpoint(view, self._jobs, self.id)

    async def checkpoint(self, ref: str | None = None) -> AsyncCheckpoint:
        """Returns one checkpoint: an id, `best`, `latest`, `epoch-N` or `step-N`; the best, else the latest, if none is
        named. Raises NotFound.
        """
        return AsyncCheckpoint(await self._jobs.checkpoint(self.id, ref), self._jobs, self.id)

    async def download(self, to: str | Path = ".", *, ref: str | None = None, file: str | None = None) -> Path:
        """Fetches a checkpoint's `state.pt`, or its `file`, and returns the path, as `client.jobs.download` does."""
        return await self._jobs.download(self.id, ref, file=file, to=to)

    async def artifacts(self, path: str | None = None) -> AsyncGenerator[AsyncArtifact]:
        """Yields the files that the job left; with `path`, that file or those in that folder."""
        async with aclosing(self._jobs.artifacts(self.id, path=path)) as views:
            async for view in views:
                yield AsyncArtifact(view, self._jobs, self.id)

    async def kept_files(self, path: str | None = None) -> AsyncGenerator[AsyncArtifact]:
        """Yields the files of the working folder that are kept; with `path`, that file or those in that folder."""
        async with aclosing(self._jobs.kept_files(self.id, path=path)) as views:
            async for view in views:
                yield AsyncArtifact(view, self._jobs, self.id, _kept=True)

    async def keep(self, *paths: str) -> KeepView:
        """Has files and folders of the working folder stored, and waits, as `client.jobs.keep` does."""
        return await self._jobs.keep(self.id, paths)

    def media(self, *keys: str) -> AsyncGenerator[MediaView]:
        """Yields what the job shows at its steps, of these keys or of all, by key, step and number."""
        return self._jobs.media(self.id, keys=keys)

    async def download_picture(self, item: MediaView, part: MediaPart = "image", *, to: str | Path = ".") -> Path:
        """Fetches a picture of what `media` yields, and returns the path, as `client.jobs.download_picture` does."""
        return await self._jobs.download_picture(self.id, item, part, to=to)

    async def best_checkpoint(self) -> AsyncCheckpoint:
        """Returns the best checkpoint, by `checkpoint.monitor` of the spec. Raises NotFound."""
        return await self.checkpoint("best")

    async def latest_checkpoint(self) -> AsyncCheckpoint:
        """Returns the newest checkpoint. Raises NotFound."""
        return await self.checkpoint("latest")

    async def retry(
        self,
        *,
        from_: str | None = None,
        devices: int | None = None,
        fresh: bool = False,
        idempotency_key: str | None = None,
    ) -> "AsyncJob":
        """Submits a new job that continues from a checkpoint of this one, as `client.jobs.retry` does. Returns it."""
        return await self._jobs.retry(
            self.id, from_=from_, devices=devices, fresh=fresh, idempotency_key=idempotency_key
        )

    async def cancel(self, *, now: bool = False) -> JobView:
        """Asks the job to stop, as `client.jobs.cancel` does. Raises Conflict if it has ended."""
        self._view = await self._jobs.cancel(self.id, now=now)
        return self.view

    async def pause(self) -> JobView:
        """Asks the job to save a checkpoint and release its devices. Raises Conflict if it has ended."""
        self._view = await self._jobs.pause(self.id)
        return self.view

    async def price_of_stop(self, action: Literal["cancel", "pause"] = "cancel", *, now: bool = False) -> StopView:
        """Returns what a cancel or a pause would cost, as `client.jobs.price_of_stop` does. Nothing is done."""
        return await self._jobs.price_of_stop(self.id, action, now=now)

    async def resume(self, *, devices: int | None = None) -> JobView:
        """Lets a paused job continue from its newest checkpoint, as `client.jobs.resume` does."""
        self._view = await self._jobs.resume(self.id, devices=devices)
        return self.view
