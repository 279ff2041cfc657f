"""The disks of the data directory and of the blobs: room, and whether they keep what they are given."""

from collections.abc import Iterator
import fcntl
import os
from pathlib import Path
import tempfile

from torchyard.contract import terminal
from torchyard.contract.recordfiles import sync_folder
from worker.doctor.findings import Finding, failed, ok, warning

_LITTLE, _LITTLE_SHARE = 10 << 30, 0.05
_TOO_LITTLE = 256 << 20
_NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "glusterfs", "fuse.glusterfs"}


def look(data_dir: Path, blobs: Path) -> Iterator[Finding]:
    yield _disk("data", data_dir, local=True)
    if _nearest(blobs).stat().st_dev != _nearest(data_dir).stat().st_dev:
        yield _disk("blobs", blobs, local=False)


def _disk(check: str, wanted: Path, *, local: bool) -> Finding:
    place = _nearest(wanted)
    name = str(wanted) if place == wanted else f"{wanted} (not made yet)"
    if (error := _tried(place)) is not None:
        return failed(
            check, f"{name}: cannot keep a file: {error}", f"make {place} writable for this user, on a disk with room"
        )
    found = os.statvfs(place)
    free, total = found.f_frsize * found.f_bavail, found.f_frsize * found.f_blocks
    fact = f"{name}: {terminal.size(free)} free of {terminal.size(total)}, on {_kind(place)}"
    if free < _TOO_LITTLE:
        return failed(check, f"{fact}: no checkpoint can be stored", _MAKE_ROOM)
    if free < _LITTLE or free < _LITTLE_SHARE * total:
        return warning(check, f"{fact}: soon full", _MAKE_ROOM)
    if found.f_files and found.f_favail < _LITTLE_SHARE * found.f_files:
        return warning(check, f"{fact}, but only {found.f_favail} inodes of {found.f_files}", _MAKE_ROOM)
    if local and _kind(place) in _NETWORKED:
        return warning(check, f"{fact}, a network file system", "give each host a data directory on a disk of its own")
    return ok(check, fact)


_MAKE_ROOM = "remove jobs that are done with (torchyard rm), set checkpoint.keep_last in specs, or use a larger disk"


def _nearest(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(place for place in (path, *path.parents) if place.is_dir())


def _tried(place: Path) -> str | None:
    """Why a file cannot be written, locked, made durable and renamed here; None where it can."""
    try:
        with tempfile.TemporaryDirectory(prefix=".torchyard-doctor-", dir=place) as folder:
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


def _kind(place: Path) -> str:
    """The name of the file system; that of the longest mount point above `place`."""
    found, longest = "an unknown file system", -1
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        if place.resolve().is_relative_to(point) and len(point) >= longest:
            found, longest = kind, len(point)
    return found
