"""The tar that a download of a checkpoint in several files sends: a function of their paths, sizes and bytes alone.

The files are sorted by the bytes of their paths, and each has the mode 644, the time 0 and no owner. So each byte's
place is known before anything is read.
"""

from collections.abc import Callable, Generator, Iterable
import re
import tarfile

from torchyard.contract.bundles import tar
from torchyard.contract.bundles.tar import BLOCK, END, padding
from torchyard.contract.errors import DataError
from torchyard.contract.files.paths import MOST_FILES

__all__ = ["BLOCK", "END", "header", "header_size", "members", "padding", "size_of"]

_MOST_HEADERS = 2 * MOST_FILES
_LONGEST_RECORDS = 8 * BLOCK
_RECORD = re.compile(rb"[0-9]{1,5} (path|size)=([^\0]+)")
"""A line."""
_PLAIN, _LONG_NAME, _EXTENDED = b"0", b"L", b"x"


def header(path: str, size: int) -> bytes:
    """Returns what is before the bytes of a file."""
    return tar.entry(path, size=size)


def header_size(path: str, size: int) -> int:
    """Returns the bytes of `header`."""
    return tar.entry_size(path, size=size)


def size_of(files: Iterable[tuple[str, int]]) -> int:
    """Returns the bytes of the archive of files, by their paths and sizes."""
    return sum(header_size(path, size) + size + -size % BLOCK for path, size in files) + len(END)


def members(read: Callable[[int, int], bytes], *, size: int) -> Generator[tuple[str, int, int]]:
    """Yields the path, the offset and the size of each plain file. Skips those that a record of GNU names.

    `read(offset, length)` returns bytes of an archive of `size` bytes. Raises DataError for what is no whole archive.
    """
    at, records = 0, dict[bytes, bytes]()
    skips = False
    for _ in range(_MOST_HEADERS):
        block = read(at, BLOCK)
        if block == END[:BLOCK]:
            return
        if len(block) < BLOCK or block[257:262] != b"ustar":
            raise DataError("it is incomplete, or no archive of a checkpoint")
        path, length = _member(block, records)
        start, end = at + BLOCK, at + BLOCK + length
        if length < 0 or end > size:
            raise DataError("it is incomplete: it ends within a file")
        kind = block[156:157]
        if kind == _PLAIN and not skips:
            yield path, start, length
        skips = kind == _LONG_NAME
        is_extended = kind == _EXTENDED and length <= _LONGEST_RECORDS
        records = _records(read(start, length)) if is_extended else {}
        at = end + len(padding(length))
    raise DataError("it has too many files")


def _records(content: bytes) -> dict[bytes, bytes]:
    found = (_RECORD.fullmatch(line) for line in content.split(b"\n"))
    return {match[1]: match[2] for match in found if match is not None}


def _member(block: bytes, records: dict[bytes, bytes]) -> tuple[str, int]:
    """Returns the path and the size that a header tells, or that the records before it do."""
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        path = records[b"path"].decode() if b"path" in records else found.name
        return path, int(records.get(b"size", found.size))
    except (tarfile.HeaderError, ValueError) as error:
        raise DataError(f"it is damaged: {error}") from None
