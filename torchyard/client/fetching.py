"""Fetches a checkpoint or a version of a model: one of its files, or what its download sends."""

from pathlib import Path

from torchyard.client.calls import call as call_calls
from torchyard.client.connection import Connection
from torchyard.client.download import OnProgress, PartFile, file_to_download
from torchyard.client.folder import PartFolder
from torchyard.client.responses import file_name
from torchyard.contract.attempts.rundir import ARCHIVE_SUFFIX
from torchyard.contract.files.views import CheckpointView
from torchyard.contract.models.views import ModelVersionView


async def fetch(
    connection: Connection,
    path: str,
    listed: CheckpointView | ModelVersionView,
    *,
    of: str,
    file: str | None,
    to: str | Path,
    name: str,
    on_progress: OnProgress | None,
) -> Path:
    """Fetches the `file` of that path, or what the download of `listed` sends, from `path`. Returns what it wrote.

    That is `to`, or where `to` is a folder, the server's name in it, else `name`. A tar becomes a folder.
    `of`: what has the files, for messages. Raises as `Client.jobs.download` does.
    """
    is_folder, target = file is None and listed.folder is not None, Path(to)
    expected = file_to_download(listed, file, of=of)
    if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
        given = file_name(await connection.send(call_calls.head(path))) or (name if is_folder else f"{name}.pt")
        target /= given.removesuffix(ARCHIVE_SUFFIX) if is_folder else given
    if is_folder:
        with PartFolder(target, listed.files, sha256=listed.sha256, on_progress=on_progress) as folder:
            await connection.fill(folder, path)
            folder.finish()
        return target
    with PartFile(target, expected, on_progress) as part:
        await connection.fill(part, path)
        part.finish()
    return target
