"""The one form of our tars: that of a bundle, and that of a checkpoint in several files.

A bundle's is written by the packer of the client, and read by the upload and the worker, which take nothing else.
"""

from collections.abc import Generator
from dataclasses import dataclass
import re
from typing import Protocol

from torchyard.contract.bundles.names import MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES, Names, check_name
from torchyard.contract.bundles.parts import PartsReader
from torchyard.contract.errors import InvalidBundle

MODES = (0o644, 0o755)
"""The modes of a bundle's files: plain, and executable."""

BLOCK = 512
END = bytes(2 * BLOCK)
"""What ends a tar. As many zeros may follow as fill a record of 20 blocks."""

_MOST_ZEROS = len(END) + 20 * BLOCK
_CHUNK = 1 << 20
_OCTAL = re.compile(rb"[0-7]{1,11}[ \0]*")
_RECORD = re.compile(rb"([1-9][0-9]{0,4}) path=([^\n\0]+)\n")
_MAGIC = b"ustar\x0000"
_SIZE_OF_RECORD = 2 * BLOCK + BLOCK
_SHORT_NAME = 100
_SHORT_SIZE = 8**11 - 1
"""The bytes of the largest file that a header without a record can tell."""


class Readable(Protocol):
    """A stream of bytes. `read` may return fewer bytes than it was asked for, and none only at the end."""

    def read(self, size: int, /) -> bytes: ...


class Seekable(Readable, Protocol):
    """A file of which some bytes may be left out."""

    def seek(self, offset: int, /) -> int: ...


@dataclass(frozen=True)
class BundleContents:
    """The number of a bundle's files, their bytes together, and the parts of the tar as they are stored."""

    files: int
    bytes: int
    parts: bytes = b""


@dataclass(frozen=True)
class Member:
    """One file of a bundle."""

    name: str
    mode: int
    size: int


@dataclass(frozen=True)
class PlacedMember:
    """One file of a bundle, and the byte of the tar with which its content begins."""

    member: Member
    offset: int


def header(name: str, *, size: int, executable: bool) -> bytes:
    """Returns what precedes a file's bytes in a bundle. Raises InvalidBundle for a name that is not allowed."""
    check_name(name)
    return entry(name, size=size, mode=MODES[executable])


def entry(name: str, *, size: int, mode: int = MODES[0]) -> bytes:
    """Returns what precedes the bytes of a file of any size in a tar. The name is UTF-8."""
    records, extended = _records(name, size), b""
    if records:
        extended = _block(b"././@PaxHeader", mode=MODES[0], size=len(records), kind=b"x") + records
        extended += padding(len(records))
    short = name.encode("ascii", "replace")[:_SHORT_NAME]
    return extended + _block(short, mode=mode, size=size if size <= _SHORT_SIZE else 0, kind=b"0")


def entry_size(name: str, *, size: int) -> int:
    """Returns the bytes of `entry`, which takes ten times as long."""
    records = len(_records(name, size))
    return BLOCK + (BLOCK + records + -records % BLOCK if records else 0)


def padding(size: int) -> bytes:
    """Returns the zeros that follow a file of `size` bytes in the tar."""
    return bytes(-size % BLOCK)


def verify(
    file: Readable, *, max_files: int = MAX_BUNDLE_FILES, max_bytes: int = MAX_BUNDLE_BYTES, needs_parts: bool = False
) -> BundleContents:
    """Reads a whole tar and checks that it is a bundle. Raises InvalidBundle, and what `file.read` raises."""
    files = total = 0
    parts = PartsReader() if needs_parts else None
    for member, chunks in read_members(file, max_files=max_files, max_bytes=max_bytes, parts=parts):
        for _ in chunks:
            pass
        files, total = files + 1, total + member.size
    return BundleContents(files, total, b"" if parts is None else parts.finish())


def read_members(
    file: Readable,
    *,
    max_files: int = MAX_BUNDLE_FILES,
    max_bytes: int = MAX_BUNDLE_BYTES,
    parts: PartsReader | None = None,
) -> Generator[tuple[Member, Generator[bytes]]]:
    """Yields each file of a bundle with its bytes, in chunks, which must be read before the next one is asked for.

    Checks everything while it reads. `parts` gets all of the tar. Raises InvalidBundle, and what `file.read` raises.
    """
    stream, names = _Stream(file, max_bytes, ahead=_CHUNK, parts=parts), Names(max_files)
    while (member := _next(stream)) is not None:
        names.add(member.name)
        stream.tell_entry(member)
        yield member, stream.contents(member)
        stream.skip_padding(member)
    stream.expect_end()


