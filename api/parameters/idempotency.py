"""Reads the idempotency key of a request."""

import hashlib
import re
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.concurrency import run_in_threadpool

from api.access.auth import JobWriter
from api.parameters.batches import BatchBytes
from api.parameters.bodies import Body
from store.jobs.submission import KeyedRequest
from torchyard.contract.errors import FieldError, InvalidRequest

_KEY = "Idempotency-Key"
_KEY_PATTERN = "^[!-~]{1,255}$"
_Key = Annotated[
    str | None,
    Header(
        alias=_KEY,
        description="A unique name for this request, kept for 24 hours. Repeated, it gets the same job",
        json_schema_extra={"pattern": _KEY_PATTERN},
    ),
]


def _key_of(request: Request, key: str | None) -> str | None:
    """Returns the key. Raises InvalidRequest."""
    if key is not None and len(request.headers.getlist(_KEY)) > 1:
        raise _invalid_key("was sent more than once")
    if key is not None and re.fullmatch(_KEY_PATTERN, key) is None:
        raise _invalid_key("must be 1 to 255 visible ASCII characters")
    return key


async def _keyed(request: Request, body: Body, caller: JobWriter, key: _Key = None) -> KeyedRequest | None:
    """Returns the request with its key, or None if it has no key. Raises InvalidRequest."""
    found = _key_of(request, key)
    return None if found is None else KeyedRequest(caller.name, found, _fingerprint(request, body))


async def _keyed_batch(request: Request, body: BatchBytes, caller: JobWriter, key: _Key = None) -> KeyedRequest | None:
    """Does what `_keyed` does for a body that may be large."""
    found = _key_of(request, key)
    if found is None:
        return None
    return KeyedRequest(caller.name, found, await run_in_threadpool(_fingerprint, request, body))


Keyed = Annotated[KeyedRequest | None, Depends(_keyed)]
"""A route's parameter: the request's idempotency key with its fingerprint; None if it has no key."""
KeyedBatch = Annotated[KeyedRequest | None, Depends(_keyed_batch)]
"""The same for a batch."""


def _fingerprint(request: Request, body: bytes) -> str:
    return hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + body).hexdigest()


def _invalid_key(message: str) -> InvalidRequest:
    return InvalidRequest("the idempotency key is not valid", errors=(FieldError(_KEY, message),))
