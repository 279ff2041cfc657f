"""Reads the bodies of requests. A route's parameter of a type from here has the body, parsed and checked."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from api.auth.access import AccessDep
from api.auth.callers import Principal, authenticate, count_wrong_body
from api.openapi import bodies
from api.openapi.bodies import DeclaredBody
from api.services import ServicesDep
from torchyard.contract.errors import InvalidRequest, RequestTimeout, TooLarge
from torchyard.contract.jobs.requests import JobPatch, parse_patch
from torchyard.contract.spec.spec import MOST_SPEC_BYTES, Spec, parse_spec
from torchyard.contract.team.requests import CodeLogin, Joining, Login
from torchyard.contract.wire.schema import Schema, parse_request, parsed_json

_MOST_LOGIN_BYTES = 4096
_LOGIN_S = 5.0
"""Longest time for the whole body of a client that has not shown a credential yet."""
_MOST_LOGIN_VALUES = 20
"""Keys and values in the body of a client that has not shown a credential yet: parsing it costs next to nothing."""
_THREAD_BYTES = 1 << 8
"""A body of this size is parsed in a turn of the caller: finding what is wrong with it may take milliseconds."""


async def _body(request: Request, services: ServicesDep) -> bytes:
    """Reads the request's body. Raises TooLarge before more than the limit is in memory."""
    return await read_body(request, most=services.settings.max_body_bytes)


Body = Annotated[bytes, Depends(_body)]
"""A route's parameter: the bytes of the request's body, which are read once for all dependencies."""


async def _login_body(request: Request) -> bytes:
    """Reads a body before it is known who sends it. Raises TooLarge and RequestTimeout."""
    try:
        async with asyncio.timeout(_LOGIN_S):
            return await read_body(request, most=_MOST_LOGIN_BYTES)
    except TimeoutError:
        raise RequestTimeout(f"the body was not complete within {_LOGIN_S:.0f} s") from None


async def _spec_body(body: Body) -> bytes:
    """Raises TooLarge if the body is too large for a job spec."""
    if len(body) > MOST_SPEC_BYTES:
        raise TooLarge(f"the job spec has {len(body)} bytes: send at most {MOST_SPEC_BYTES}")
    return body


def json_body(kind: type[Schema], *, example: Any, required: bool = True) -> Any:
    """Returns the dependency of a route: the body as a `kind`. Raises TooLarge, and InvalidRequest for wrong fields.

    `required`: otherwise, no body is an empty object.
    """
    declared = bodies.json(kind, example=example, required=required)
    return _parsed_by(partial(parse_request, kind), declared, empty=None if required else {})


def _parsed_by(
    parse: Callable[[Any], Any], declared: DeclaredBody, *, source: Callable[..., Any] = _body, empty: Any = None
) -> Any:
    """Returns the dependency that parses what `source` has read, as JSON, once it is known who sends it.

    `empty`: what an empty body means, if it means anything. Raises what `authenticate`, `source` and `parse` do.
    """

    @bodies.declares(declared)
    async def read(
        services: ServicesDep,
        caller: Annotated[Principal, Depends(authenticate)],
        body: Annotated[bytes, Depends(source)],
    ) -> Any:
        if not body and empty is not None:
            return parse(empty)
        if len(body) < _THREAD_BYTES:
            return parse(parsed_json(body))
        return await services.parses.begin(caller.key, lambda: parse(parsed_json(body)))

    return Depends(read)


def _of_stranger(parse: Callable[[Any], Any], declared: DeclaredBody) -> Any:
    """Returns the dependency that parses a body for which nobody has shown a credential.

    A wrong one is counted as a wrong token is: it costs as much, and no program of ours sends one.
    Raises what `_login_body` and `parse` do, and TooManyRequests.
    """

    @bodies.declares(declared)
    async def read(request: Request, access: AccessDep, body: Annotated[bytes, Depends(_login_body)]) -> Any:
        try:
            return parse(parsed_json(body))
        except InvalidRequest:
            await count_wrong_body(request, access)
            raise

    return Depends(read)


def _login(sent: object) -> Login | CodeLogin:
    kind = CodeLogin if isinstance(sent, dict) and "code" in sent else Login
    return parse_request(kind, sent, most_values=_MOST_LOGIN_VALUES)


def _code(sent: object) -> CodeLogin:
    return parse_request(CodeLogin, sent, most_values=_MOST_LOGIN_VALUES)


def _joining(sent: object) -> Joining:
    return parse_request(Joining, sent, most_values=_MOST_LOGIN_VALUES)


SpecBody = Annotated[Spec, _parsed_by(parse_spec, bodies.SPEC, source=_spec_body)]
PatchBody = Annotated[JobPatch, _parsed_by(parse_patch, bodies.json(JobPatch, example={"priority": 10}))]
LoginBody = Annotated[Login | CodeLogin, _of_stranger(_login, bodies.json(Login, CodeLogin, example={"token": "ty_…"}))]
JoiningBody = Annotated[
    Joining,
    _of_stranger(_joining, bodies.json(Joining, example={"code": "0" * 32, "version": "0.1.0", "key": "0" * 43})),
]
CodeBody = Annotated[CodeLogin, _of_stranger(_code, bodies.json(CodeLogin, example={"code": "…"}))]


async def read_body(request: Request, *, most: int, accept: Callable[[int], Awaitable[None]] | None = None) -> bytes:
    """Reads the request's body. Raises TooLarge before more than `most` bytes are in memory.

    `accept` is called with the number of bytes so far, and may hold up the client.
    """
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
            if accept is not None:
                await accept(len(received))
    except ClientDisconnect:
        raise InvalidRequest("the connection was closed before the body was complete") from None
    return bytes(received)
