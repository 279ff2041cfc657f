"""Answers that name their content, so that who has it already is not sent it again (RFC 9110, 8.8.3 and 13.1.2)."""

import hashlib

from starlette.requests import Request
from starlette.responses import Response


def answer(request: Request, content: bytes, *, media_type: str) -> Response:
    """`content` with its strong `ETag`; 304 where the caller's `If-None-Match` names it."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # It may be kept by who asked, but not shown again without asking.
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if is_held(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)


def is_held(request: Request, etag: str) -> bool:
    """Whether the caller's `If-None-Match` names the content."""
    held = ",".join(request.headers.getlist("if-none-match")).split(",")
    return any(item.strip().removeprefix("W/") in {etag, "*"} for item in held)
