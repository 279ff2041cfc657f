"""A job, a checkpoint and an artifact as objects."""

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
    """Operations on jobs and their files. A `job_id` is the full id of a job."""

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
        """Submits the spec of a finished job as a new job. It resumes from a checkpoint of the old one.

        Args:
            job_id: The id of the old job.
            from_: The checkpoint: `best`, `latest`, `epoch-N`, `step-N` or an id; None: the newest.
            devices: Devices on each node; None: as before.
            fresh: Start with the code only, without the old job's working folder and checkpoints.
            dev: Run no program and wait for you to work in the job: its `time_limit` and `idle_timeout`, and perhaps
                its `name`.
            idempotency_key: A name for this request, as in `submit`.

        Raises:
            Conflict: The job has not ended, or `dev` is given and it is not a script.
            NotFound: The job does not have this checkpoint.

        Example:
            >>> client.jobs.retry(job.id, from_="best").view.retry_of == job.id
            True
        """
        call = calls.retry(job_id, ref=from_, key=idempotency_key, devices=devices, fresh=fresh, dev=dev)
        return AsyncJob(self._connection, await self._connection.answer(call))


@dataclass(frozen=True)
class AsyncCheckpoint(CheckpointShape):
    """A checkpoint of a job: its id, step, epoch and metrics, and a method to download it."""

    _view: CheckpointView
    _jobs: JobCore
    _job_id: str

    @property
    def view(self) -> CheckpointView:
        return self._view

    async def download(self, to: str | Path = ".", *, file: str | None = None) -> Path:
        """Downloads the checkpoint's `state.pt`, or one `file` of it, as `client.jobs.download` does.

        Args:
            to: A path, or a folder.
            file: The path of one file of the checkpoint.

        Returns:
            The path of the file or folder.

        Example:
            >>> job.best_checkpoint().download("best.pt")
            PosixPath('best.pt')
        """
        return await self._jobs.download(self._job_id, self.id, file=file, to=to)


@dataclass(frozen=True)
class AsyncArtifact(ArtifactShape):
    """A file of a job: its path and size, and a method to download it."""

    _view: ArtifactView
    _jobs: JobCore
    _job_id: str
    _kept: bool = False

    @property
    def view(self) -> ArtifactView:
        return self._view

    async def download(self, to: str | Path = ".") -> Path:
        """Downloads the file, as `client.jobs.download_artifact` does.

        Args:
            to: A path, or a folder.

        Returns:
            The path of the file.
        """
        return await self._jobs.download_artifact(self._job_id, self.path, kept=self._kept, to=to)


