"""Turns an answer that is no success into an error, whatever has fetched it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchyard.client.discovery import Server
from torchyard.client.versions import lacking
from torchyard.contract.errors import (
    Conflict,
    FieldError,
    MethodNotAllowed,
    ServerError,
    ServerUnreachable,
    TooManyRequests,
    TorchyardError,
    Unavailable,
    UnknownRoute,
    all_errors,
)
from torchyard.contract.wire.codec import Record
from torchyard.contract.wire.version import HEADER

_BUSY, _PASSING = 429, frozenset({502, 503, 504})
"""Answers of a proxy after which the same call may succeed."""
_KINDS = {kind.code: kind for kind in reversed([*all_errors()])}
"""The class of each code. Where a subclass has the code of its base, it is the base."""


@dataclass(frozen=True)
class Answer:
    """What a server has answered to one call. `address` is the server's, as `http://HOST:PORT`."""

    method: str
    address: str
    path: str
    """With the query."""
    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes

    @property
    def url(self) -> str:
        return f"{self.address}{self.path}"


@dataclass(frozen=True, kw_only=True)
class _Field(Record):
    field: str
    message: str


@dataclass(frozen=True, kw_only=True)
class _Problem(Record):
    title: str
    detail: str
    code: str
    request_id: str
    errors: list[_Field] = field(default_factory=list[_Field])
    received: int | None = None


def problem_of(answer: Answer) -> TorchyardError:
    """Returns the error that an unsuccessful answer reports, of the class of its code, with its detail and fields."""
    try:
        found = _Problem.from_json(answer.body)
    except ValueError:
        return _of_another_server(answer)
    lines = [f"{found.detail or found.title} (request {found.request_id})"]
    lines += [f"  {error.field}: {error.message}" if error.field else f"  {error.message}" for error in found.errors]
    kind = _KINDS.get(found.code, ServerError)
    if issubclass(kind, UnknownRoute | MethodNotAllowed):
        call = f"{answer.method} {answer.path.partition('?')[0]}"
        why = lacking(answer.headers.get(HEADER.lower(), ""), call, answer.address)
        lines += [] if why is None else [f"  {why}"]
    errors = tuple(FieldError(error.field, error.message) for error in found.errors)
    error = kind("\n".join(lines), errors=errors, retry_after=_retry_after(answer))
    if isinstance(error, Conflict):
        error.received = found.received
    return error


def error_of(code: str, message: str) -> TorchyardError:
    """Returns the error of a code that is in an answer."""
    return _KINDS.get(code, ServerError)(message)


def no_such_view(answered: str, status: int, expected: str, finding: str) -> ServerError:
    """Returns the error for a body that is not the `expected` view. `answered` is the address that was called."""
    return ServerError(
        f"{answered} answered {status}, but the body is not a {expected}"
        f" ({finding}): is it a Torchyard server of this version?"
    )


def no_answer(server: Server, detail: str, *, in_time: bool = True) -> ServerUnreachable:
    """Returns the error for a request without an answer. `in_time`: it failed, and was not given up."""
    failure = "cannot be reached" if in_time else "did not answer in time"
    advice = server.advice
    if "CERTIFICATE_VERIFY_FAILED" in detail:
        known = "the one of your login" if server.certificate else "one of an authority that this machine trusts"
        advice = (
            f"its certificate is not {known}. An administrator makes a code for a new login, which names the"
            " certificate: `torchyard users code NAME`"
        )
    return ServerUnreachable(f"{server.url} {failure} ({detail}): {advice}")


def _of_another_server(answer: Answer) -> TorchyardError:
    """Returns the error for a body that is no problem of Torchyard's: a proxy before it may have answered instead."""
    pause = _retry_after(answer)
    text = f"{answer.method} {answer.url} answered {answer.status}, and the body is not Torchyard's"
    if answer.status == _BUSY:
        return TooManyRequests(text, retry_after=pause or 0)
    return Unavailable(text, retry_after=pause or 0) if answer.status in _PASSING else ServerError(text)


def _retry_after(answer: Answer) -> int | None:
    """Returns the seconds after which the server asks for the next try."""
    pause = answer.headers.get("retry-after", "")
    return int(pause) if pause.isdecimal() else None
