"""The way to one server: calls are sent, and sent again where that is harmless."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
import time
from typing import Any, TypeVar
from urllib.parse import urlsplit
import weakref

import httpx2
from pydantic import BaseModel

from torchyard.client import calls, stream
from torchyard.client.answers import Patience, parse, problem, unreachable
from torchyard.client.calls import Call
from torchyard.client.stream import Kind, Reading, StreamItem
from torchyard.discovery import Server
from torchyard.errors import ServerUnreachable, TorchyardError, Unavailable
from torchyard.views import Page

V = TypeVar("V", bound=BaseModel)

TIMEOUT = httpx2.Timeout(30, connect=5)
_FIRST_PATIENCE = 0.5
"""Seconds for which a server that was never reached is tried."""
_STEADY_S = 10.0
"""A stream that was open for this long was a good one, even if nothing came."""


def options(server: Server) -> dict[str, Any]:
    """What an HTTP client of the server is made with."""
    local = urlsplit(server.url).hostname in {"127.0.0.1", "localhost", "::1"}
    return {
        "base_url": server.url,
        "headers": {"Authorization": f"Bearer {server.token}", "User-Agent": "torchyard"},
        "timeout": TIMEOUT,
        # A proxy cannot reach this machine's loopback, and a plain connection needs no certificates.
        "trust_env": not local,
        "verify": server.url.startswith("https:"),
    }


class Connection:
    def __init__(self, server: Server, *, patience: float) -> None:
        self._server = server
        self._patience = patience
        self._reached = False
        self._http = httpx2.Client(**options(server))
        # Also when the last list or stream that reads from it is gone.
        self.close = weakref.finalize(self, self._http.close)

    def patience(self) -> Patience:
        return Patience(self._patience if self._reached else _FIRST_PATIENCE)

    def answer(self, call: Call[V]) -> V:
        return parse(self.send(call), call.kind)

    def pages(self, call: Call[Page[V]], *, limit: int | None = None) -> Iterator[V]:
        """The items of a list, at most `limit` of them; its pages are fetched as they are needed."""
        left = limit
        while True:
            page = self.answer(call)
            yield from page.data[:left]
            left = None if left is None else left - len(page.data)
            if not page.has_more or page.next is None or (left is not None and left <= 0):
                return
            call = calls.behind(call, page.next)

    def send(self, call: Call[Any]) -> httpx2.Response:
        """The answer, if it is a success; else the error that it stands for is raised."""
        patience = self.patience()
        while True:
            try:
                response = self.attempt(call)
                break
            except ServerUnreachable as error:
                unsent = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
                if not (unsent or call.repeatable):
                    raise
                time.sleep(patience.pause(error))
        if response.is_success:
            return response
        raise problem(response)

    def attempt(self, call: Call[Any]) -> httpx2.Response:
        """The answer to one try, whatever it is. Raises ServerUnreachable."""
        params = {key: value for key, value in call.params.items() if value is not None}
        try:
            response = self._http.request(
                call.method, call.path, params=params or None, content=call.content, headers=call.headers
            )
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        self._reached = True
        return response

    @contextmanager
    def body(self, path: str, headers: Mapping[str, str]) -> Generator[httpx2.Response]:
        """An answer whose body the caller reads. Raises as `send` does; a connection that is cut in the middle too."""
        try:
            with self._http.stream("GET", path, headers=headers) as response:
                _check(response)
                yield response
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    def events(self, path: str, reading: Reading, only: tuple[Kind, ...]) -> Generator[StreamItem]:
        """The items behind where `reading` is, to the end of the job; over as many connections as it takes."""
        patience = self.patience()
        while not reading.ended:
            before, began = reading.position, time.monotonic()
            try:
                yield from self._connection(path, reading, only)
                error: TorchyardError = ServerUnreachable(f"{self._server.url} ended the stream before its end")
            except (ServerUnreachable, Unavailable) as cut:
                error = cut
            if reading.ended:
                return
            if reading.position > before or time.monotonic() - began > _STEADY_S:
                patience = self.patience()
            time.sleep(patience.pause(error))

    def _connection(self, path: str, reading: Reading, only: tuple[Kind, ...]) -> Generator[StreamItem]:
        params = {"only": list(only)} if only else None
        try:
            with self._http.sse(path, params=params, headers=reading.headers, timeout=stream.TIMEOUT) as events:
                _check(events.response)
                self._reached = True
                for event in events:
                    item = reading.take(event, events.response)
                    if item is not None:
                        yield item
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error


def _check(response: httpx2.Response) -> None:
    if not response.is_success:
        response.read()
        raise problem(response)
