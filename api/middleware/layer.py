"""What is done to every request and its answer, in one pass around the routes."""

from collections.abc import Callable
import time

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors as problems
from api.middleware import cookies
from api.middleware.browsers import AllowedHosts, with_common_headers
from api.middleware.compression import compressed_answer, is_json
from api.settings import Settings
from torchyard.contract.errors import TorchyardError, let_go

Count = Callable[[Scope, int, float], None]
"""Counts an answer that begins: to which request, its status, and how many seconds after the request."""


class Layer:
    """Checks the host, drops cookies, answers errors, compresses, adds headers, and counts. Routes are within."""

    def __init__(self, routes: ASGIApp, settings: Settings, *, count: Count) -> None:
        self._routes = routes
        self._hosts = AllowedHosts(settings)
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = problems.request_id(scope)
        answer = _Answer(scope, send, self._count)
        cookies.keep_plain(scope)
        try:
            self._hosts.check(scope)
            await self._routes(scope, receive, answer.send)
        except problems.Interrupted:
            raise
        except Exception as error:
            if answer.started:
                problems.log_failure(scope, error)
                raise
            response = problems.answer_to(Request(scope), error)
            await response(scope, receive, answer.send)
            let_go(error)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Leaves a WebSocket to its route, or answers what that raises before it accepts it."""
        scope.setdefault("state", {})["request_id"] = problems.request_id(scope)
        cookies.keep_plain(scope)
        try:
            self._hosts.check(scope)
            await self._routes(scope, receive, send)
        except TorchyardError as error:
            await problems.denial(scope, error)(scope, receive, send)


class _Answer:
    """The answer to one request, on its way out."""

    def __init__(self, scope: Scope, send: Send, count: Count) -> None:
        self.started = False
        self._scope = scope
        self._send = send
        self._count = count
        self._began = time.monotonic()
        self._held: Message | None = None
        """The start of an answer of JSON, until the size of its body is known."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if is_json(message):
                self._held = message
            else:
                await self._start(message)
            return
        if self._held is not None:
            held, self._held = self._held, None
            message = await compressed_answer(self._scope, held, message)
            await self._start(held)
        await self._send(message)

    async def _start(self, message: Message) -> None:
        self.started = True
        request_id: str = self._scope["state"]["request_id"]
        message["headers"] = with_common_headers([*message["headers"], (b"x-request-id", request_id.encode())])
        self._count(self._scope, message["status"], time.monotonic() - self._began)
        await self._send(message)
