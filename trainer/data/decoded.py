"""A file of decoded pictures: what one epoch has decoded, the next one and other jobs of the same owner read.

    $XDG_CACHE_HOME/torchyard/decoded/KEY        a record for each picture: a checksum, and its pixels

A record is whole if its checksum is that of its pixels: no other mark is needed, whoever writes at the same time and
wherever a program ends. Records are read by pread(2): a file that is mapped ends the process when somebody shortens it.
"""

from collections.abc import Callable
from dataclasses import dataclass
import fcntl
import functools
import hashlib
import json
import os
from pathlib import Path
import shutil
import stat
from typing import Any
import zlib

from torch import Tensor

FORMAT = 2
"""Counts up when the same settings give other pixels."""
MOST_BYTES = 32 << 30
"""All files of an owner take at most this much of a host's disk,"""
MOST_SHARE = 0.1
"""and at most this share of what is free, with what they take already."""
_MARK = 4


@dataclass(frozen=True)
class Decoded:
    """The decoded pictures of one source. It is small when it is pickled: each process opens the file itself."""

    file: str
    length: int
    """The bytes of one picture."""
    capacity: int
    """How many of the pictures have a record: the first ones."""

    def read(self, index: int, into: Tensor) -> bool:
        """Fills a tensor on the CPU with the picture at `index`. Returns False if it is not there."""
        descriptor = _opened(self.file) if index < self.capacity else None
        if descriptor is None:
            return False
        mark, pixels = bytearray(_MARK), _bytes(into)
        try:
            count = os.preadv(descriptor, [mark, pixels], index * (_MARK + self.length))
        except OSError:
            return False
        return count == _MARK + self.length and bytes(mark) == _checksum(pixels)

    def write(self, index: int, picture: Tensor) -> None:
        """Keeps a picture that was decoded. What does not fit on the disk is decoded again."""
        descriptor = _opened(self.file) if index < self.capacity and self.file not in _full else None
        if descriptor is None:
            return
        pixels = _bytes(picture)
        try:
            os.pwritev(descriptor, [_checksum(pixels), pixels], index * (_MARK + self.length))
        except OSError:
            _full.add(self.file)  # part of a record may be there, with a wrong checksum


def fill(row: Tensor, decode: Callable[[], Tensor], *, index: int, cache: Decoded | None) -> None:
    """Fills `row` from the cache if the picture is there, or else decodes the picture and keeps it."""
    if cache is not None and cache.read(index, row):
        return
    row.copy_(decode())
    if cache is not None:
        cache.write(index, row)


def prepare(settings: dict[str, Any], *, count: int, length: int) -> Decoded | None:
    """Makes room for `count` pictures of `length` bytes: what was not used for longest is removed. For one process.

    `settings`: JSON that names the data and all that the pixels depend on. Returns None if no file can be used.
    """
    key = hashlib.sha256(json.dumps([FORMAT, settings], sort_keys=True).encode()).hexdigest()
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder.stat(follow_symlinks=False), stat.S_ISDIR):
            return None
        file = folder / key[:32]
        capacity = min(count, _room(folder, file, wanted=count * (_MARK + length)) // (_MARK + length))
        if capacity < 1:
            return None
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
    except OSError:
        return None
    # Kept open, so that nobody removes it before the run ends.
    return None if _opened(str(file)) is None else Decoded(str(file), length, capacity)


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(cache), "torchyard", "decoded")  # noqa: PTH111 a user may have no home


def _room(folder: Path, own: Path, *, wanted: int) -> int:
    """Returns how large the file `own` may be, of the size that is `wanted`. Raises OSError."""
    entries = {Path(entry): entry.stat(follow_symlinks=False) for entry in os.scandir(folder)}
    sizes = {path: status.st_blocks * 512 for path, status in entries.items()}
    allowed = min(MOST_BYTES, int(MOST_SHARE * (shutil.disk_usage(folder).free + sum(sizes.values()))))
    others = sum(sizes.values()) - sizes.pop(own, 0)
    for path in sorted(sizes, key=lambda path: entries[path].st_mtime_ns):
        if others + wanted <= allowed:
            break
        if _remove(path):
            others -= sizes[path]
    return allowed - others


def _remove(path: Path) -> bool:
    """Removes a file if no run uses it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@functools.cache
def _opened(file: str) -> int | None:
    """Returns a descriptor of this process with a shared lock, if nobody else can have written the file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if _is_ours(os.fstat(descriptor), stat.S_ISREG):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.utime(descriptor)  # those that were not used for longest are removed first
            return descriptor
    except OSError:  # it is being removed
        pass
    os.close(descriptor)
    return None


def _is_ours(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    return is_kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _bytes(picture: Tensor) -> memoryview:
    return picture.numpy().reshape(-1).data


def _checksum(pixels: memoryview) -> bytes:
    return zlib.crc32(pixels).to_bytes(_MARK, "little")


_full: set[str] = set()
"""Files to which nothing is added any more."""
