"""Reads tars of others without trusting them: where each file lies, by the headers alone, and a file at its offset."""

from collections.abc import Iterator
from functools import lru_cache
import os
from pathlib import Path
import re
import stat
from typing import NamedTuple

from torchyard.contract.bundles.shards import MOST_FILE_BYTES, MOST_FILES, Entry, is_hidden, is_plain, name_problem
from torchyard.contract.bundles.tar import BLOCK
from torchyard.contract.errors import DataError

MOST_EXTENDED_BYTES = 1 << 20
"""Bytes of an extended header: names, times and attributes."""
MOST_OPEN = 64
"""Tars that a process has open at once."""
_MOST_ZEROS = 1 << 20
_OCTAL = re.compile(rb" *[0-7]{1,12}[ \0]*")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=\0\n]{1,200})=")
_FORMATS = (b"ustar\x0000", b"ustar  \0")
_KINDS = {
    b"1": "a link",
    b"2": "a link",
    b"K": "a link",
    b"S": "a sparse file",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}


class InShard(NamedTuple):
    """A file in a tar."""

    shard: str
    """The path of the tar."""
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} in {self.shard}"


def read_file(file: InShard, size: int = MOST_FILE_BYTES) -> bytes:
    """Returns at most `size` bytes of a file in a tar, if it lies there as it is said to. Raises DataError."""
    wanted = BLOCK + min(size, file.size)
    try:
        content = os.pread(_tar(file.shard).descriptor, wanted, file.offset - BLOCK)
    except OSError as error:
        raise DataError(f"{file.shard} cannot be read: {error.strerror}") from error
    block = content[:BLOCK]
    if len(content) < wanted or not _is_header(block) or block[156:157] not in {b"0", b"\0"}:
        raise DataError(f"{file} is not there: the index does not fit the tar")
    name = _short_name(block)
    if _number(block[124:136]) != file.size or (is_plain(file.name) and name.removeprefix("./") != file.name):
        raise DataError(f"{file} is not there: the index does not fit the tar, which has {name[:200]!r} instead")
    return content[BLOCK:]


