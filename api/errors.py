"""Answers every error of the service as an RFC 9457 problem."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
import logging
import re

from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope
import uuid_utils

from store.blobs.folder import FolderAway
from torchyard.contract.errors import (
    InvalidRequest,
    MethodNotAllowed,
    NotAuthorized,
    RangeNotSatisfiable,
    TooLarge,
    TorchyardError,
    Unavailable,
    UnknownRoute,
)
from torchyard.contract.wire.findings import errors_of
from torchyard.contract.wire.view import Problem

PROBLEM_TYPE = "application/problem+json"
"""The media type of every error."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HTTP = {kind.status: kind for kind in (UnknownRoute, MethodNotAllowed, TooLarge, RangeNotSatisfiable)}
"""The errors that the framework raises itself, by status."""
_log = logging.getLogger(__name__)


class Interrupted(Exception):
    """An answer that has begun must not be completed. Its connection is closed, so that the client knows."""


def answer(request: Request, error: TorchyardError, *, headers: Mapping[str, str] | None = None) -> Response:
    """Returns the answer for an error."""
    problem = Problem.of(error, request_id=request.state.request_id)
    content = None if request.method == "HEAD" else problem.model_dump_json()
    return Response(content, status_code=problem.status, headers=dict(headers or {}), media_type=PROBLEM_TYPE)


def denial(scope: Scope, error: TorchyardError) -> Response:
    """Returns the answer for a WebSocket that is not opened."""
    problem = Problem.of(error, request_id=scope["state"]["request_id"])
    return Response(problem.model_dump_json(), problem.status, headers_of(error), PROBLEM_TYPE)


def http_answer(error: TorchyardError, *, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns a whole HTTP/1.1 answer that closes the connection, for a request that does not reach the application."""
    request_id = _new_id()
    own = {**headers_of(error), "X-Request-ID": request_id, "Connection": "close"}
    body = Problem.of(error, request_id=request_id).model_dump_json()
    response = Response(body, status_code=error.status, headers=own, media_type=PROBLEM_TYPE)
    status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
    return b"\r\n".join([status, *map(b": ".join, [*headers, *response.raw_headers]), b"", bytes(response.body)])


def headers_of(error: TorchyardError) -> dict[str, str]:
    """Returns the headers by which the answer for an error says what to do next."""
    challenge = {"WWW-Authenticate": "Bearer"} if isinstance(error, NotAuthorized) else {}
    pause = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return challenge | pause


def request_id(scope: Scope) -> str:
    """Returns the id of a request: the caller's if it is valid, else a new one."""
    sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
    return sent if _REQUEST_ID.fullmatch(sent) else _new_id()


def answer_to(request: Request, error: Exception) -> Response:
    """Returns the answer for an exception of a route, whose answer has not begun."""
    match error:
        case TorchyardError():
            return _to_error(request, error)
        case FolderAway():
            _log.error("request %s: %s", request.state.request_id, error)
            problem = Unavailable("the files of checkpoints, artifacts and bundles cannot be reached now")
            return answer(request, problem, headers=headers_of(problem))
        case RequestValidationError():
            faults = [{**item, "loc": item["loc"][1:]} for item in error.errors()]
            return answer(request, InvalidRequest("the parameters are not valid", errors=errors_of(faults)))
        case HTTPException():
            return _to_http_exception(request, error)
        case _:
            log_failure(request.scope, error)
            return answer(request, TorchyardError("an internal error occurred: see the service's log"))


def log_failure(scope: Scope, error: Exception) -> None:
    """Logs an exception that nothing handled."""
    of = (scope["state"]["request_id"], scope["method"], scope["path"])
    _log.error("request %s (%s %s) failed", *of, exc_info=error)


def _to_error(request: Request, error: TorchyardError) -> Response:
    if isinstance(error, Unavailable):
        _log.warning("request %s: %s", request.state.request_id, error.message)
    return answer(request, error, headers=headers_of(error))


def _to_http_exception(request: Request, error: HTTPException) -> Response:
    kind = _HTTP.get(error.status_code, InvalidRequest)
    website = getattr(request.app.state, "website", None)  # absent where the routes are served alone
    if kind is UnknownRoute and website is not None and (page := website.instead(request)) is not None:
        return page
    headers = {"Allow": _allowed(request)} if kind is MethodNotAllowed else error.headers
    return answer(request, kind(f"{request.method} {request.url.path[:200]}: {error.detail}"), headers=headers)


def _allowed(request: Request) -> str:
    # The framework lists the methods of the first matching route only; other routes may have the same path.
    contexts = list(iter_route_contexts(request.app.routes))
    path = next(context.path for context in contexts if context.original_route is request.scope["route"])
    methods = {method for context in contexts if context.path == path for method in context.methods or ()}
    return ", ".join(sorted(methods, key=_METHODS.index))


def _new_id() -> str:
    return f"req_{uuid_utils.uuid7().hex}"
