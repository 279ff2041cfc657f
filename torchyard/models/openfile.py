"""Opens the files of a folder that anyone may have written: no link leads out of it, and nothing blocks."""

from collections.abc import Callable, Iterator
import errno
import hashlib
import os
from pathlib import Path
import re
import stat
import weakref

from torchyard.contract.errors import DataError

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in place of a file would block the reader
_CHUNK = 1 << 20
_BLOB = re.compile(r"\.\./\.\./blobs/([\w-]+)")
"""What a link in a snapshot of a cache of Hugging Face names: a file whose name is often its digest."""

_TORN = "{} does not have the digest that its blob's name says: remove it and download it again"


class OpenFile:
    """A file that stays open until this is forgotten. Its path may be another's by then."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises DataError if there is none, if it is not regular, or if it is a link, but to a blob of its cache."""
        self.name = name
        self.descriptor, self._blob = _opened(folder, name)
        weakref.finalize(self, os.close, self.descriptor)
        self._status = os.fstat(self.descriptor)
        if not stat.S_ISREG(self._status.st_mode):
            raise DataError(f"{name} is not a regular file")

    @property
    def path(self) -> str:
        """A path that is this file's while it is open, whatever its own path is by then."""
        return f"/dev/fd/{self.descriptor}"

    def read(self, most: int) -> bytes:
        """Returns the content. Raises DataError if it is longer than `most` bytes, or not what its blob's name says."""
        if self._status.st_size > most:
            raise DataError(f"{self.name} has {self._status.st_size} bytes, and may have {most}")
        content = b"".join(_parts(self.descriptor, most))
        self._check(content)
        return content

    @property
    def size(self) -> int:
        """The bytes that it had when it was opened."""
        return self._status.st_size

    def sha256(self, on_part: Callable[[], None] = lambda: None) -> str:
        """Returns the digest of the content. Raises DataError if it is not the one that its blob's name says.

        `on_part`: called after each part of it.
        """
        digest = hashlib.sha256()
        for part in _parts(self.descriptor, self._status.st_size):
            digest.update(part)
            on_part()
        if self._blob is not None and len(self._blob) == 64 and self._blob != digest.hexdigest():
            raise DataError(_TORN.format(self.name))
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raises DataError if the content may be another than when the file was opened."""
        now, then = os.fstat(self.descriptor), self._status
        # A program can set a modification time, but not the time of the last change.
        if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (then.st_size, then.st_mtime_ns, then.st_ctime_ns):
            raise DataError(f"{self.name} was changed while it was read")

    def _check(self, content: bytes) -> None:
        named = self._blob
        if named is None or len(named) not in {40, 64}:
            return
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        digest = git if len(named) == 40 else hashlib.sha256(content)
        if digest.hexdigest() != named:
            raise DataError(_TORN.format(self.name))


def _parts(descriptor: int, length: int) -> Iterator[bytes]:
    """Yields the first bytes of a file, part by part."""
    place = 0
    while part := os.pread(descriptor, min(_CHUNK, length - place), place):
        yield part
        place += len(part)


def _opened(folder: Path, name: str) -> tuple[int, str | None]:
    """Returns a descriptor, and the blob's name if the file is one of a cache."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.open(name, _FLAGS, dir_fd=inside), None
    except FileNotFoundError:
        raise DataError(f"there is no {name}") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise DataError(f"{name} cannot be opened: {error.strerror}") from None
        return _opened_blob(inside, name)
    finally:
        os.close(inside)


def _opened_blob(folder: int, name: str) -> tuple[int, str]:
    target = os.readlink(name, dir_fd=folder)
    blob = _BLOB.fullmatch(target)
    if blob is None:
        raise DataError(f"{name} is a link to {target[:200]!r}: put the file itself into the folder")
    blobs = os.open("../../blobs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    try:
        return os.open(blob[1], _FLAGS, dir_fd=blobs), blob[1]
    except OSError as error:
        raise DataError(f"{name} is a link to {target}, which cannot be opened: {error.strerror}") from None
    finally:
        os.close(blobs)
