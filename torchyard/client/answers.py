"""What a client makes of what a server answers, or of its silence."""

import re
import time
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from torchyard.client.discovery import Server
from torchyard.contract.errors import ServerError, ServerUnreachable, TorchyardError
from torchyard.contract.views import Problem

V = TypeVar("V", bound=BaseModel)

_FILE_NAME = re.compile(r'filename="([A-Za-z0-9][A-Za-z0-9._-]{0,199})"')
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


class Patience:
    """For how long something that failed is tried again: `seconds`, counted anew whenever it gets on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE

    def pause(self, error: TorchyardError) -> float:
        """The seconds to wait before the next try. Raises `error` where there is none."""
        pause = self._pause
        if time.monotonic() + pause > self._deadline:
            raise error
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        return pause


def parse(response: httpx2.Response, kind: type[V]) -> V:
    """The body as a `kind`. Raises ServerError where it is something else."""
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise unexpected(response, kind.__name__, error) from None


def unexpected(response: httpx2.Response, what: str, error: ValidationError) -> ServerError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return ServerError(
        f"{response.url} answered {response.status_code} with something else than a {what}"
        f" ({where}: {first['msg']}): is it a Torchyard server of this version?"
    )


def problem(response: httpx2.Response) -> TorchyardError:
    """The error that the answer stands for, with everything it says in its message."""
    try:
        found = Problem.model_validate_json(response.content)
    except ValidationError:
        return ServerError(
            f"{response.request.method} {response.url} answered {response.status_code}, which is no answer of Torchyard"
        )
    lines = [f"{found.detail or found.title} (request {found.request_id})"]
    lines += [f"  {error.field}: {error.message}" if error.field else f"  {error.message}" for error in found.errors]
    kinds = {kind.code: kind for kind in TorchyardError.__subclasses__()}
    return kinds.get(found.code, ServerError)("\n".join(lines), errors=tuple(found.errors))


def unreachable(server: Server, error: httpx2.TransportError) -> ServerUnreachable:
    what = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
    detail = str(error) or type(error).__name__
    return ServerUnreachable(f"{server.url} {what} ({detail}): {server.advice}")


def file_name(response: httpx2.Response) -> str | None:
    """The server's name for the file that it sends."""
    match = _FILE_NAME.search(response.headers.get("Content-Disposition", ""))
    return match[1] if match else None
