"""Runs the core's operations in an asyncio loop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from torchyard.client.discovery import Server
from torchyard.client.transport import http_options


class AsyncioTransport:
    """A transport that waits in the running asyncio loop."""

    def __init__(self, server: Server) -> None:
        self._http = httpx2.AsyncClient(**http_options(server))

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return await self._http.request(method, path, **options)

    async def upload(self, path: str, body: Generator[bytes], **options: Any) -> httpx2.Response:
        return await self._http.put(path, content=_in_threads(body), **options)

    @asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncGenerator["_StreamedResponse"]:
        async with self._http.stream("GET", path, **options) as response:
            yield _StreamedResponse(response)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()


async def _in_threads(items: Generator[bytes]) -> AsyncGenerator[bytes]:
    """Yields the items, each of which a thread makes: reading and compressing take long."""
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


class _StreamedResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.response = response

    async def read(self) -> None:
        await self.response.aread()

    def chunks(self) -> AsyncIterator[bytes]:
        return self.response.aiter_raw()

    def events(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        return aiter(httpx2.EventSource(self.response))
