"""The way to one server for `async` code: it waits without a thread."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
import time
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel

from torchyard.client import calls
from torchyard.client.answers import Patience, parse, problem, unreachable
from torchyard.client.calls import Call
from torchyard.client.connection import (
    FIRST_PATIENCE,
    STEADY_S,
    arguments,
    ended_early,
    may_be_sent_again,
    options,
)
from torchyard.client.discovery import Server
from torchyard.client.download import PartFile
from torchyard.client.stream import Kind, Reading, StreamItem
from torchyard.contract.errors import ServerUnreachable, TorchyardError, Unavailable
from torchyard.contract.views import Page

V = TypeVar("V", bound=BaseModel)


class AsyncConnection:
    """As `Connection`, for a running asyncio loop."""

    def __init__(self, server: Server, *, patience: float) -> None:
        self._server = server
        self._patience = patience
        self._reached = False
        self._http = httpx2.AsyncClient(**options(server))
        self.close = self._http.aclose

    async def answer(self, call: Call[V]) -> V:
        return parse(await self.send(call), call.kind)

    async def pages(self, call: Call[Page[V]], *, limit: int | None = None) -> AsyncGenerator[V]:
        left = limit
        while True:
            page = await self.answer(call)
            for item in page.data[:left]:
                yield item
            left = None if left is None else left - len(page.data)
            if not page.has_more or page.next is None or (left is not None and left <= 0):
                return
            call = calls.behind(call, page.next)

    async def send(self, call: Call[Any]) -> httpx2.Response:
        patience = self._new_patience()
        while True:
            try:
                response = await self.attempt(call)
                break
            except ServerUnreachable as error:
                if not may_be_sent_again(call, error):
                    raise
                pause = patience.pause(error)
            await asyncio.sleep(pause)
        if response.is_success:
            return response
        raise problem(response)

    async def attempt(self, call: Call[Any]) -> httpx2.Response:
        try:
            response = await self._http.request(call.method, call.path, **arguments(call))
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        self._reached = True
        return response

    async def fill(self, part: PartFile, path: str) -> None:
        patience = self._new_patience()
        while not part.complete:
            before = part.size
            try:
                async with self._body(path, part.headers) as response:
                    part.accept(response)
                    async for chunk in response.aiter_raw():
                        part.write(chunk)
                return
            except ServerUnreachable as error:
                if part.size > before:
                    patience = self._new_patience()
                pause = patience.pause(error)
            await asyncio.sleep(pause)

    async def events(self, path: str, reading: Reading, only: tuple[Kind, ...]) -> AsyncGenerator[StreamItem]:
        patience = self._new_patience()
        while not reading.ended:
            before, began = reading.position, time.monotonic()
            try:
                async with aclosing(self._one_connection(path, reading, only)) as items:
                    async for item in items:
                        yield item
                error: TorchyardError = ended_early(self._server)
            except (ServerUnreachable, Unavailable) as cut:
                error = cut
            if reading.ended:
                return
            if reading.position > before or time.monotonic() - began > STEADY_S:
                patience = self._new_patience()
            await asyncio.sleep(patience.pause(error))

    async def _one_connection(self, path: str, reading: Reading, only: tuple[Kind, ...]) -> AsyncGenerator[StreamItem]:
        try:
            async with self._http.sse(path, **reading.arguments(only)) as events:
                await _check(events.response)
                self._reached = True
                async for event in events:
                    item = reading.take(event, events.response)
                    if item is not None:
                        yield item
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    @asynccontextmanager
    async def _body(self, path: str, headers: Mapping[str, str]) -> AsyncGenerator[httpx2.Response]:
        try:
            async with self._http.stream("GET", path, headers=headers) as response:
                await _check(response)
                yield response
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    def _new_patience(self) -> Patience:
        return Patience(self._patience if self._reached else FIRST_PATIENCE)


async def _check(response: httpx2.Response) -> None:
    if not response.is_success:
        await response.aread()
        raise problem(response)
