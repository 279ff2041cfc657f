"""Reads a request's body and its idempotency key."""

import asyncio
import hashlib
import re
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from api.access.auth import JobWriter
from api.services import ServicesDep
from store.rows.idempotency import KeyedRequest
from torchyard.contract.errors import FieldError, InvalidRequest, RequestTimeout, TooLarge
from torchyard.contract.spec import MOST_SPEC_BYTES

_KEY = "Idempotency-Key"
_KEY_PATTERN = "^[!-~]{1,255}$"
_MOST_LOGIN_BYTES = 4096
_LOGIN_S = 5.0
"""For so long a client without a credential may occupy the server with one body."""


async def _body(request: Request, services: ServicesDep) -> bytes:
    """Reads the request's body. Raises TooLarge before more than the limit is in memory."""
    return await _read(request, most=services.settings.max_body_bytes)


async def _login_body(request: Request) -> bytes:
    """Reads a body before it is known who sends it. Raises TooLarge and RequestTimeout."""
    try:
        async with asyncio.timeout(_LOGIN_S):
            return await _read(request, most=_MOST_LOGIN_BYTES)
    except TimeoutError:
        raise RequestTimeout(f"the body was not complete within {_LOGIN_S:.0f} s") from None


async def _read(request: Request, *, most: int) -> bytes:
    received = bytearray()
    too_large = TooLarge(f"send at most {most} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large
    try:
        async for chunk in request.stream():
            received += chunk
            if len(received) > most:
                raise too_large
    except ClientDisconnect:
        raise InvalidRequest("the connection was closed before the body was complete") from None
    return bytes(received)


Body = Annotated[bytes, Depends(_body)]
"""A route's parameter: the bytes of the request's body."""
LoginBody = Annotated[bytes, Depends(_login_body)]
"""A route's parameter: the bytes of a body that contains the credential."""


async def _spec_body(body: Body) -> bytes:
    """Raises TooLarge if the body is too large for a job spec."""
    if len(body) > MOST_SPEC_BYTES:
        raise TooLarge(f"the job spec has {len(body)} bytes: send at most {MOST_SPEC_BYTES}")
    return body


SpecBody = Annotated[bytes, Depends(_spec_body)]
"""A route's parameter: the bytes of a job spec."""


async def _keyed(
    request: Request,
    body: Body,
    caller: JobWriter,
    key: Annotated[
        str | None,
        Header(
            alias=_KEY,
            description="A unique name for this request, kept for 24 hours. Repeated, it gets the same job",
            json_schema_extra={"pattern": _KEY_PATTERN},
        ),
    ] = None,
) -> KeyedRequest | None:
    """Returns the request with its key, or None if it has no key. Raises InvalidRequest."""
    if key is None:
        return None
    if len(request.headers.getlist(_KEY)) > 1:
        raise _invalid_key("was sent more than once")
    if re.fullmatch(_KEY_PATTERN, key) is None:
        raise _invalid_key("must be 1 to 255 visible ASCII characters")
    digest = hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + body)
    return KeyedRequest(owner=caller.name, key=key, fingerprint=digest.hexdigest())


Keyed = Annotated[KeyedRequest | None, Depends(_keyed)]
"""A route's parameter: the request's idempotency key with its fingerprint; None if it has no key."""


def parsed(body: bytes) -> Any:
    """Parses the body as JSON. Raises InvalidRequest."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None


def _invalid_key(message: str) -> InvalidRequest:
    return InvalidRequest("the idempotency key is not valid", errors=(FieldError(_KEY, message),))
