"""A job and its files as objects: what a program that runs many jobs holds of each."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.client.series import Metrics, Series
from torchyard.client.stream import Update
from torchyard.contract.job import JobState
from torchyard.contract.views.checkpoints import ArtifactView, CheckpointView
from torchyard.contract.views.jobs import JobView
from torchyard.contract.views.telemetry import LogLine, LogMatch

if TYPE_CHECKING:
    from torchyard.client.core import ClientCore


@dataclass(frozen=True)
class AsyncCheckpoint:
    """A checkpoint of a job."""

    view: CheckpointView
    _client: "ClientCore"
    _job_id: str

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def step(self) -> int:
        return self.view.step

    @property
    def epoch(self) -> int | None:
        return self.view.epoch

    @property
    def metrics(self) -> Mapping[str, float]:
        """What was measured when it was saved."""
        return self.view.metrics

    async def download(self, to: str | Path = ".", *, file: str | None = None) -> Path:
        """Fetches its `state.pt`, or its `file`, and returns the path, as `Client.download` does."""
        return await self._client.download(self._job_id, self.id, file=file, to=to)


@dataclass(frozen=True)
class AsyncArtifact:
    """A file that a job left in its folder `artifacts`."""

    view: ArtifactView
    _client: "ClientCore"
    _job_id: str

    @property
    def path(self) -> str:
        """The path of the file below `artifacts`."""
        return self.view.path

    @property
    def size(self) -> int:
        """In bytes."""
        return self.view.size

    async def download(self, to: str | Path = ".") -> Path:
        """Fetches it, and returns the path, as `Client.download_artifact` does."""
        return await self._client.download_artifact(self._job_id, self.path, to=to)


class AsyncJob:
    """One job of a server. `view` is what the server last said of it.

    Every method raises TorchyardError, as the client's do.
    """

    def __init__(self, client: "ClientCore", view: JobView) -> None:
        self.view = view
        self._client = client

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.name}, {self.state})"

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def state(self) -> JobState:
        """As the server last said. `refresh` and `wait` ask again."""
        return self.view.state

    async def refresh(self) -> JobView:
        """Asks the server for the job, and returns it."""
        self.view = (await self._client.get(self.id)).view
        return self.view

    async def wait(self, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Job
        """Waits until the job has ended, however it ends, and returns it. `timeout` is in seconds.

        Raises TimeoutError.
        """
        self.view = await self._client.wait(self.id, timeout=timeout)
        return self.view

    async def follow(self, *, logs: bool = True, metrics: bool = True) -> AsyncGenerator[Update]:
        """Yields the job's events, metric points and lines of output, each once, until it has ended."""
        async with aclosing(self._client.follow(self.id, logs=logs, metrics=metrics)) as updates:
            async for update in updates:
                if isinstance(update, JobView):
                    self.view = update
                yield update

    def logs(self, *, tail: int | None = None, rank: int | None = None) -> AsyncGenerator[LogLine]:
        """Yields lines of output, oldest first: all, or the last `tail`."""
        return self._client.logs(self.id, tail=tail, rank=rank)

    def search_logs(
        self, pattern: str, *, regex: bool = False, case: bool = False, rank: int | None = None
    ) -> AsyncGenerator[LogMatch]:
        """Yields the lines that contain `pattern`, oldest first, as `Client.search_logs` does."""
        return self._client.search_logs(self.id, pattern, regex=regex, case=case, rank=rank)

    async def metrics(self, *keys: str, max_points: int | None = None) -> Metrics:
        """Returns the series with these keys, or all, each of at most `max_points`, or of the server's default."""
        found = await self._client.metrics(self.id, keys=keys, max_points=max_points)
        return Metrics([Series.of(view) for view in found.data])

    async def checkpoints(self) -> AsyncGenerator[AsyncCheckpoint]:
        """Yields the checkpoints, newest first."""
        async with aclosing(self._client.checkpoints(self.id)) as views:
            async for view in views:
                yield AsyncCheckpoint(view, self._client, self.id)

    async def checkpoint(self, ref: str | None = None) -> AsyncCheckpoint:
        """Returns one checkpoint: an id, `best`, `latest`, `epoch-N` or `step-N`; the best, else the latest, if none is
        named. Raises NotFound.
        """
        return AsyncCheckpoint(await self._client.checkpoint(self.id, ref), self._client, self.id)

    async def download(self, to: str | Path = ".", *, ref: str | None = None, file: str | None = None) -> Path:
        """Fetches a checkpoint's `state.pt`, or its `file`, and returns the path, as `Client.download` does."""
        return await self._client.download(self.id, ref, file=file, to=to)

    async def artifacts(self, path: str | None = None) -> AsyncGenerator[AsyncArtifact]:
        """Yields the files that the job left; with `path`, that file or those in that folder."""
        async with aclosing(self._client.artifacts(self.id, path=path)) as views:
            async for view in views:
                yield AsyncArtifact(view, self._client, self.id)

    async def best_checkpoint(self) -> AsyncCheckpoint:
        """Returns the best checkpoint, by `checkpoint.monitor` of the spec. Raises NotFound."""
        return await self.checkpoint("best")

    async def latest_checkpoint(self) -> AsyncCheckpoint:
        """Returns the newest checkpoint. Raises NotFound."""
        return await self.checkpoint("latest")

    async def cancel(self, *, now: bool = False) -> JobView:
        """Asks the job to stop, as `Client.cancel` does. Raises Conflict if it has ended."""
        self.view = await self._client.cancel(self.id, now=now)
        return self.view

    async def pause(self) -> JobView:
        """Asks the job to save a checkpoint and release its devices. Raises Conflict if it has ended."""
        self.view = await self._client.pause(self.id)
        return self.view

    async def resume(self) -> JobView:
        """Lets a paused job continue from its newest checkpoint. Raises Conflict if it has ended."""
        self.view = await self._client.resume(self.id)
        return self.view
