"""The operations on checkpoints and artifacts."""

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
    """Operations on the files that a job left."""

    def checkpoints(self, job_id: str) -> AsyncGenerator[CheckpointView]:
        """Yields the job's checkpoints, newest first."""
        return self._connection.pages(calls.checkpoints(job_id))

    async def checkpoint(self, job_id: str, ref: str | None = None) -> CheckpointView:
        """Returns one checkpoint. `ref` is an id or its beginning, `best`, `latest`, `epoch-N` or `step-N`; without it,
        the best, else the latest. Raises NotFound, and Conflict if `ref` is the short id of several.
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
        """Fetches a checkpoint's `state.pt` (of one with a `folder` the folder with all files), or its `file` of that
        path, and returns the path that it wrote: `to`, or if that is a folder, the server's name in it. `ref`: as
        `checkpoint`.

        It is written whole, with the listed sha256 of each file, or not at all. After a failure the bytes that arrived
        stay in a `.part` file or folder, and the next download continues from them. Raises NotFound, OSError, Conflict
        if another process downloads the same, or if the folder is there already, and ServerError if the bytes are not
        those that the server lists.
        """
        checkpoint = await self.checkpoint(job_id, ref)
        path, of = calls.file_path(job_id, checkpoint.id, file), f"checkpoint {checkpoint.id}"
        return await fetch(
            self._connection, path, checkpoint, of=of, file=file, to=to, name=checkpoint.id, on_progress=on_progress
        )

    def artifacts(self, job_id: str, *, path: str | None = None) -> AsyncGenerator[ArtifactView]:
        """Yields the files that the job left in its folder `artifacts`; with `path`, that file or those in that folder.

        They are stored at the end of each attempt.
        """
        return self._connection.pages(calls.artifacts(job_id, path=path))

    def kept_files(self, job_id: str, *, path: str | None = None) -> AsyncGenerator[ArtifactView]:
        """Yields the files of the job's working folder that are kept; with `path`, that file or those in that folder.

        They are stored at the end of each attempt, and those that the spec's `keep` names while it runs.
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
        """Has files and folders of the job's working folder stored by the worker on whose host that is, and waits.

        `paths` are relative to the folder, and may be patterns. `refused` of what it returns says what was not stored.
        Raises Conflict if the job has no such folder or the worker is away, TimeoutError if the worker has copied
        nothing more for `timeout` seconds, and Forbidden if the job belongs to another user.
        """
        found = await self._connection.answer(calls.ask_to_keep(job_id, paths))
        deadline = time.monotonic() + timeout
        while found.answered_at is None:
            if found.away:
                raise Conflict(f"{found.worker}, which has the folder of this job, is away: it goes on once it is back")
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{found.worker} has copied nothing more for {timeout:g} s: it may still do so")
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
        """Fetches the artifact with this path, and returns the path that it wrote: `to`, or if that is a folder, the
        artifact's own name in it. `kept`: a file that `kept_files` yields instead.

        The file is written whole or continued as by `download`, and raises what that does.
        """
        listed = self.kept_files(job_id, path=path) if kept else self.artifacts(job_id, path=path)
        found = [item async for item in listed if item.path == path]
        if not found:
            raise NotFound(f"job {job_id} has no {'kept file' if kept else 'artifact'} {path!r}")
        target, name = Path(to), path.rpartition("/")[2]
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            if not is_artifact_path(path):
                raise ServerError(f"the server lists the artifact {path!r}, which is no safe name for a file")
            target /= name
        expected = CheckpointFile(path=path, size=found[0].size, sha256=found[0].sha256)
        with PartFile(target, expected, on_progress) as part:
            await self._connection.fill(part, calls.artifact_path(job_id, path, kept=kept))
            part.finish()
        return target

    def media(self, job_id: str, *, keys: Sequence[str] = ()) -> AsyncGenerator[MediaView]:
        """Yields what the job shows at its steps, of these keys or of all, by key, step and number."""
        return self._connection.pages(calls.media(job_id, keys=keys))

    async def download_picture(
        self, job_id: str, item: MediaView, part: MediaPart = "image", *, to: str | Path = "."
    ) -> Path:
        """Fetches a picture of what `media` yields, and returns the path that it wrote: `to`, or a file in that folder.

        The file is written whole or continued as by `download`, and raises what that does.
        """
        picture = item.parts.get(part)
        if picture is None:
            raise NotFound(f"{item.kind} {item.id} has no {part}")
        target, suffix = Path(to), picture.media_type.rpartition("/")[2]
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            if not _ID.fullmatch(item.id):
                raise ServerError(f"the server lists {item.id!r}, which is no id")
            target /= f"{item.id}-{part}.{suffix}"
        expected = CheckpointFile(path=part, size=picture.size, sha256=picture.sha256)
        with PartFile(target, expected, None) as part_file:
            await self._connection.fill(part_file, calls.picture_path(job_id, item.id, part))
            part_file.finish()
        return target
