"""Answers with an `ETag`, and without content if the caller has it already (RFC 9110, 8.8.3 and 13.1.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import mimetypes
from pathlib import Path
import re
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from api.middleware.compression import accepts_gzip, compressed

_REVALIDATED = {"Cache-Control": "private, no-cache"}
"""The caller may cache it, but must revalidate it before each use."""
_TYPES = {
    ".js": "text/javascript",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
"""Media types that the host's own tables may have wrong."""
_COMPRESSED = re.compile(r"text/.*|image/svg\+xml|application/(json|manifest\+json)")
_LEAST_BYTES = 1 << 10


def answer(request: Request, content: bytes, *, media_type: str, headers: Mapping[str, str] = _REVALIDATED) -> Response:
    """Returns `content` with its strong `ETag`, or 304 if the caller's `If-None-Match` names it."""
    etag = etag_of(content)
    sent = {**headers, "ETag": etag}
    return unchanged(request, sent) or Response(content, headers=sent, media_type=media_type)


def unchanged(request: Request, headers: Mapping[str, str]) -> Response | None:
    """Returns 304 with the headers if the caller's `If-None-Match` names the `ETag` among them."""
    etag = headers["ETag"].removeprefix("W/")
    held = ",".join(request.headers.getlist("if-none-match")).split(",")
    is_held = any(item.strip().removeprefix("W/") in {etag, "*"} for item in held)
    return Response(status_code=304, headers=dict(headers)) if is_held else None


def etag_of(content: bytes) -> str:
    """Returns the strong `ETag` of the content."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@dataclass(frozen=True)
class Fixed:
    """Content that is the same for all callers. It is compressed once: anybody may ask for it, without a token."""

    content: bytes
    small: bytes
    """The same in gzip; empty if that helps little."""
    media_type: str
    headers: Mapping[str, str]

    @classmethod
    def of(cls, content: bytes, *, media_type: str, headers: Mapping[str, str], in_gzip: bool) -> Self:
        small = compressed(content, level=9) if in_gzip else b""
        return cls(content, small, media_type, {**headers, "ETag": etag_of(content), "Vary": "Accept-Encoding"})

    @classmethod
    def of_file(cls, path: Path, *, headers: Mapping[str, str]) -> Self:
        """Reads a file, whose name says its media type. Raises OSError."""
        content = path.read_bytes()
        media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        is_text = len(content) >= _LEAST_BYTES and _COMPRESSED.fullmatch(media_type) is not None
        return cls.of(content, media_type=media_type, headers=headers, in_gzip=is_text)

    def answer(self, request: Request) -> Response:
        """Returns the content, or 304 if the caller has it."""
        if (answer := unchanged(request, self.headers)) is not None:
            return answer
        if self.small and accepts_gzip(request.headers):
            encoded = {**self.headers, "ETag": f"W/{self.headers['ETag']}", "Content-Encoding": "gzip"}
            return Response(self.small, headers=encoded, media_type=self.media_type)
        return Response(self.content, headers=dict(self.headers), media_type=self.media_type)
