"""The one form of the tar with all files of a checkpoint: a function of their paths and bytes alone."""

from collections.abc import Callable, Generator, Iterable
import hashlib
import tarfile

from torchyard.contract.errors import DataError

BLOCK = 512
END = bytes(2 * BLOCK)
"""What ends an archive."""

_MOST_MEMBERS = 2000
_PLAIN, _LONG_NAME = b"0", b"L"


def header(path: str, size: int) -> bytes:
    """Returns what is before the bytes of a file."""
    member = tarfile.TarInfo(path)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """Returns what is behind the bytes of a file."""
    return bytes(-size % BLOCK)


def size_of(files: Iterable[tuple[str, int]]) -> int:
    """Returns the bytes of the archive of files, by their paths and sizes."""
    return sum(len(header(path, size)) + size + len(padding(size)) for path, size in files) + len(END)


class Archive:
    """The digest of an archive whose files come one after the other."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._padding = b""

    def begin(self, path: str, size: int) -> None:
        """Begins the next file."""
        self._digest.update(self._padding + header(path, size))
        self._padding = padding(size)

    def update(self, content: bytes) -> None:
        """Takes the next bytes of the file."""
        self._digest.update(content)

    @property
    def sha256(self) -> str:
        """That of the archive of the files so far."""
        whole = self._digest.copy()
        whole.update(self._padding + END)
        return whole.hexdigest()


def members(read: Callable[[int, int], bytes], *, size: int) -> Generator[tuple[str, int, int]]:
    """Yields the name, the offset and the size of each plain file whose name has at most 100 characters.

    `read(offset, length)` returns bytes of an archive of `size` bytes. Raises DataError for what is no whole archive.
    """
    at, renamed = 0, False
    for _ in range(_MOST_MEMBERS):
        block = read(at, BLOCK)
        if block == END[:BLOCK]:
            return
        if len(block) < BLOCK or block[257:262] != b"ustar":
            raise DataError("it is torn, or no archive of a checkpoint")
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise DataError(f"it is damaged: {error}") from None
        start, end = at + BLOCK, at + BLOCK + member.size
        if member.size < 0 or end > size:
            raise DataError("it is torn: it ends within a file")
        if block[156:157] == _PLAIN and not renamed:
            yield member.name, start, member.size
        renamed = block[156:157] == _LONG_NAME
        at = end + len(padding(member.size))
    raise DataError("it has too many files")
