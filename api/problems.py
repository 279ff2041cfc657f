"""Every error of the service, as RFC 9457 problems."""

from collections.abc import Mapping, Sequence
import logging
import re
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
import uuid_utils

from torchyard.errors import FieldError, InvalidRequest, NotAuthorized, TorchyardError, Unavailable
from torchyard.views import Problem

MEDIA_TYPE = "application/problem+json"

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_MOST_ERRORS = 100
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HTTP = {
    404: ("not_found", "There is no such object"),
    405: ("method_not_allowed", "The method is not possible here"),
    416: ("range_not_satisfiable", "The range lies beyond the end of the file"),
}
"""Code and title of what the framework itself answers."""
_log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Makes `app` answer every error as a problem, and every request with an `X-Request-ID`."""
    app.add_exception_handler(TorchyardError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_middleware(RequestIds)


class RequestIds:
    """Gives each request an id, the caller's own if it sent a sound one, and answers what nothing else caught."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("x-request-id", "")
        request_id = asked if _REQUEST_ID.fullmatch(asked) else f"req_{uuid_utils.uuid7().hex}"
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            _log.exception("request %s (%s %s) failed", request_id, scope["method"], scope["path"])
            if started:
                raise
            await _render(Request(scope), TorchyardError("something went wrong here; the log has it"))(
                scope, receive, send_with_id
            )


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TorchyardError)
    if isinstance(error, Unavailable):
        _log.warning("request %s: %s", request.state.request_id, error.message)
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, NotAuthorized) else None
    return _render(request, error, headers=headers)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: Sequence[Any] = error.errors()
    errors = tuple(FieldError(".".join(map(str, item["loc"][1:])), str(item["msg"])) for item in found)
    return _render(request, InvalidRequest("the parameters are not valid", errors=errors))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, title = _HTTP.get(error.status_code, ("http_error", "The request cannot be answered"))
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    return _answer(request, status=error.status_code, code=code, title=title, detail=detail, headers=headers)


def _allowed(request: Request) -> str:
    # The framework names the methods of the first route at this path; others may stand at it too.
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    routes: Sequence[BaseRoute] = request.app.routes
    found = [
        method for method, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]
    return ", ".join(found)


def _render(request: Request, error: TorchyardError, *, headers: Mapping[str, str] | None = None) -> Response:
    return _answer(
        request,
        status=error.status,
        code=error.code,
        title=error.title,
        detail=error.message,
        errors=error.errors,
        headers=headers,
    )


def _answer(
    request: Request,
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    problem = Problem(
        type=f"urn:torchyard:problem:{code}",
        title=title,
        status=status,
        detail=detail,
        code=code,
        request_id=request.state.request_id,
        errors=[{"field": error.field, "message": error.message} for error in errors[:_MOST_ERRORS]],
    )
    content = None if request.method == "HEAD" else problem.model_dump_json()
    return Response(content, status_code=status, headers=dict(headers or {}), media_type=MEDIA_TYPE)