class AsyncJob(JobShape):
    """A job of a service. `view` has all its fields as of the last answer."""

    def __init__(self, connection: Connection, view: JobView) -> None:
        self._view = view
        self._connection = connection
        self._jobs = JobCore(connection)

    @property
    def view(self) -> JobView:
        return self._view

    async def refresh(self) -> JobView:
        """Reads the job again, and returns its fields.

        Example:
            >>> job.refresh().attempt
            1
        """
        self._view = await wait_for_change(self._connection, self.view, timeout=0)
        return self.view

    async def wait(self, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Job
        """Waits until the job has ended.

        Args:
            timeout: Seconds to wait; None: no limit.

        Returns:
            The fields of the job. `state` is `succeeded`, `failed` or `cancelled`.

        Raises:
            TimeoutError: The job has not ended in time.

        Example:
            >>> job.wait(timeout=60).state.value
            'succeeded'
        """
        self._view = await wait_for_end(self._connection, self.id, timeout=timeout)
        return self.view

    async def follow(self, *, logs: bool = True, metrics: bool = True) -> AsyncGenerator[Update]:
        """Yields the events, metric points and lines of output, each once, until the job has ended.

        Args:
            logs: Include lines of output.
            metrics: Include metric points.

        Yields:
            A `JobView` first and last, and between them `EventView`, `MetricView` and `LogLine`.

        Example:
            >>> [update.text for update in job.follow(metrics=False) if isinstance(update, LogLine)]
            ['epoch 1 of 1']
        """
        async with aclosing(self._jobs.follow(self.id, logs=logs, metrics=metrics)) as updates:
            async for update in updates:
                if isinstance(update, JobView):
                    self._view = update
                yield update

    def logs(self, *, tail: int | None = None, rank: int | None = None) -> AsyncGenerator[LogLine]:
        """Yields lines of output, oldest first.

        Args:
            tail: Only this many last lines.
            rank: Only lines of this rank.

        Example:
            >>> [line.text for line in job.logs(tail=1)]
            ['epoch 1 of 1']
        """
        return self._jobs.logs(self.id, tail=tail, rank=rank)

    def search_logs(
        self, pattern: str, *, regex: bool = False, case: bool = False, rank: int | None = None
    ) -> AsyncGenerator[LogMatch]:
        """Yields the lines that contain a text, oldest first.

        Args:
            pattern: The text, or a regular expression (RE2 syntax).
            regex: Whether `pattern` is a regular expression.
            case: Match case.
            rank: Only lines of this rank.

        Raises:
            InvalidRequest: The expression is not valid.

        Example:
            >>> [match.spans for match in job.search_logs("EPOCH")]
            [[(0, 5)]]
        """
        return self._jobs.search_logs(self.id, pattern, regex=regex, case=case, rank=rank)

    async def metrics(self, *keys: str, max_points: int | None = None) -> Metrics:
        """Returns metrics of the job by key.

        Args:
            *keys: The keys, such as `train/loss`; none: all metrics.
            max_points: Maximum points of each metric; None: 1500. A longer metric keeps the minimum and maximum of each
                bucket.

        Example:
            >>> loss = job.metrics("train/loss")["train/loss"]
            >>> loss.steps, loss.values
            ([1, 2], [2.5, 1.25])
        """
        found = await self._jobs.metrics(self.id, keys=keys, max_points=max_points)
        return Metrics([Series.of(view) for view in found.data])

    async def checkpoints(self) -> AsyncGenerator[AsyncCheckpoint]:
        """Yields the checkpoints, newest first.

        Example:
            >>> [(found.epoch, found.step, found.metrics) for found in job.checkpoints()]
            [(1, 2, {'val/loss': 0.5})]
        """
        async with aclosing(self._jobs.checkpoints(self.id)) as views:
            async for view in views:
                yield AsyncCheckpoint(view, self._jobs, self.id)

    async def checkpoint(self, ref: str | None = None) -> AsyncCheckpoint:
        """Returns a checkpoint.

        Args:
            ref: `best`, `latest`, `epoch-N`, `step-N` or an id; None: the best one, else the newest.

        Raises:
            NotFound: There is no such checkpoint.

        Example:
            >>> job.checkpoint("epoch-1").step
            2
        """
        return AsyncCheckpoint(await self._jobs.checkpoint(self.id, ref), self._jobs, self.id)

    async def download(self, to: str | Path = ".", *, ref: str | None = None, file: str | None = None) -> Path:
        """Downloads a checkpoint's `state.pt`, or one `file` of it, as `client.jobs.download` does.

        Args:
            to: A path, or a folder.
            ref: The checkpoint, as in `checkpoint`.
            file: The path of one file of the checkpoint.

        Returns:
            The path of the file or folder.

        Example:
            >>> job.download("latest.pt", ref="latest")
            PosixPath('latest.pt')
        """
        return await self._jobs.download(self.id, ref, file=file, to=to)

    async def artifacts(self, path: str | None = None) -> AsyncGenerator[AsyncArtifact]:
        """Yields the files that the job wrote to its folder `artifacts`.

        Args:
            path: Only this file, or the files in this folder.

        Example:
            >>> [file.path for file in job.artifacts()]
            []
        """
        async with aclosing(self._jobs.artifacts(self.id, path=path)) as views:
            async for view in views:
                yield AsyncArtifact(view, self._jobs, self.id)

    async def kept_files(self, path: str | None = None) -> AsyncGenerator[AsyncArtifact]:
        """Yields the stored files of the working folder: all, or with `path` this file or the files in this folder."""
        async with aclosing(self._jobs.kept_files(self.id, path=path)) as views:
            async for view in views:
                yield AsyncArtifact(view, self._jobs, self.id, _kept=True)

    async def keep(self, *paths: str) -> KeepView:
        """Stores files of the working folder, and waits, as `client.jobs.keep` does.

        Args:
            *paths: Paths or patterns of files and folders.
        """
        return await self._jobs.keep(self.id, paths)

    def media(self, *keys: str) -> AsyncGenerator[MediaView]:
        """Yields the media of the job by key, step and number.

        Args:
            *keys: The keys; none: all.
        """
        return self._jobs.media(self.id, keys=keys)

    async def download_picture(self, item: MediaView, part: MediaPart = "image", *, to: str | Path = ".") -> Path:
        """Downloads a picture, as `client.jobs.download_picture` does.

        Args:
            item: An item that `media` yields.
            part: `image`, `truth` or `predicted`.
            to: A path, or a folder.

        Returns:
            The path of the file.
        """
        return await self._jobs.download_picture(self.id, item, part, to=to)

    async def best_checkpoint(self) -> AsyncCheckpoint:
        """Returns the checkpoint with the best monitored metric.

        Raises:
            NotFound: There is no checkpoint with this metric.
        """
        return await self.checkpoint("best")

    async def latest_checkpoint(self) -> AsyncCheckpoint:
        """Returns the newest checkpoint.

        Raises:
            NotFound: There is no checkpoint.
        """
        return await self.checkpoint("latest")

    async def retry(
        self,
        *,
        from_: str | None = None,
        devices: int | None = None,
        fresh: bool = False,
        idempotency_key: str | None = None,
    ) -> "AsyncJob":
        """Submits a new job that resumes from a checkpoint of this one, as `client.jobs.retry` does.

        Args:
            from_: The checkpoint; None: the newest.
            devices: Devices on each node; None: as before.
            fresh: Start with the code only.
            idempotency_key: A name for this request, as in `submit`.

        Returns:
            The new job.
        """
        return await self._jobs.retry(
            self.id, from_=from_, devices=devices, fresh=fresh, idempotency_key=idempotency_key
        )

    async def cancel(self, *, now: bool = False) -> JobView:
        """Asks the job to save a checkpoint and stop.

        Args:
            now: Kill it at once, without a checkpoint.

        Raises:
            Conflict: The job has ended.
        """
        self._view = await self._jobs.cancel(self.id, now=now)
        return self.view

    async def pause(self) -> JobView:
        """Asks the job to save a checkpoint and release its devices.

        Raises:
            Conflict: The job has ended.
        """
        self._view = await self._jobs.pause(self.id)
        return self.view

    async def price_of_stop(self, action: Literal["cancel", "pause"] = "cancel", *, now: bool = False) -> StopView:
        """Returns the work that a cancel or pause would lose without another checkpoint. Changes nothing.

        Args:
            action: `cancel` or `pause`.
            now: Ask for a cancel without a checkpoint.
        """
        return await self._jobs.price_of_stop(self.id, action, now=now)

    async def resume(self, *, devices: int | None = None) -> JobView:
        """Queues a paused job again. It resumes from its newest checkpoint.

        Args:
            devices: Devices on each node; None: as before.

        Raises:
            Conflict: The job has ended, or `devices` is given and it is not paused.
        """
        self._view = await self._jobs.resume(self.id, devices=devices)
        return self.view
