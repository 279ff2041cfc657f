"""Operations on checkpoints, artifacts, stored files and pictures."""

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
import re
import time

from torchyard.client.calls import files as calls
from torchyard.client.core.base import Core
from torchyard.client.download import OnProgress, PartFile
from torchyard.client.fetching import fetch
from torchyard.client.references import find_checkpoint
from torchyard.contract.errors import Conflict, NotFound, ServerError
from torchyard.contract.files.paths import is_artifact_path
from torchyard.contract.files.views import ArtifactView, CheckpointFile, CheckpointView, KeepView
from torchyard.contract.media.kinds import MediaPart
from torchyard.contract.media.views import MediaView

_KEEP_POLL_S = 0.5
_ID = re.compile(r"med_[0-9a-f]{32}")


class FilesCore(Core):
    """Operations on the files of a job. A `job_id` is the full id of a job."""

    def checkpoints(self, job_id: str) -> AsyncGenerator[CheckpointView]:
        """Yields the checkpoints of a job, newest first.

        Example:
            >>> [found.aliases for found in client.jobs.checkpoints(job.id)]
            [['best', 'latest', 'epoch-1', 'step-2']]
        """
        return self._connection.pages(calls.checkpoints(job_id))

    async def checkpoint(self, job_id: str, ref: str | None = None) -> CheckpointView:
        """Returns a checkpoint.

        Args:
            job_id: The job's id.
            ref: `best`, `latest`, `epoch-N`, `step-N`, an id or its beginning; None: the best one, else the newest.

        Raises:
            NotFound: There is no such checkpoint.
            Conflict: Several checkpoints have ids with this beginning.

        Example:
            >>> client.jobs.checkpoint(job.id, "latest").size
            5
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
        """Downloads a checkpoint: its `state.pt`, its `folder`, or one file of it.

        The file is written whole and with the right sha256, or not at all. After a failure the received bytes stay in a
        `.part` file, and the next download continues from them.

        Args:
            job_id: The job's id.
            ref: The checkpoint, as in `checkpoint`.
            file: The path of one file of the checkpoint.
            to: A path, or a folder to put the file into under the service's name.
            on_progress: Called with the bytes so far and in all.

        Returns:
            The path of the file or folder.

        Raises:
            NotFound: There is no such checkpoint or file.
            Conflict: Another process downloads the same file, or the folder exists.
            ServerError: The bytes are not those that the service lists.
            OSError: The file cannot be written.

        Example:
            >>> client.jobs.download(job.id, "best", to="state.pt").read_bytes()
            b'state'
        """
        checkpoint = await self.checkpoint(job_id, ref)
        path, of = calls.file_path(job_id, checkpoint.id, file), f"checkpoint {checkpoint.id}"
        return await fetch(
            self._connection, path, checkpoint, of=of, file=file, to=to, name=checkpoint.id, on_progress=on_progress
        )

    def artifacts(self, job_id: str, *, path: str | None = None) -> AsyncGenerator[ArtifactView]:
        """Yields the files that a job wrote to its folder `artifacts`. They are stored at the end of each attempt.

        Args:
            job_id: The job's id.
            path: Only this file, or the files in this folder.

        Example:
            >>> [file.path for file in client.jobs.artifacts(job.id)]
            []
        """
        return self._connection.pages(calls.artifacts(job_id, path=path))

    def kept_files(self, job_id: str, *, path: str | None = None) -> AsyncGenerator[ArtifactView]:
        """Yields the stored files of a job's working folder.

        They are stored at the end of each attempt. Files that the spec's `keep` names are also stored while the job
        runs.

        Args:
            job_id: The job's id.
            path: Only this file, or the files in this folder.

        Example:
            >>> [file.path for file in client.jobs.kept_files(job.id)]
            []
        """
        return self._connection.pages(calls.kept_files(job_id, path=path))

    async def keep(
        self,
        job_id: str,
        paths: Sequence[str],
        *,
        timeout: float = 60.0,  # noqa: ASYNC109 - as in Client
        on_progress: Callable[[KeepView], object] | None = None,
    ) -> KeepView:
        """Asks the worker to store files and folders of the job's working folder, and waits.

        Args:
            job_id: The job's id.
            paths: At most 32 paths or patterns in the working folder.
            timeout: Seconds without progress to wait.
            on_progress: Called with each answer.

        Returns:
            The result. `refused` has what was not stored.

        Raises:
            Conflict: The job has no working folder, or its worker is away.
            TimeoutError: The worker copied nothing for `timeout` seconds.
            Forbidden: The job is another user's.
        """
        found = await self._connection.answer(calls.ask_to_keep(job_id, paths))
        deadline = time.monotonic() + timeout
        while found.answered_at is None:
            if found.away:
                raise Conflict(
                    f"{found.worker}, which has the job's working folder, is offline: it continues when it is back"
                )
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{found.worker} made no progress for {timeout:g} s; it may still continue")
            await self._connection.sleep(_KEEP_POLL_S)
            before, found = found, await self._connection.answer(calls.keep(job_id))
            if on_progress is not None:
                on_progress(found)
            if found.copied != before.copied:
                deadline = time.monotonic() + timeout
        return found

    async def download_artifact(
        self,
        job_id: str,
        path: str,
        *,
        kept: bool = False,
        to: str | Path = ".",
        on_progress: OnProgress | None = None,
    ) -> Path:
        """Downloads an artifact, or a stored file of the working folder, as `download` does.

        Args:
            job_id: The job's id.
            path: The path of the file, as listed.
            kept: Download a stored file of the working folder.
            to: A path, or a folder.
            on_progress: Called with the bytes so far and in all.

        Returns:
            The path of the file.

        Raises:
            NotFound: The job has no such file.
        """
        listed = self.kept_files(job_id, path=path) if kept else self.artifacts(job_id, path=path)
        found = [item async for item in listed if item.path == path]
        if not found:
            raise NotFound(f"job {job_id} has no {'kept file' if kept else 'artifact'} {path!r}")
        target, name = Path(to), path.rpartition("/")[2]
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            if not is_artifact_path(path):
                raise ServerError(f"the server lists the artifact {path!r}, which is not a safe name for a file")
            target /= name
        expected = CheckpointFile(path=path, size=found[0].size, sha256=found[0].sha256)
        with PartFile(target, expected, on_progress) as part:
            await self._connection.fill(part, calls.artifact_path(job_id, path, kept=kept))
            part.finish()
        return target

    def media(self, job_id: str, *, keys: Sequence[str] = ()) -> AsyncGenerator[MediaView]:
        """Yields the media of a job by key, step and number.

        Args:
            job_id: The job's id.
            keys: The keys; none: all.

        Example:
            >>> [item.key for item in client.jobs.media(job.id)]
            []
        """
        return self._connection.pages(calls.media(job_id, keys=keys))

    async def download_picture(
        self, job_id: str, item: MediaView, part: MediaPart = "image", *, to: str | Path = "."
    ) -> Path:
        """Downloads a picture of a media item, as `download` does.

        Args:
            job_id: The job's id.
            item: An item that `media` yields.
            part: `image`, `truth` or `predicted`.
            to: A path, or a folder.

        Returns:
            The path of the file.

        Raises:
            NotFound: The item has no such part.
        """
        picture = item.parts.get(part)
        if picture is None:
            raise NotFound(f"{item.kind} {item.id} has no {part}")
        target, suffix = Path(to), picture.media_type.rpartition("/")[2]
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            if not _ID.fullmatch(item.id):
                raise ServerError(f"the server lists {item.id!r}, which is not an id")
            target /= f"{item.id}-{part}.{suffix}"
        expected = CheckpointFile(path=part, size=picture.size, sha256=picture.sha256)
        with PartFile(target, expected, None) as part_file:
            await self._connection.fill(part_file, calls.picture_path(job_id, item.id, part))
            part_file.finish()
        return target
