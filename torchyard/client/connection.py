"""The way to one server: calls are sent, and sent again where that is harmless."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
import time
from typing import Any, TypeVar
from urllib.parse import urlsplit
import weakref

import httpx2
from pydantic import BaseModel

from torchyard.client import calls
from torchyard.client.answers import Patience, parse, problem, unreachable
from torchyard.client.calls import Call
from torchyard.client.discovery import Server
from torchyard.client.download import PartFile
from torchyard.client.stream import Kind, Reading, StreamItem
from torchyard.contract.errors import ServerUnreachable, TorchyardError, Unavailable
from torchyard.contract.views import Page

V = TypeVar("V", bound=BaseModel)

TIMEOUT = httpx2.Timeout(30, connect=5)
FIRST_PATIENCE = 0.5
"""Seconds for which a server that was never reached is tried."""
STEADY_S = 10.0
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


def arguments(call: Call[Any]) -> dict[str, Any]:
    """What an HTTP client sends a call with."""
    params = {key: value for key, value in call.params.items() if value is not None}
    return {"params": params or None, "content": call.content, "headers": call.headers}


def may_be_sent_again(call: Call[Any], error: ServerUnreachable) -> bool:
    unsent = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
    return unsent or call.repeatable


def ended_early(server: Server) -> ServerUnreachable:
    return ServerUnreachable(f"{server.url} ended the stream before its end")


class Connection:
    def __init__(self, server: Server, *, patience: float) -> None:
        self._server = server
        self._patience = patience
        self._reached = False
        self._http = httpx2.Client(**options(server))
        # Also when the last list or stream that reads from it is gone.
        self.close = weakref.finalize(self, self._http.close)

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
        patience = self._new_patience()
        while True:
            try:
                response = self.attempt(call)
                break
            except ServerUnreachable as error:
                if not may_be_sent_again(call, error):
                    raise
                time.sleep(patience.pause(error))
        if response.is_success:
            return response
        raise problem(response)

    def attempt(self, call: Call[Any]) -> httpx2.Response:
        """The answer to one try, whatever it is. Raises ServerUnreachable."""
        try:
            response = self._http.request(call.method, call.path, **arguments(call))
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        self._reached = True
        return response

    def fill(self, part: PartFile, path: str) -> None:
        """Receives what is missing of a file, over as many connections as it takes. Raises as `send` does."""
        patience = self._new_patience()
        while not part.complete:
            before = part.size
            try:
                with self._body(path, part.headers) as response:
                    part.accept(response)
                    for chunk in response.iter_raw():
                        part.write(chunk)
                return
            except ServerUnreachable as error:
                if part.size > before:
                    patience = self._new_patience()
                time.sleep(patience.pause(error))

    def events(self, path: str, reading: Reading, only: tuple[Kind, ...]) -> Generator[StreamItem]:
        """The items behind where `reading` is, to the end of the job; over as many connections as it takes."""
        patience = self._new_patience()
        while not reading.ended:
            before, began = reading.position, time.monotonic()
            try:
                yield from self._one_connection(path, reading, only)
                error: TorchyardError = ended_early(self._server)
            except (ServerUnreachable, Unavailable) as cut:
                error = cut
            if reading.ended:
                return
            if reading.position > before or time.monotonic() - began > STEADY_S:
                patience = self._new_patience()
            time.sleep(patience.pause(error))

    def _one_connection(self, path: str, reading: Reading, only: tuple[Kind, ...]) -> Generator[StreamItem]:
        try:
            with self._http.sse(path, **reading.arguments(only)) as events:
                _check(events.response)
                self._reached = True
                for event in events:
                    item = reading.take(event, events.response)
                    if item is not None:
                        yield item
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    @contextmanager
    def _body(self, path: str, headers: Mapping[str, str]) -> Generator[httpx2.Response]:
        try:
            with self._http.stream("GET", path, headers=headers) as response:
                _check(response)
                yield response
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    def _new_patience(self) -> Patience:
        return Patience(self._patience if self._reached else FIRST_PATIENCE)


def _check(response: httpx2.Response) -> None:
    if not response.is_success:
        response.read()
        raise problem(response)
