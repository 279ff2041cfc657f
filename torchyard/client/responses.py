"""Turns a server's responses, and missing ones, into views and errors."""

import re
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from torchyard.client.problems import no_such_view, problem_of
from torchyard.client.transport import answer_of
from torchyard.contract.errors import ServerError, TorchyardError
from torchyard.contract.wire.findings import errors_of

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
    first = errors_of(error.errors(include_url=False, include_input=False))[0]
    return no_such_view(str(response.url), response.status_code, expected, f"{first.field}: {first.message}")


def problem(response: httpx2.Response) -> TorchyardError:
    """Returns the error for a response that is no success. Its message has everything that the response says."""
    return problem_of(answer_of(response, response.content))


def file_name(response: httpx2.Response) -> str | None:
    """Returns the name that the server gives to the file it sends."""
    match = _FILE_NAME.search(response.headers.get("Content-Disposition", ""))
    return match[1] if match else None