def find_members(file: Seekable, *, max_files: int, max_bytes: int) -> Generator[PlacedMember]:
    """Yields the files of a bundle that was verified, up to `max_files`, and reads none of their contents.

    Between two of them the caller may read what it likes. Raises InvalidBundle, and what `file.read` raises.
    """
    stream, at = _Stream(file, max_bytes), 0
    for _ in range(max_files):
        file.seek(at)
        if (member := _next(stream)) is None:
            return
        at = stream.skip(member)
        yield PlacedMember(member, at - member.size - len(padding(member.size)))


class _Stream:
    """Reads the tar, and knows where it is. `ahead`: how much of the file is read at once; 0: what is asked for."""

    def __init__(self, file: Readable, most: int, *, ahead: int = 0, parts: PartsReader | None = None) -> None:
        self.at = 0
        """The byte at which the block begins that was read last."""
        self._file = file
        self._most = most
        self._read = 0
        self._begun = 0
        """The byte at which the entry begins, with its extended header."""
        self._ahead = ahead
        self._buffer, self._place = b"", 0
        self._parts = parts

    def block(self) -> bytes:
        """Returns the next block. Raises InvalidBundle at the end of the file."""
        self.at = self._read
        return self._exactly(BLOCK)

    def data(self, size: int) -> bytes:
        """Returns the next `size` bytes, which are few, and skips the zeros behind them."""
        found = self._exactly(size)
        if any(self._exactly(-size % BLOCK)):
            raise self.error("has bytes behind its end")
        return found

    def contents(self, member: Member) -> Generator[bytes]:
        """Yields the bytes of a file."""
        left = member.size
        while left:
            chunk = self._some(min(left, _CHUNK))
            left -= len(chunk)
            yield chunk

    def tell_entry(self, member: Member) -> None:
        """Tells who finds the parts how long the entry is whose headers were read."""
        if self._parts is not None:
            self._parts.entry(member.name, self._read - self._begun + member.size + -member.size % BLOCK)

    def skip_padding(self, member: Member) -> None:
        """Reads the zeros behind a file whose bytes were read."""
        if any(self._exactly(-member.size % BLOCK)):
            raise InvalidBundle(f"{member.name!r} has bytes behind its end")
        self._begun = self._read

    def skip(self, member: Member) -> int:
        """Counts the bytes of a file as read. Returns the byte with which the next header begins."""
        self._read += member.size + -member.size % BLOCK
        if self._read > self._most:
            raise InvalidBundle(f"{member.name!r} ends behind the end of the tar")
        return self._read

    def expect_end(self) -> None:
        """Reads to the end of the file. Its first empty block was read already."""
        zeros = BLOCK
        while chunk := self._next(_CHUNK):
            zeros += len(chunk)
            if any(chunk) or zeros > _MOST_ZEROS:
                raise InvalidBundle(f"there is more behind the end of the tar, at byte {self.at}")
        if zeros < len(END) or zeros % BLOCK:
            raise InvalidBundle("the tar is cut off at its end")

    def error(self, message: str) -> InvalidBundle:
        return InvalidBundle(f"the entry at byte {self.at} of the tar {message}")

    def _exactly(self, size: int) -> bytes:
        found = self._some(size) if size else b""
        while len(found) < size:
            found += self._some(size - len(found))
        return found

    def _some(self, size: int) -> bytes:
        chunk = self._next(size)
        if not chunk:
            raise InvalidBundle(f"the tar is cut off at byte {self._read}")
        self._read += len(chunk)
        if self._read > self._most:
            raise InvalidBundle(f"the bundle has more than {self._most} bytes")
        return chunk

    def _next(self, size: int) -> bytes:
        """Returns up to `size` bytes; none at the end of the file."""
        if self._place == len(self._buffer):
            self._buffer, self._place = self._file.read(max(self._ahead, size)), 0
        chunk = self._buffer[self._place : self._place + size]
        self._place += len(chunk)
        if self._parts is not None:
            self._parts.add(chunk)
        return chunk


