"""The bytes of a bundle's tar, which are read out of the folder's files when they are wanted."""

from array import array
from bisect import bisect_right
from collections.abc import Generator, Mapping
import hashlib
import os
import stat

from torchyard.client.packing.listing import Found
from torchyard.contract.bundles.parts import PartsReader
from torchyard.contract.bundles.tar import END, MODES, entry, entry_size, padding
from torchyard.contract.errors import ConfigError

HELD_BYTES = 32 << 20
"""A tar of so many bytes is held in memory: its files may then be changed while it is sent."""

_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Contents:
    """The tar of these files, by their names in its order.

    Reading raises ConfigError if a file cannot be read, or is not what it was when it was listed.
    """

    def __init__(self, files: Mapping[str, Found]) -> None:
        self._names = [*files]
        self._files = [*files.values()]
        self._offsets = array("Q")
        """The byte with which each entry begins."""
        at = 0
        for name, found in files.items():
            self._offsets.append(at)
            at += entry_size(name, size=found.size) + found.size + -found.size % 512
        self._end = at
        self._held: bytes | None = None
        self.size = at + len(END)
        """The bytes of the tar."""
        self.sha256, self.parts = self._digest()

    def read(self, start: int = 0, end: int | None = None) -> Generator[bytes]:
        """Yields the bytes from `start` to `end`."""
        end = self.size if end is None else end
        if self._held is not None:
            for at in range(start, end, _CHUNK):
                yield self._held[at : min(at + _CHUNK, end)]
            return
        yield from _joined(self._pieces(start, end))

    def close(self) -> None:
        """Lets go of what is held."""
        self._held = None

    def _digest(self) -> tuple[str, bytes]:
        """Returns the sha256, and the parts as they are stored. Holds a small tar."""
        held = bytearray() if self.size <= HELD_BYTES else None
        digest, parts = hashlib.sha256(), PartsReader()
        for index, name in enumerate(self._names):
            following = self._offsets[index + 1] if index + 1 < len(self._offsets) else self._end
            parts.entry(name, following - self._offsets[index])
            for piece in self._entry(index):
                digest.update(piece)
                parts.add(piece)
                if held is not None:
                    held += piece
        digest.update(END)
        parts.add(END)
        if held is not None:
            self._held = bytes(held + END)
        return digest.hexdigest(), parts.finish()

    def _pieces(self, start: int, end: int) -> Generator[bytes]:
        index = max(bisect_right(self._offsets, start) - 1, 0)
        at = start
        while at < end and index < len(self._names) and at < self._end:
            for piece in self._entry(index, skip=at - self._offsets[index]):
                yield piece[: end - at]
                at += len(piece)
                if at >= end:
                    return
            index += 1
        if at < end:
            yield END[at - self._end : end - self._end]

    def _entry(self, index: int, *, skip: int = 0) -> Generator[bytes]:
        """Yields the bytes of one file's entry behind the first `skip`."""
        found = self._files[index]
        head = entry(self._names[index], size=found.size, mode=MODES[bool(found.mode & stat.S_IXUSR)])
        descriptor = _open(found)
        try:
            begin, at = head[skip:], max(skip - len(head), 0)
            if at:
                os.lseek(descriptor, at, os.SEEK_SET)
            while at < found.size:
                chunk = os.read(descriptor, min(found.size - at, _CHUNK))
                if not chunk:
                    raise changed(found.path)
                at += len(chunk)
                yield begin + chunk if begin else chunk
                begin = b""
            if not _is_same(os.fstat(descriptor), found):
                raise changed(found.path)
            if rest := begin + padding(found.size)[max(at - found.size, 0) :]:
                yield rest
        finally:
            os.close(descriptor)


def check_unchanged(files: Mapping[str, Found]) -> None:
    """Raises ConfigError if a file is not what it was when it was listed: the bundle might mix two states."""
    for found in files.values():
        try:
            now = os.lstat(found.path)
        except OSError:
            raise changed(found.path) from None
        if not _is_same(now, found):
            raise changed(found.path)


def changed(path: str) -> ConfigError:
    """Returns the error for a file that changes while it is packed or sent."""
    return ConfigError(f"{path} changed while it was packed: run the command again when nothing writes it")


def _open(found: Found) -> int:
    """Opens a file that was listed. A link or FIFO that has taken its place is neither followed nor waited for."""
    try:
        descriptor = os.open(found.path, _OPEN)
    except FileNotFoundError:
        raise changed(found.path) from None
    except OSError as error:
        raise ConfigError(f"{found.path} cannot be read: {error.strerror}") from None
    if not _is_same(os.fstat(descriptor), found):
        os.close(descriptor)
        raise changed(found.path)
    return descriptor


def _is_same(status: os.stat_result, found: Found) -> bool:
    return (
        status.st_mtime_ns == found.modified_ns
        and status.st_size == found.size
        and status.st_ino == found.inode
        and status.st_mode == found.mode
        and status.st_dev == found.device
    )


def _joined(pieces: Generator[bytes]) -> Generator[bytes]:
    """Yields the same bytes, small pieces together."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
