"""Turns a server's responses, and missing ones, into views and errors."""

import re
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from torchyard.client.discovery import Server
from torchyard.client.versions import lacking
from torchyard.contract.errors import (
    Conflict,
    MethodNotAllowed,
    ServerError,
    ServerUnreachable,
    TooManyRequests,
    TorchyardError,
    Unavailable,
    UnknownRoute,
    all_errors,
)
from torchyard.contract.findings import errors_of
from torchyard.contract.views.base import Problem

V = TypeVar("V", bound=BaseModel)

_BUSY, _PASSING = 429, frozenset({502, 503, 504})
"""Answers of a proxy after which the same call may succeed."""
_KINDS = {kind.code: kind for kind in reversed([*all_errors()])}
"""The class of each code. Where a subclass has the code of its base, it is the base."""
_FILE_NAME = re.compile(r'filename="([A-Za-z0-9][A-Za-z0-9._-]{0,199})"')


def parse(response: httpx2.Response, view: type[V]) -> V:
    """Returns the body as a `view`. Raises ServerError if it is something else."""
    try:
        return view.model_validate_json(response.content)
    except ValidationError as error:
        raise unexpected(response, view.__name__, error) from None


def unexpected(response: httpx2.Response, expected: str, error: ValidationError) -> ServerError:
    """Returns the error for a body that is not the `expected` view."""
    first = errors_of(error.errors(include_url=False, include_input=False))[0]
    return ServerError(
        f"{response.url} answered {response.status_code}, but the body is not a {expected}"
        f" ({first.field}: {first.message}): is it a Torchyard server of this version?"
    )


def problem(response: httpx2.Response) -> TorchyardError:
    """Returns the error for a response that is no success. Its message has everything that the response says."""
    try:
        found = Problem.model_validate_json(response.content)
    except ValidationError:
        return _of_another_server(response)
    lines = [f"{found.detail or found.title} (request {found.request_id})"]
    lines += [f"  {error.field}: {error.message}" if error.field else f"  {error.message}" for error in found.errors]
    kind = _KINDS.get(found.code, ServerError)
    if issubclass(kind, UnknownRoute | MethodNotAllowed) and (why := lacking(response)) is not None:
        lines.append(f"  {why}")
    error = kind("\n".join(lines), errors=tuple(found.errors), retry_after=_retry_after(response))
    if isinstance(error, Conflict):
        error.received = found.received
    return error


def error_of(code: str, message: str) -> TorchyardError:
    """Returns the error of a code that is in an answer."""
    return _KINDS.get(code, ServerError)(message)


def _of_another_server(response: httpx2.Response) -> TorchyardError:
    """Returns the error for a body that is no problem of Torchyard's: a proxy before it may have answered instead."""
    request, pause = response.request, _retry_after(response)
    text = f"{request.method} {response.url} answered {response.status_code}, and the body is not Torchyard's"
    if response.status_code == _BUSY:
        return TooManyRequests(text, retry_after=pause or 0)
    return Unavailable(text, retry_after=pause or 0) if response.status_code in _PASSING else ServerError(text)


def _retry_after(response: httpx2.Response) -> int | None:
    """Returns the seconds after which the server asks for the next try."""
    pause = response.headers.get("Retry-After", "")
    return int(pause) if pause.isdecimal() else None


def unreachable(server: Server, error: httpx2.TransportError) -> ServerUnreachable:
    """Returns the error for a request without a response."""
    failure = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
    detail = str(error) or type(error).__name__
    return ServerUnreachable(f"{server.url} {failure} ({detail}): {server.advice}")


def file_name(response: httpx2.Response) -> str | None:
    """Returns the name that the server gives to the file it sends."""
    match = _FILE_NAME.search(response.headers.get("Content-Disposition", ""))
    return match[1] if match else None
