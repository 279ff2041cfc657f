"""Sends files, or the parts that `Range` selects (RFC 9110, 14), by the kernel if the server supports that."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
import os
from pathlib import Path
import re
from secrets import token_hex
from typing import BinaryIO
from urllib.parse import quote

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.server.protocol import ZERO_COPY
from api.transfers.permits import Check, ended_by
from torchyard.contract.errors import NotFound

_MOST_RANGES = 20
_CHUNK = 1 << 18
_PART = 1 << 23
"""Bytes that are sent between two checks of the caller's access."""
_RANGE = re.compile(r"([0-9]{0,18})-([0-9]{0,18})")


@dataclass(frozen=True)
class Span:
    """The bytes from `start` up to, and without, `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Stored:
    """A stored file, of so many bytes."""

    path: Path
    size: int

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class Composed:
    """So many bytes, which are made when they are sent."""

    size: int
    make: Callable[[], bytes]

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class Part:
    """Bytes of a stored file."""

    path: Path
    span: Span


class Layout:
    """What is sent, one after the other: stored files, and what is made between them."""

    def __init__(self, items: Sequence[Composed | Stored]) -> None:
        self._items = items
        self._ends = [*accumulate(map(len, items))]

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self._ends[-1]

    @property
    def paths(self) -> list[Path]:
        """Those of the stored files."""
        return [item.path for item in self._items if isinstance(item, Stored)]

    def cut(self, span: Span) -> Iterator[bytes | Part]:
        """Yields what lies in a span of the whole: bytes, and parts of the files."""
        for index in range(bisect_right(self._ends, span.start), len(self._items)):
            item = self._items[index]
            begin = self._ends[index] - len(item)
            if begin >= span.end:
                return
            start, end = max(span.start - begin, 0), min(span.end - begin, len(item))
            if start < end:
                yield Part(item.path, Span(start, end)) if isinstance(item, Stored) else item.make()[start:end]


class FileResponse(Response):
    """A file (status 200, `spans` is None), or parts of it (status 206)."""

    def __init__(
        self,
        layout: Layout,
        *,
        spans: Sequence[Span] | None,
        headers: Mapping[str, str],
        media_type: str,
        permit: Callable[[], AbstractContextManager[Check]],
        counted: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """`counted`: what the sending is counted by, which may raise TooManyRequests."""
        self._layout = layout
        self._permit = permit
        self._counted = counted
        self._pieces, extra = _pieces(spans, size=layout.size, media_type=media_type)
        length = str(sum(map(len, self._pieces)))
        common = {"Accept-Ranges": "bytes", "Content-Length": length, "Content-Type": media_type}
        self.status_code = 200 if spans is None else 206
        self.background = None
        self.init_headers({**common, **extra, **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the file. Raises NotFound and TooManyRequests before the first byte; Interrupted when its caller may
        not have the rest.
        """
        async with self._counted():
            await self._send(scope, send)

    async def _send(self, scope: Scope, send: Send) -> None:
        with await to_thread.run_sync(self._open) as files, self._permit() as check:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                for piece in _parts(self._pieces):
                    await ended_by(check)
                    for part in [piece] if isinstance(piece, bytes) else self._layout.cut(piece):
                        await _send_piece(part, files, scope, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _open(self) -> "_Files":
        paths = self._layout.paths
        try:
            for path in paths[1:]:
                path.stat()
            return _Files(paths[0])
        except FileNotFoundError:
            raise NotFound("the bytes of this file are no longer stored") from None


def spans_of(header: str, *, size: int) -> list[Span] | None:
    """Returns the spans of a `Range` header in its order, or None if it must be ignored: it is malformed or too large.

    Raises HTTPException (416) if no span lies in the file.
    """
    unit, _, ranges = header.strip().partition("=")
    if unit.lower() != "bytes":
        return None
    ranges_asked = [_RANGE.fullmatch(part.strip(" \t")) for part in ranges.split(",", _MOST_RANGES)]
    spans: list[Span] = []
    for item in ranges_asked:
        if item is None or not (item[1] or item[2]) or (item[1] and item[2] and int(item[1]) > int(item[2])):
            return None
        spans.append(_span(item[1], item[2], size=size))
    if not spans:
        return None
    satisfiable = [span for span in spans if span.start < span.end]  # a span that starts after the file's end is not
    if not satisfiable:
        raise HTTPException(416, f"the file has {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    # Overlapping ranges could make an answer many times the file's size; RFC 9110, 14.2 lets a server ignore them.
    return satisfiable if sum(map(len, satisfiable)) <= size else None


def disposition(filename: str, *, inline: bool = False) -> str:
    """Returns the `Content-Disposition` with which a browser saves the file under this name (RFC 6266), or shows it."""
    quoted, kind = quote(filename, safe=""), "inline" if inline else "attachment"
    return f'{kind}; filename="{filename}"' if quoted == filename else f"{kind}; filename*=UTF-8''{quoted}"


def _span(first: str, last: str, *, size: int) -> Span:
    if not first:
        return Span(max(size - int(last), 0), size)
    return Span(int(first), min(int(last) + 1, size) if last else size)


def _pieces(spans: Sequence[Span] | None, *, size: int, media_type: str) -> tuple[list[bytes | Span], dict[str, str]]:
    """Returns the parts of the body, and the headers that describe them."""
    if spans is None:
        return [Span(0, size)], {}
    if len(spans) == 1:
        return [spans[0]], {"Content-Range": _content_range(spans[0], size=size)}
    boundary = token_hex(16)
    pieces: list[bytes | Span] = []
    for span in spans:
        lines = (
            f"--{boundary}",
            f"Content-Type: {media_type}",
            f"Content-Range: {_content_range(span, size=size)}",
            "",
            "",
        )
        pieces += [(b"\r\n" if pieces else b"") + "\r\n".join(lines).encode(), span]
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    return pieces, {"Content-Type": f"multipart/byteranges; boundary={boundary}"}


def _parts(pieces: Iterable[bytes | Span]) -> Iterator[bytes | Span]:
    """Yields the pieces, long ones in parts."""
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            continue
        for start in range(piece.start, piece.end, _PART):
            yield Span(start, min(start + _PART, piece.end))


def _content_range(span: Span, *, size: int) -> str:
    return f"bytes {span.start}-{span.end - 1}/{size}"


class _Files(AbstractContextManager["_Files"]):
    """The files of a layout, of which one is open. Raises OSError."""

    def __init__(self, first: Path) -> None:
        self._path, self._file = first, first.open("rb", buffering=0)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def at(self, path: Path) -> BinaryIO:
        if path != self._path:
            self._file.close()
            self._path, self._file = path, path.open("rb", buffering=0)
        return self._file


async def _send_piece(part: bytes | Part, files: _Files, scope: Scope, send: Send) -> None:
    if isinstance(part, bytes):
        await send({"type": "http.response.body", "body": part, "more_body": True})
        return
    piece, file = part.span, await to_thread.run_sync(files.at, part.path)
    if ZERO_COPY in scope.get("extensions", {}):
        message = {"type": ZERO_COPY, "file": file, "offset": piece.start, "count": len(piece), "more_body": True}
        await send(message)
    else:
        for offset in range(piece.start, piece.end, _CHUNK):
            chunk = await to_thread.run_sync(os.pread, file.fileno(), min(_CHUNK, piece.end - offset), offset)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
