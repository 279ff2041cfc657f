"""Reads the idempotency key of a request."""

import hashlib
import re
from typing import Annotated

from fastapi import Depends, Header, Request

from api.access.auth import JobWriter
from api.parameters.bodies import Body
from store.facts.submission import KeyedRequest
from torchyard.contract.errors import FieldError, InvalidRequest

_KEY = "Idempotency-Key"
_KEY_PATTERN = "^[!-~]{1,255}$"


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


def _invalid_key(message: str) -> InvalidRequest:
    return InvalidRequest("the idempotency key is not valid", errors=(FieldError(_KEY, message),))
