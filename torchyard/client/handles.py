"""`Job`, `Checkpoint` and `Artifact`: the blocking forms of `AsyncJob`, `AsyncCheckpoint` and `AsyncArtifact`."""

from torchyard.client.blocking import Driver, blocking, iterating
from torchyard.client.core.job import AsyncArtifact, AsyncCheckpoint, AsyncJob
from torchyard.client.core.shapes import ArtifactShape, CheckpointShape, JobShape
from torchyard.contract.files.views import ArtifactView, CheckpointView
from torchyard.contract.jobs.views import JobView


class Checkpoint(Driver[AsyncCheckpoint], CheckpointShape):
    """A checkpoint of a job: its id, step, epoch and metrics, and a method to download it."""

    @property
    def view(self) -> CheckpointView:
        return self._core.view

    download = blocking(AsyncCheckpoint.download)


class Artifact(Driver[AsyncArtifact], ArtifactShape):
    """A file of a job: its path and size, and a method to download it."""

    @property
    def view(self) -> ArtifactView:
        return self._core.view

    download = blocking(AsyncArtifact.download)


class Job(Driver[AsyncJob], JobShape):
    """A job of a service. `view` has all its fields as of the last answer.

    Example:
        >>> job = client.get("digits")
        >>> job.name, job.state.value, job.view.attempt
        ('digits', 'succeeded', 1)
    """

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
        """Submits a new job that resumes from a checkpoint of this one, as `client.jobs.retry` does.

        Args:
            from_: The checkpoint; None: the newest.
            devices: Devices on each node; None: as before.
            fresh: Start with the code only.
            idempotency_key: A name for this request, as in `submit`.

        Returns:
            The new job.

        Example:
            >>> job.retry().view.retry_of == job.id
            True
        """
        return Job(self._retried(from_=from_, devices=devices, fresh=fresh, idempotency_key=idempotency_key))
