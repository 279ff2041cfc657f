"""Answers with an `ETag`, and without content if the caller has it already (RFC 9110, 8.8.3 and 13.1.2)."""

import hashlib

from starlette.requests import Request
from starlette.responses import Response


def answer(request: Request, content: bytes, *, media_type: str) -> Response:
    """Returns `content` with its strong `ETag`, or 304 if the caller's `If-None-Match` names it."""
    etag = of(content)
    # The caller may cache it, but must revalidate it before each use.
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if is_current(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)


def of(content: bytes) -> str:
    """Returns the strong `ETag` of the content."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def is_current(request: Request, etag: str) -> bool:
    """Returns whether the caller's `If-None-Match` names the content."""
    held = ",".join(request.headers.getlist("if-none-match")).split(",")
    return any(item.strip().removeprefix("W/") in {etag, "*"} for item in held)
