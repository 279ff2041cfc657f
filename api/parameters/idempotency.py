"""Reads the idempotency key of a request."""

import hashlib
import re
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.concurrency import run_in_threadpool

from api.auth.callers import JobWriter
from api.parameters.batches import BatchBytes
from api.parameters.bodies import Body
from store.jobs.submission import KeyedRequest
from torchyard.contract.errors import FieldError, InvalidRequest

_THREAD_BYTES = 1 << 16
"""The digest of a body of this size is computed in a thread."""
_KEY = "Idempotency-Key"
_KEY_PATTERN = "^[!-~]{1,255}$"
_Key = Annotated[
    str | None,
    Header(
        alias=_KEY,
        description="A unique name for this request. For 24 hours, a request with the same name gets the same "
        "answer and submits nothing new",
        json_schema_extra={"pattern": _KEY_PATTERN},
    ),
]


async def _keyed(request: Request, body: Body, caller: JobWriter, key: _Key = None) -> KeyedRequest | None:
    return await _named(request, body, caller.name, key)


async def _keyed_batch(request: Request, body: BatchBytes, caller: JobWriter, key: _Key = None) -> KeyedRequest | None:
    return await _named(request, body, caller.name, key)


Keyed = Annotated[KeyedRequest | None, Depends(_keyed)]
"""A route's parameter: the request's idempotency key with its fingerprint; None if it has no key."""
KeyedBatch = Annotated[KeyedRequest | None, Depends(_keyed_batch)]
"""The same for a batch."""


async def _named(request: Request, body: bytes, owner: str, key: str | None) -> KeyedRequest | None:
    """Returns the request with its key, or None if it has no key. Raises InvalidRequest."""
    if key is None:
        return None
    _check(request, key)
    if len(body) < _THREAD_BYTES:
        return KeyedRequest(owner, key, _fingerprint(request, body))
    return KeyedRequest(owner, key, await run_in_threadpool(_fingerprint, request, body))


def _check(request: Request, key: str) -> None:
    """Raises InvalidRequest for a key that is not one."""
    if len(request.headers.getlist(_KEY)) > 1:
        raise _invalid_key("was sent more than once")
    if re.fullmatch(_KEY_PATTERN, key) is None:
        raise _invalid_key("must be 1 to 255 visible ASCII characters")


def _fingerprint(request: Request, body: bytes) -> str:
    return hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + body).hexdigest()


def _invalid_key(message: str) -> InvalidRequest:
    return InvalidRequest("the idempotency key is not valid", errors=(FieldError(_KEY, message),))
