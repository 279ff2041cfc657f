"""Checks the disks of the data directory and of the blobs: their free space, and that files can be stored."""

from collections.abc import Iterator
import fcntl
import os
from pathlib import Path
import shutil
import tempfile

from torchyard.host import terminal
from torchyard.host.disk import NETWORKED, file_system
from torchyard.host.recordfiles import sync_folder
from worker.doctor.findings import Finding, failed, ok, warning

_LOW_BYTES, _LOW_SHARE = 10 << 30, 0.05
_TOO_LOW_BYTES = 256 << 20


def check_disks(data_dir: Path, blobs: Path, *, shared: bool) -> Iterator[Finding]:
    """`shared`: the data directory is one that the nodes of a cluster see too."""
    yield _check_disk("data", data_dir, local=not shared)
    if nearest(blobs).stat().st_dev != nearest(data_dir).stat().st_dev:
        yield _check_disk("blobs", blobs, local=False)


def used(data_dir: Path) -> int:
    """Returns the bytes of the data directory's disk that are in use."""
    return shutil.disk_usage(nearest(data_dir)).used


def _check_disk(check: str, wanted: Path, *, local: bool) -> Finding:
    folder = nearest(wanted)
    name = str(wanted) if folder == wanted else f"{wanted} (does not exist yet)"
    if (error := _write_error(folder)) is not None:
        advice = f"make {folder} writable for this user, on a disk with free space"
        return failed(check, f"{name}: no file can be stored: {error}", advice)
    status = os.statvfs(folder)
    free, total = status.f_frsize * status.f_bavail, status.f_frsize * status.f_blocks
    fact = f"{name}: {terminal.size(free)} free of {terminal.size(total)}, on {file_system(folder)}"
    if free < _TOO_LOW_BYTES:
        return failed(check, f"{fact}: no checkpoint can be stored", _FREE_SPACE_ADVICE)
    if free < _LOW_BYTES or free < _LOW_SHARE * total:
        return warning(check, f"{fact}: soon full", _FREE_SPACE_ADVICE)
    if status.f_files and status.f_favail < _LOW_SHARE * status.f_files:
        return warning(check, f"{fact}, but only {status.f_favail} inodes of {status.f_files}", _FREE_SPACE_ADVICE)
    if local and file_system(folder) in NETWORKED:
        return warning(check, f"{fact}, a network file system", "give each host a data directory on a disk of its own")
    return ok(check, fact)


_FREE_SPACE_ADVICE = (
    "remove jobs that are no longer needed (torchyard rm), set checkpoint.keep_last in specs, or use a larger disk"
)


def nearest(path: Path) -> Path:
    """Returns the folder itself, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _write_error(parent: Path) -> str | None:
    """Writes, locks, syncs and renames a file here. Returns the error, or None."""
    try:
        with tempfile.TemporaryDirectory(prefix=".torchyard-doctor-", dir=parent) as folder:
            path = Path(folder, "new")
            with path.open("wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(b"x" * 65_536)
                file.flush()
                os.fsync(file.fileno())
            path.rename(path.with_name("renamed"))
            sync_folder(Path(folder))
    except OSError as error:
        return error.strerror or str(error)
    return None
