"""Answers requests to origins: nothing of the service is there, and nothing without the cookie of a ticket."""

from html import escape

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors as problems
from api.auth.callers import count_wrong_proof
from api.middleware import cookies
from api.middleware.browsers import with_common_headers
from api.origins.owner import caller_of
from api.origins.ports import Ports
from api.origins.proxy import pass_on
from api.origins.terminal import Terminal
from api.server.origins import OPEN
from api.services import Services
from store.reaches import origins
from store.reaches.facts import OriginFacts
from torchyard.contract.errors import NotAuthorized, TorchyardError

_LONGEST_SECRET = 100
_CLOSED = "this page is closed: open it again from the page of the job"
_ENTERED = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=/">
<title>Torchyard</title>
<p><a href="/">Go on</a></p>
</html>
"""
"""A page that goes on by itself: after a redirect from another site a browser would not send the new cookie yet."""


_REFUSED = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Torchyard</title>
<h1>Nothing is shown here</h1>
<p>The service says: {words}.</p>
</html>
"""


class Gate:
    """Stands before the service, which never sees a request to an origin."""

    def __init__(self, service: ASGIApp, services: Services, terminal: Terminal) -> None:
        self._service = service
        self._services = services
        self._terminal = terminal
        self._ports = Ports(services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] in {"http", "websocket"}
        name = self._services.origins.name_in(scope["headers"]) if is_request else None
        if name is None:
            await self._service(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = problems.request_id(scope)
        try:
            await self._answer(name, scope, receive, send)
        except TorchyardError as error:
            await self._refuse(error, scope, receive, send)

    async def _answer(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises NotAuthorized, Forbidden and what the origin itself raises."""
        if scope["type"] == "http" and scope["path"] == OPEN:
            await (await self._enter(name, scope))(scope, receive, _Guarded(send).send)
            return
        facts = await self._facts(name, scope)
        if facts.port is None:
            cookies.keep_plain(scope)
            await self._terminal.answer(facts, scope, receive, _Guarded(send).send)
            return
        caller = caller_of(facts, HTTPConnection(scope), self._services)
        await pass_on(self._ports.connected(facts, caller), facts, scope, receive, send)

    async def _enter(self, name: str, scope: Scope) -> Response:
        """Answers a ticket with a cookie. Raises NotAuthorized."""
        ticket = QueryParams(scope["query_string"]).get("ticket", "")
        cookie = None
        if scope["method"] == "GET" and len(ticket) <= _LONGEST_SECRET:
            cookie = await run_in_threadpool(self._take, name, ticket)
        if cookie is None:
            await count_wrong_proof(HTTPConnection(scope), self._services.access)
            raise NotAuthorized("this link works once, within 30 s: open it again from the job's page")
        answer = Response(_ENTERED, media_type="text/html")
        secure = self._services.origins.is_secure(scope)
        answer.set_cookie(_cookie_name(secure), cookie, path="/", secure=secure, httponly=True, samesite="strict")
        return answer

    async def _facts(self, name: str, scope: Scope) -> OriginFacts:
        """Raises NotAuthorized for a request without the origin's cookie, and once nothing is there any more."""
        sent = _sent(scope, _cookie_name(self._services.origins.is_secure(scope)))
        if not sent:
            raise NotAuthorized(_CLOSED)
        facts = await self._services.access.at_once(self._find, name, sent)
        if facts is None:
            await count_wrong_proof(HTTPConnection(scope), self._services.access)
            raise NotAuthorized(_CLOSED)
        return facts

    def _take(self, name: str, ticket: str) -> str | None:
        with self._services.store.write("reach") as session:
            return origins.take_ticket(session, name, ticket)

    def _find(self, name: str, cookie: str) -> OriginFacts | None:
        with self._services.store.read() as session:
            return origins.find(session, name, cookie)

    async def _refuse(self, error: TorchyardError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await problems.denial(scope, error)(scope, receive, send)
            return
        request = Request(scope)
        answer = problems.answer(request, error, headers=problems.headers_of(error))
        if "text/html" in request.headers.get("accept", ""):
            answer = Response(_REFUSED.format(words=escape(error.message)), error.status, media_type="text/html")
        await answer(scope, receive, _Guarded(send).send)


class _Guarded:
    """Adds the headers that protect browsers to what is not a job's answer."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = with_common_headers([*message["headers"]])
        await self._send(message)


def _cookie_name(secure: bool) -> str:
    return "__Host-torchyard-origin" if secure else "torchyard-origin"


def _sent(scope: Scope, name: str) -> str:
    """Returns the value of the cookie; an empty text without it."""
    for key, value in scope["headers"]:
        for pair in value.split(b";") if key == b"cookie" else ():
            found, _, text = pair.strip().partition(b"=")
            if found == name.encode():
                return text.decode("latin-1")[:_LONGEST_SECRET]
    return ""
