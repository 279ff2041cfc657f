"""The blocking forms of `AsyncJob`, `AsyncCheckpoint` and `AsyncArtifact`: the same properties and methods."""

from torchyard.client.blocking import Driver, blocking, iterating
from torchyard.client.core.job import AsyncArtifact, AsyncCheckpoint, AsyncJob
from torchyard.client.core.shapes import ArtifactShape, CheckpointShape, JobShape
from torchyard.contract.files.views import ArtifactView, CheckpointView
from torchyard.contract.jobs.views import JobView


class Checkpoint(Driver[AsyncCheckpoint], CheckpointShape):
    @property
    def view(self) -> CheckpointView:
        return self._core.view

    download = blocking(AsyncCheckpoint.download)


class Artifact(Driver[AsyncArtifact], ArtifactShape):
    @property
    def view(self) -> ArtifactView:
        return self._core.view

    download = blocking(AsyncArtifact.download)


class Job(Driver[AsyncJob], JobShape):
    @property
    def view(self) -> JobView:
        return self._core.view

    refresh = blocking(AsyncJob.refresh)
    wait = blocking(AsyncJob.wait)
    follow = iterating(AsyncJob.follow)
    logs = iterating(AsyncJob.logs)
    search_logs = iterating(AsyncJob.search_logs)
    metrics = blocking(AsyncJob.metrics)
    media = iterating(AsyncJob.media)
    download_picture = blocking(AsyncJob.download_picture)
    download = blocking(AsyncJob.download)
    cancel = blocking(AsyncJob.cancel)
    pause = blocking(AsyncJob.pause)
    price_of_stop = blocking(AsyncJob.price_of_stop)
    resume = blocking(AsyncJob.resume)
    _retried = blocking(AsyncJob.retry)
    checkpoint = blocking(AsyncJob.checkpoint, Checkpoint)
    best_checkpoint = blocking(AsyncJob.best_checkpoint, Checkpoint)
    latest_checkpoint = blocking(AsyncJob.latest_checkpoint, Checkpoint)
    checkpoints = iterating(AsyncJob.checkpoints, Checkpoint)
    artifacts = iterating(AsyncJob.artifacts, Artifact)
    kept_files = iterating(AsyncJob.kept_files, Artifact)
    keep = blocking(AsyncJob.keep)

    def retry(
        self,
        *,
        from_: str | None = None,
        devices: int | None = None,
        fresh: bool = False,
        idempotency_key: str | None = None,
    ) -> "Job":
        """Submits a new job that continues from a checkpoint of this one, as `client.jobs.retry` does. Returns it."""
        return Job(self._retried(from_=from_, devices=devices, fresh=fresh, idempotency_key=idempotency_key))