def _next(stream: _Stream) -> Member | None:
    """Reads the header of the next file. None: the tar ends here."""
    block, long_name = stream.block(), None
    if not any(block):
        return None
    if block[156:157] == b"x":
        long_name, block = _extended_name(stream, block), stream.block()
    name = _short_name(stream, block) if long_name is None else long_name
    _check_header(stream, block, kind=b"0", name=name)
    mode = _number(stream, block[100:108], "mode")
    if mode not in MODES:
        raise stream.error(f"({name!r}) has the mode {mode:o}: only 644 and 755 are allowed")
    return Member(name, mode, _number(stream, block[124:136], "size"))


def _extended_name(stream: _Stream, block: bytes) -> str:
    _check_header(stream, block, kind=b"x", name="an extended header")
    size = _number(stream, block[124:136], "size")
    if size > _SIZE_OF_RECORD:
        raise stream.error("is an extended header with more than a name")
    record = stream.data(size)
    found = _RECORD.fullmatch(record)
    if found is None or int(found[1]) != size:
        raise stream.error("is an extended header with more than a name, or one that is not valid")
    try:
        name = found[2].decode()
    except UnicodeDecodeError:
        raise stream.error("has a name that is not UTF-8") from None
    if not _needs_record(name):
        raise stream.error(f"has an extended header, which the name {name[:200]!r} does not need")
    return name


def _short_name(stream: _Stream, block: bytes) -> str:
    prefix, name = _text(stream, block[345:500]), _text(stream, block[:100])
    return f"{prefix}/{name}" if prefix else name


def _check_header(stream: _Stream, block: bytes, *, kind: bytes, name: str) -> None:
    """Checks what all headers have in common. Raises InvalidBundle."""
    if block[257:265] != _MAGIC:
        raise stream.error("is not in the format of POSIX (ustar or PAX)")
    if _number(stream, block[148:156], "checksum") != _checksum(block):
        raise stream.error("has a wrong checksum")
    if block[156:157] != kind:
        raise stream.error(f"({name!r}) is of type {block[156:157]!r}: a bundle has regular files only")
    for start, end, what in ((108, 116, "uid"), (116, 124, "gid"), (136, 148, "mtime")):
        if _number(stream, block[start:end], what):
            raise stream.error(f"({name!r}) must have the {what} 0")
    # The numbers of devices may be written as octal zeros: tarfile does it before Python 3.12.
    if any(block[157:257]) or any(block[265:329]) or block[329:345].strip(b"0\0") or any(block[500:]):
        raise stream.error(f"({name!r}) must name no link, user, group or device")


def _text(stream: _Stream, field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if any(rest) or not text.isascii():
        raise stream.error("has a name that is neither ASCII nor in an extended header")
    return text.decode("ascii")


def _number(stream: _Stream, field: bytes, what: str) -> int:
    if _OCTAL.fullmatch(field) is None:
        raise stream.error(f"has a {what} that is not an octal number")
    return int(field.rstrip(b" \0"), 8)


def _needs_record(name: str) -> bool:
    return not name.isascii() or len(name) > _SHORT_NAME


def _records(name: str, size: int) -> bytes:
    """Returns the records of PAX that a file needs."""
    found = _record(b"path", name.encode()) if _needs_record(name) else b""
    return found + (_record(b"size", b"%d" % size) if size > _SHORT_SIZE else b"")


def _record(key: bytes, value: bytes) -> bytes:
    """Returns a record of PAX. It begins with its own length."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + len(str(len(rest)))
    length = len(rest) + len(str(length))
    return str(length).encode() + rest


def _block(name: bytes, *, mode: int, size: int, kind: bytes) -> bytes:
    """Returns one header of a tar."""
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, 0)
    start, end = name.ljust(100, b"\0") + numbers, kind + bytes(100) + _MAGIC
    block = (start + b" " * 8 + end).ljust(BLOCK, b"\0")
    return start + b"%06o\0 " % _checksum(block) + block[156:]


def _checksum(block: bytes) -> int:
    return sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
