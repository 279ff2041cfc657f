"""Runs routes that may read much: a part at a time, in turns of the users, and no longer than the client stays."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial, wraps
import inspect
from inspect import Parameter
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.responses import Response

from api.auth.callers import Principal
from api.errors import Interrupted
from api.limits.turns import Turns
from api.middleware.compression import gzipped
from api.server.routing import RETURNS_ANSWER
from api.services import ServicesDep
from store.interruption import Interruption

T = TypeVar("T")

Parts = Generator[None, None, T]
"""A read in parts: each `yield` ends a turn, and another thread may do the next part. It returns the answer."""


class Reader:
    """The reads of one request."""

    def __init__(self, request: Request, turns: Turns) -> None:
        self._request = request
        self._turns = turns

    async def answer(self, parts: Parts[Any], caller: Principal) -> Response:
        """Runs the parts, and returns the answer. They return a view, JSON, or a response. Raises as `run` does."""
        return await self.run(_encoded(parts, self._request), caller)

    async def run(self, parts: Parts[T], caller: Principal) -> T:
        """Runs the parts, and returns what they do.

        Raises what they do, TooManyRequests, and Interrupted if the caller leaves: then no further part is read.
        """
        reading = asyncio.ensure_future(self._last(parts, caller))
        leaving = asyncio.ensure_future(_left(self._request))
        leaving.add_done_callback(lambda _: reading.cancel())
        try:
            return await reading
        except asyncio.CancelledError:
            if leaving.done():
                raise Interrupted("the client disconnected") from None
            raise
        finally:
            leaving.cancel()

    async def stream(self, parts: Generator[T], caller: Principal) -> AsyncGenerator[T]:
        """Yields what the parts yield, each made in a turn. It holds no turn while the caller uses what was yielded.

        Raises what they do, and TooManyRequests before the first.
        """
        run = self._turns.begin
        while True:
            ended, part = await _interruptible(run, caller.key, parts)
            if ended:
                return
            yield part
            run = self._turns.go_on

    async def _last(self, parts: Parts[T], caller: Principal) -> T:
        ended, last = await _interruptible(self._turns.begin, caller.key, parts)
        while not ended:
            ended, last = await _interruptible(self._turns.go_on, caller.key, parts)
        return last


async def _reader(request: Request, services: ServicesDep) -> Reader:
    return Reader(request, services.reads)


async def _writer(request: Request, services: ServicesDep) -> Reader:
    return Reader(request, services.writes)


ReaderDep = Annotated[Reader, Depends(_reader)]
"""A route's parameter: what runs the parts of its read."""
WriterDep = Annotated[Reader, Depends(_writer)]
"""A route's parameter: what runs the parts of its write, in threads of their own."""


def in_turns(route: Callable[..., Any], *, of: Any = ReaderDep) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Returns the route that runs `route` in turns of its `caller`, and answers with the JSON of what it returns.

    A route that is a generator is read in parts, and must name its `response_model`.
    """

    @wraps(route)
    async def answer(*, reader: Reader, caller: Principal, **arguments: Any) -> Response:
        return await reader.answer(_parts(route, {**arguments, "caller": caller}), caller)

    signature = inspect.signature(route)
    own = Parameter("reader", Parameter.KEYWORD_ONLY, annotation=of)
    answer.__signature__ = signature.replace(  # pyright: ignore[reportAttributeAccessIssue] - FastAPI reads it
        parameters=[*signature.parameters.values(), own]
    )
    setattr(answer, RETURNS_ANSWER, True)
    del answer.__wrapped__  # pyright: ignore[reportAttributeAccessIssue] - FastAPI would take it for the route
    return answer


writes_in_turns = partial(in_turns, of=WriterDep)
"""The same for a route that changes much."""


def with_data(page: BaseModel, data: bytes) -> bytes:
    """Returns the JSON of a page, which has no items itself, with the JSON of its list."""
    return page.model_dump_json().encode().replace(b'"data":[]', b'"data":' + data, 1)


def _parts(route: Callable[..., Any], arguments: dict[str, Any]) -> Parts[Any]:
    answer: Any = route(**arguments)
    if inspect.isgenerator(answer):
        answer = yield from cast("Parts[Any]", answer)
    return answer


def _encoded(parts: Parts[Any], request: Request) -> Parts[Response]:
    return (yield from _answer_of((yield from parts), request))


def _answer_of(answer: Any, request: Request) -> Parts[Response]:
    """Returns the answer with a view, or with JSON; a response as it is. It yields after each part of a large one."""
    if isinstance(answer, Response):
        return answer
    body = _json(answer) if isinstance(answer, BaseModel) else answer
    return (yield from gzipped(Response(body, media_type="application/json"), request.headers))


def _json(view: BaseModel) -> bytes:
    """Returns the view in JSON, one by one the items of its list: nothing else runs while one is encoded."""
    items: list[Any] | None = getattr(view, "data", None)
    if not items or not isinstance(items[0], BaseModel):  # a list of records is short
        return view.model_dump_json().encode()
    data = ",".join(item.model_dump_json() for item in items)
    return with_data(view.model_copy(update={"data": []}), f"[{data}]".encode())


async def _left(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _interruptible(
    run: Callable[[str, Callable[[], tuple[bool, Any]]], Coroutine[Any, Any, tuple[bool, Any]]],
    user: str,
    parts: Generator[Any, None, Any],
) -> tuple[bool, Any]:
    """Runs the next part. Returns whether it was the last, and what it has yielded or returned.

    A cancellation ends the statement that the database executes for it.
    """
    interruption = Interruption()
    try:
        with interruption.during():
            return await run(user, partial(_advance, parts))
    except asyncio.CancelledError:
        asyncio.get_running_loop().run_in_executor(None, interruption.interrupt)
        raise


def _advance(parts: Generator[Any, None, Any]) -> tuple[bool, Any]:
    try:
        return False, next(parts)
    except StopIteration as end:
        return True, end.value
