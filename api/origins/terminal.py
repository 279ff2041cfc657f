"""The origin of a terminal: a page of a few files, the requests by which it opens a shell, and its WebSocket."""

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from api.auth.callers import Principal, check_origin
from api.origins.owner import caller_of
from api.parameters.bodies import read_body
from api.routes.reach_streams import pass_stream
from api.services import Services
from api.website import Website
from store.reaches import origins, reaches
from store.reaches.facts import OpenedReach, OriginFacts
from torchyard.contract.errors import Conflict, NotFound, UnknownRoute
from torchyard.contract.reach.orders import Order
from torchyard.contract.reach.requests import NewTerminal
from torchyard.contract.wire.schema import parse_request, parsed_json

POLICY = (
    # xterm makes style elements for its colours and sizes.
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MOST_BYTES = 1000
_ASSETS = "/assets/"


class Terminal:
    """`page`: the built files of the terminal alone."""

    def __init__(self, services: Services, page: Website) -> None:
        self._services = services
        self._page = page

    async def answer(self, facts: OriginFacts, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request with the origin's cookie. Raises TorchyardError."""
        if scope["type"] == "websocket":
            websocket = WebSocket(scope, receive, send)
            check_origin(websocket)
            if scope["path"] != "/stream":
                raise UnknownRoute("there is no such WebSocket")
            await pass_stream(websocket, self._services, facts.reach_id or "", "client")
            return
        request = Request(scope, receive)
        await (await self._answer(facts, request))(scope, receive, send)

    async def _answer(self, facts: OriginFacts, request: Request) -> Response:
        path = request.scope["path"]
        if request.method in {"GET", "HEAD"}:
            if path == "/":
                return await run_in_threadpool(self._page.index, request)
            if path == "/job":
                return JSONResponse({"is_running": facts.is_running})
            if path.startswith(_ASSETS):
                return await run_in_threadpool(self._page.asset, request, path.removeprefix(_ASSETS))
        elif request.method == "POST" and path in {"/shell", "/meetings"}:
            check_origin(request)
            return await self._meet(facts, request, is_new=path == "/shell")
        raise UnknownRoute(f"there is no {request.method} {path[:100]}")

    async def _meet(self, facts: OriginFacts, request: Request, *, is_new: bool) -> Response:
        """Answers where the shell is met: a new one, or again the one that was opened. Raises Conflict and NotFound."""
        if not facts.is_running:
            raise Conflict("the job has ended, or continues in another attempt: open the terminal again from its page")
        body = await read_body(request, most=_MOST_BYTES)
        terminal = parse_request(NewTerminal, parsed_json(body))
        order = Order.from_dict({"kind": "program", "terminal": terminal.model_dump()})
        caller = caller_of(facts, request, self._services)
        opened = await run_in_threadpool(partial(self._open, facts, caller, order if is_new else None))
        return JSONResponse(
            {
                "id": opened.id,
                "meeting": opened.meeting,
                "secret": opened.secret,
                "job_id": facts.job_id,
                "job_name": facts.job_name,
            }
        )

    def _open(self, facts: OriginFacts, caller: Principal, order: Order | None) -> OpenedReach:
        by_operators = self._services.settings.exec_by_operators
        with self._services.store.write("reach") as session:
            if order is None:
                if facts.reach_id is None:
                    raise NotFound("no shell was opened here")
                return reaches.meet_again(session, facts.reach_id, caller=caller, login=facts.session)
            opened = reaches.open_reach(
                session, facts.job_id, order, caller=caller, login=facts.session, by_operators=by_operators
            )
            origins.set_reach(session, facts.name, opened.id)
            return opened