def tar_size(path: Path) -> int:
    """Returns the bytes of a tar. Raises DataError."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is not a file")
    return status.st_size


def scan_tar(path: Path, *, shard: int, size: int) -> Iterator[Entry]:
    """Yields where each file of a tar lies, by reading its headers. Folders and hidden files are left out.

    Raises DataError for all that is not a plain file, and for what other programs may read in another way.
    """
    headers = _Headers(path, size)
    names: set[str] = set()
    while (block := headers.next()) is not None:
        kind, long_name = block[156:157], None
        while kind in {b"x", b"g", b"L"}:
            extended_name = headers.extended(block, kind)
            long_name = extended_name if kind != b"g" and extended_name is not None else long_name
            if (following := headers.next()) is None:
                raise headers.error("is an extended header of nothing")
            block, kind = following, following[156:157]
        if kind == b"5":
            continue
        if kind not in {b"0", b"\0"}:
            what = _KINDS.get(kind, f"of type {kind!r}")
            raise headers.error(f"({_short_name(block)!r}) is {what}: only plain files can be read")
        name = headers.name(block, long_name)
        if name in names:
            raise headers.error(f"({name}) is in the tar twice")
        names.add(name)
        if len(names) > MOST_FILES:
            raise DataError(f"{path} has more than {MOST_FILES:,} files")
        entry = Entry(shard, name, headers.at + BLOCK, headers.size(block))
        headers.skip(entry.size)
        if not any(map(is_hidden, name.split("/"))):
            yield entry


class _Headers:
    """Goes through the headers of a tar."""

    def __init__(self, path: Path, size: int) -> None:
        self.at = 0
        """Where the last header begins."""
        self._path, self._size, self._next = path, size, 0

    def next(self) -> bytes | None:
        """Returns the next header, or None at the end of the tar. Raises DataError."""
        self.at = self._next
        block = self._read(BLOCK)
        if not any(block):
            self._expect_zeros()
            return None
        if not _is_header(block):
            raise self.error("is not a header of a tar in the format of POSIX or GNU, or has a wrong checksum")
        self._next += BLOCK
        return block

    def size(self, block: bytes) -> int:
        size = _number(block[124:136])
        if size is None or size > MOST_FILE_BYTES:
            raise self.error(f"has a size that is not a number, or more than {MOST_FILE_BYTES} bytes")
        return size

    def skip(self, size: int) -> None:
        """Goes on behind the bytes of a file."""
        self._next += size + -size % BLOCK
        if self._next > self._size:
            raise self.error("is beyond the end of the file, which is cut off")

    def name(self, block: bytes, long_name: str | None) -> str:
        """Returns the name of a file. Raises DataError if it has two that differ, or one that is not allowed."""
        short = _short_name(block)
        name = short if long_name is None else long_name
        if is_plain(name) and name != short:
            raise self.error(f"has two names: {name[:200]!r} and {short[:200]!r}")
        name = name.removeprefix("./")
        if problem := name_problem(name):
            raise self.error(f"has the name {name[:200]!r}, which {problem}")
        return name

    def extended(self, block: bytes, kind: bytes) -> str | None:
        """Reads an extended header. Returns the name in it, if there is one. Raises DataError."""
        size = self.size(block)
        if size > MOST_EXTENDED_BYTES:
            raise self.error(f"is an extended header of more than {MOST_EXTENDED_BYTES} bytes")
        content = self._read(size)
        self.skip(size)
        try:
            return content.rstrip(b"\0").decode() if kind == b"L" else self._records(content, kind)
        except UnicodeDecodeError:
            raise self.error("has a name that is not UTF-8") from None

    def _records(self, content: bytes, kind: bytes) -> str | None:
        """Reads the records of PAX. Returns the one of a name."""
        name, at = None, 0
        while at < len(content):
            match = _RECORD.match(content, at)
            end = at + int(match[1]) if match else 0
            if match is None or not match.end() < end <= len(content) or content[end - 1 : end] != b"\n":
                raise self.error("is an extended header with a record that is not valid")
            key, value = match[2], content[match.end() : end - 1]
            if key == b"size" or key.startswith(b"GNU.sparse") or (key == b"path" and kind == b"g"):
                raise self.error(f"is an extended header with {key.decode()}, which says something else than the tar's")
            name = value.decode() if key == b"path" else name
            at = end
        return name

    def error(self, message: str) -> DataError:
        return DataError(f"{self._path}: the entry at byte {self.at} {message}")

    def _expect_zeros(self) -> None:
        """Checks that only zeros follow: behind them another tar may lie, of which nothing would be read."""
        left = self._size - self.at
        if left > _MOST_ZEROS or any(self._read(left)):
            raise self.error("is the end of the tar, but more follows")

    def _read(self, size: int) -> bytes:
        try:
            content = os.pread(_tar(str(self._path)).descriptor, size, self._next)
        except OSError as error:
            raise DataError(f"{self._path} cannot be read: {error.strerror}") from error
        if len(content) < size:
            raise self.error("is cut off: the tar has no end")
        return content


class _Tar:
    """A tar that this process has open, until nothing uses it."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


@lru_cache(maxsize=MOST_OPEN)
def _tar(path: str) -> _Tar:
    return _Tar(path)


def _is_header(block: bytes) -> bool:
    # The checksum is computed with spaces in its own field.
    return block[257:265] in _FORMATS and _number(block[148:156]) == sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")


def _short_name(block: bytes) -> str:
    """Returns the name in a header, of which the format of POSIX has a beginning in another field."""
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:265] == _FORMATS[0] else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int | None:
    return int(field.strip(b" \0"), 8) if _OCTAL.fullmatch(field) else None
