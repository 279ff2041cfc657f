"""The blocking forms of `AsyncJob`, `AsyncCheckpoint` and `AsyncArtifact`: the same properties and methods."""

from collections.abc import Mapping

from torchyard.client.blocking import Driver, blocking, iterating
from torchyard.client.job import AsyncArtifact, AsyncCheckpoint, AsyncJob
from torchyard.contract.job import JobState
from torchyard.contract.views.checkpoints import ArtifactView, CheckpointView
from torchyard.contract.views.jobs import JobView


class Checkpoint(Driver[AsyncCheckpoint]):
    """A checkpoint of a job."""

    @property
    def view(self) -> CheckpointView:
        return self._core.view

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def step(self) -> int:
        return self._core.step

    @property
    def epoch(self) -> int | None:
        return self._core.epoch

    @property
    def metrics(self) -> Mapping[str, float]:
        """What was measured when it was saved."""
        return self._core.metrics

    download = blocking(AsyncCheckpoint.download)


class Artifact(Driver[AsyncArtifact]):
    """A file that a job left in its folder `artifacts`."""

    @property
    def view(self) -> ArtifactView:
        return self._core.view

    @property
    def path(self) -> str:
        """The path of the file below `artifacts`."""
        return self._core.path

    @property
    def size(self) -> int:
        """In bytes."""
        return self._core.size

    download = blocking(AsyncArtifact.download)


class Job(Driver[AsyncJob]):
    """One job of a server. `view` is what the server last said of it.

    Every method raises TorchyardError, as the client's do.
    """

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def view(self) -> JobView:
        return self._core.view

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def state(self) -> JobState:
        """As the server last said. `refresh` and `wait` ask again."""
        return self._core.state

    refresh = blocking(AsyncJob.refresh)
    wait = blocking(AsyncJob.wait)
    follow = iterating(AsyncJob.follow)
    logs = iterating(AsyncJob.logs)
    search_logs = iterating(AsyncJob.search_logs)
    metrics = blocking(AsyncJob.metrics)
    download = blocking(AsyncJob.download)
    cancel = blocking(AsyncJob.cancel)
    pause = blocking(AsyncJob.pause)
    resume = blocking(AsyncJob.resume)
    checkpoint = blocking(AsyncJob.checkpoint, Checkpoint)
    best_checkpoint = blocking(AsyncJob.best_checkpoint, Checkpoint)
    latest_checkpoint = blocking(AsyncJob.latest_checkpoint, Checkpoint)
    checkpoints = iterating(AsyncJob.checkpoints, Checkpoint)
    artifacts = iterating(AsyncJob.artifacts, Artifact)
