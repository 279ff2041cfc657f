"""Turns a server's responses, and missing ones, into views and errors."""

import re
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from torchyard.client.discovery import Server
from torchyard.contract.errors import Conflict, ServerError, ServerUnreachable, TorchyardError
from torchyard.contract.views import Problem

V = TypeVar("V", bound=BaseModel)

_FILE_NAME = re.compile(r'filename="([A-Za-z0-9][A-Za-z0-9._-]{0,199})"')


def parse(response: httpx2.Response, view: type[V]) -> V:
    """Returns the body as a `view`. Raises ServerError if it is something else."""
    try:
        return view.model_validate_json(response.content)
    except ValidationError as error:
        raise unexpected(response, view.__name__, error) from None


def unexpected(response: httpx2.Response, expected: str, error: ValidationError) -> ServerError:
    """Returns the error for a body that is not the `expected` view."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return ServerError(
        f"{response.url} answered {response.status_code}, but the body is not a {expected}"
        f" ({where}: {first['msg']}): is it a Torchyard server of this version?"
    )


def problem(response: httpx2.Response) -> TorchyardError:
    """Returns the error for a response that is no success. Its message has everything that the response says."""
    try:
        found = Problem.model_validate_json(response.content)
    except ValidationError:
        request = response.request
        return ServerError(
            f"{request.method} {response.url} answered {response.status_code}, and the body is not Torchyard's"
        )
    lines = [f"{found.detail or found.title} (request {found.request_id})"]
    lines += [f"  {error.field}: {error.message}" if error.field else f"  {error.message}" for error in found.errors]
    kinds = {kind.code: kind for kind in TorchyardError.__subclasses__()}
    pause = response.headers.get("Retry-After", "")
    error = kinds.get(found.code, ServerError)(
        "\n".join(lines), errors=tuple(found.errors), retry_after=int(pause) if pause.isdecimal() else None
    )
    if isinstance(error, Conflict):
        error.received = found.received
    return error


def unreachable(server: Server, error: httpx2.TransportError) -> ServerUnreachable:
    """Returns the error for a request without a response."""
    failure = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
    detail = str(error) or type(error).__name__
    return ServerUnreachable(f"{server.url} {failure} ({detail}): {server.advice}")


def file_name(response: httpx2.Response) -> str | None:
    """Returns the name that the server gives to the file it sends."""
    match = _FILE_NAME.search(response.headers.get("Content-Disposition", ""))
    return match[1] if match else None
