"""Reads files of a bundle out of its tar, in parts: headers and a few contents, never the whole."""

from collections.abc import Generator
import hashlib

from store.blobs.folder import BlobFolder
from store.bundles.facts import BundleFacts
from torchyard.contract.bundles.tar import PlacedMember, Seekable, find_members
from torchyard.contract.bundles.views import CodeFileView, CodeView
from torchyard.contract.errors import FileTooLarge, InvalidBundle, NotFound, NotText

MOST_LISTED = 5000
MOST_TEXT = 256 << 10
"""Bytes of a file whose text is sent."""
_MOST_HASHED = 64 << 20
_HEADERS_PER_PART = 500
_BYTES_PER_PART = 4 << 20


def list_files(blobs: BlobFolder, bundle: BundleFacts, *, digests: bool) -> Generator[None, None, CodeView]:
    """Lists the files. Raises InvalidBundle, NotFound and OSError."""
    files: list[CodeFileView] = []
    hashed = ended = 0
    with blobs.open(bundle.sha256) as file:
        for placed in _find_members(file, bundle):
            if len(files) == MOST_LISTED:
                break
            member, digest = placed.member, None
            if digests and member.size <= MOST_TEXT and hashed + member.size <= _MOST_HASHED:
                digest = hashlib.sha256(_read_content(file, placed)).hexdigest()
                hashed += member.size
            files.append(
                CodeFileView(path=member.name, size=member.size, executable=member.mode & 0o100 != 0, sha256=digest)
            )
            if len(files) % _HEADERS_PER_PART == 0 or hashed - ended >= _BYTES_PER_PART:
                ended = hashed
                yield
    return CodeView(sha256=bundle.sha256, note=None, files=files, total=bundle.files)


def read_text(blobs: BlobFolder, bundle: BundleFacts, path: str) -> Generator[None, None, str]:
    """Returns the text of one file. Raises NotFound, FileTooLarge, NotText, InvalidBundle and OSError."""
    with blobs.open(bundle.sha256) as file:
        for number, placed in enumerate(_find_members(file, bundle), start=1):
            if placed.member.name == path:
                _require_small(placed)
                return _decode_text(_read_content(file, placed))
            if number % _HEADERS_PER_PART == 0:
                yield
    raise NotFound(f"the code has no file {path[:200]!r}")


def _find_members(file: Seekable, bundle: BundleFacts) -> Generator[PlacedMember]:
    return find_members(file, max_files=bundle.files, max_bytes=bundle.size)


def _require_small(placed: PlacedMember) -> None:
    if placed.member.size > MOST_TEXT:
        raise FileTooLarge(
            f"{placed.member.name!r} has {placed.member.size} bytes; text is shown up to {MOST_TEXT} bytes"
        )


def _read_content(file: Seekable, placed: PlacedMember) -> bytes:
    file.seek(placed.offset)
    content = file.read(placed.member.size)
    if len(content) != placed.member.size:
        raise InvalidBundle(f"the tar is cut off in {placed.member.name!r}")
    return content


def _decode_text(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise NotText("the file has bytes that are no UTF-8, so it is not text") from None
    if "\0" in text:
        raise NotText("the file has NUL bytes, so it is not text")
    return text
