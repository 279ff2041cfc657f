"""Sends calls to one server, and sends them again where that does no harm."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
import time
from typing import Any, TypeVar
import warnings

import httpx2
from pydantic import BaseModel

from torchyard.client.backoff import Backoff
from torchyard.client.calls import call as call_calls
from torchyard.client.calls import files as calls
from torchyard.client.calls.call import Call
from torchyard.client.discovery import Server
from torchyard.client.download import Filled
from torchyard.client.responses import parse, problem
from torchyard.client.stream import StreamItem, StreamReader
from torchyard.client.transport import StreamedResponse, Transport, address_of, unreachable
from torchyard.client.upload import Encode, OnUpload, Packed, Step, Steps, compressed, plain
from torchyard.client.versions import difference
from torchyard.contract.bundles.parts import LEAST_SHARED_BYTES, MOST_PARTS_ASKED, SharedParts, parts_in
from torchyard.contract.bundles.views import BundleView
from torchyard.contract.errors import (
    Conflict,
    NotFound,
    ServerUnreachable,
    TooManyRequests,
    TorchyardError,
    Unavailable,
)
from torchyard.contract.wire.version import HEADER
from torchyard.contract.wire.view import Page

V = TypeVar("V", bound=BaseModel)

_UPLOAD_TIMEOUT = httpx2.Timeout(30, connect=5, read=300)
"""The server reads a whole bundle before it answers to its last byte."""

_FIRST_PATIENCE_S = 0.5
"""For this long a request is repeated to a server that never answered."""
_STABLE_S = 10.0
"""A stream that was open for this long resets the backoff, even if no event came."""


class Connection:
    """`patience` is for how many seconds a request is repeated to a server that answered before."""

    def __init__(self, server: Server, transport: Transport, *, patience: float) -> None:
        self.server = server
        self._transport = transport
        self._patience = patience
        self._reached = False
        self._compared = False

    async def close(self) -> None:
        await self._transport.close()

    async def sleep(self, seconds: float) -> None:
        await self._transport.sleep(seconds)

    async def answer(self, call: Call[V]) -> V:
        """Sends the call and returns the answer's view. Raises as `send` does."""
        return parse(await self.send(call), call.view)

    async def pages(
        self, call: Call[Page[V]], *, limit: int | None = None, going_on: Callable[[str], None] | None = None
    ) -> AsyncGenerator[V]:
        """Yields the items of a list, at most `limit`. Each page is fetched when it is needed.

        `going_on` is told the cursor of each further page before it is fetched.
        """
        left = limit
        while True:
            page = await self.answer(call)
            for item in page.data[:left]:
                yield item
            left = None if left is None else left - len(page.data)
            if not page.has_more or page.next is None or (left is not None and left <= 0):
                return
            if going_on is not None:
                going_on(page.next)
            call = call_calls.next_page(call, page.next)

    async def send(self, call: Call[Any]) -> httpx2.Response:
        """Sends the call, repeats it where that is safe, and returns the response. Waits as a `Retry-After` asks.

        Raises the TorchyardError of a response that is no success, and ServerUnreachable.
        """
        unanswered, refused = self._new_backoff(), Backoff(self._patience)
        while True:
            try:
                response = await self.send_once(call)
            except ServerUnreachable as error:
                if not _may_repeat(call, error):
                    raise
                pause = unanswered.next_pause(error)
            else:
                if response.is_success:
                    return response
                error = problem(response)
                if not _may_repeat(call, error):
                    raise error
                pause = refused.next_pause(error)
            await self._transport.sleep(pause)

    async def send_once(self, call: Call[Any]) -> httpx2.Response:
        """Sends the call once and returns the response, also one that is no success. Raises ServerUnreachable."""
        params = {key: value for key, value in call.params.items() if value is not None}
        try:
            response = await self._transport.request(
                call.method, call.path, params=params or None, content=call.content, headers=call.headers
            )
        except httpx2.TransportError as error:
            raise unreachable(self.server, error) from error
        self._hear(response)
        return response

    async def fill(self, part: Filled, path: str) -> None:
        """Fetches what is missing of a file, over as many connections as that takes. Raises as `send` does."""
        backoff = self._new_backoff()
        while not part.complete:
            before = part.size
            try:
                async with self._open(path, headers=part.headers) as streamed:
                    part.accept(streamed.response)
                    async for chunk in streamed.chunks():
                        part.write(chunk)
                return
            except (ServerUnreachable, TooManyRequests, Unavailable) as error:
                if part.size > before:
                    backoff = self._new_backoff()
                pause = backoff.next_pause(error)
            await self._transport.sleep(pause)

    async def upload(
        self, packed: Packed, *, on_progress: OnUpload | None, on_copied: Callable[[int], None] | None = None
    ) -> BundleView:
        """Sends what the server does not have of a bundle's tar, over as many connections as that takes.

        `on_copied` is called with bytes that the server had in other bundles of the user. Raises as `send` does.
        """
        backoff, known, encode = self._new_backoff(), -1, compressed
        steps: Steps | None = None
        view = await self._uploaded(packed.sha256)
        while True:
            received = 0 if view is None or view.size != packed.size else view.received
            if received > known:  # others may send the same bundle, which is progress, too
                backoff, known = self._new_backoff(), received
                if on_progress is not None:
                    on_progress(received, packed.size)
            if view is not None and view.state == "complete":
                return view
            steps = steps or Steps(packed, await self._shared(packed))
            step = steps.at(received)
            try:
                view = await self._take(step, packed, received, encode=encode, on_progress=on_progress)
                if view.state == "complete" or view.received >= step.end:
                    if step.source is not None and on_copied is not None:
                        on_copied(step.end - received)
                    continue
                encode = plain  # the stream ended before the file
                error: TorchyardError = ServerUnreachable(
                    f"{self.server.url} has {view.received} of {packed.size} bytes"
                )
            except (ServerUnreachable, TooManyRequests, Unavailable) as interruption:
                error = interruption
            except NotFound as gone:
                if step.source is None:
                    raise
                steps, error = Steps(packed), gone  # that bundle was deleted
            except Conflict as conflict:
                if conflict.received is None:
                    raise
                error = conflict
            await self._transport.sleep(backoff.next_pause(error))
            view = await self._uploaded(packed.sha256)

    async def _uploaded(self, sha256: str) -> BundleView | None:
        try:
            return await self.answer(calls.bundle(sha256))
        except NotFound:
            return None

    async def _shared(self, packed: Packed) -> list[SharedParts]:
        """Asks which parts of the tar are in bundles of the user."""
        if packed.size < LEAST_SHARED_BYTES:
            return []
        digests = [part.sha256.hex() for part in parts_in(packed.parts)]
        found: list[SharedParts] = []
        for first in range(0, len(digests), MOST_PARTS_ASKED):
            answer = await self.answer(calls.find_parts(digests[first : first + MOST_PARTS_ASKED]))
            found += [replace(run, index=run.index + first) for run in answer.data]
        return found

    async def _take(
        self, step: Step, packed: Packed, received: int, *, encode: Encode, on_progress: OnUpload | None
    ) -> BundleView:
        """Sends the bytes of one step, or has the server copy them."""
        if step.source is not None:
            call = calls.copy_bundle(packed, received, source=step.source, start=step.start, end=step.end)
            return await self._bundle_of(
                self._transport.request(call.method, call.path, params=call.params, timeout=_UPLOAD_TIMEOUT)
            )

        def on_bytes(at: int) -> None:
            if on_progress is not None:
                on_progress(at, packed.size)

        body = encode(packed, received, step.end, on_bytes=on_bytes)
        try:
            return await self._bundle_of(
                self._transport.upload(
                    calls.bundle_path(packed.sha256),
                    body,
                    params={"offset": received, "size": packed.size},
                    headers={"Content-Encoding": "zstd" if encode is compressed else "identity"},
                    timeout=_UPLOAD_TIMEOUT,
                )
            )
        finally:
            with suppress(ValueError):  # a thread still makes the next item of a request that was cancelled
                body.close()

    async def _bundle_of(self, sending: Coroutine[Any, Any, httpx2.Response]) -> BundleView:
        try:
            response = await sending
        except httpx2.TransportError as error:
            raise unreachable(self.server, error) from error
        self._hear(response)
        if not response.is_success:
            raise problem(response)
        return parse(response, BundleView)

    async def events(self, path: str, reader: StreamReader) -> AsyncGenerator[StreamItem]:
        """Yields what follows the reader's position until the job ends, over as many connections as that takes."""
        backoff = self._new_backoff()
        while not reader.ended:
            before, began = reader.position, time.monotonic()
            error: TorchyardError = ServerUnreachable(f"{self.server.url} closed the stream before the job ended")
            try:
                async with aclosing(self._events_of_one_connection(path, reader)) as items:
                    async for item in items:
                        yield item
            except (ServerUnreachable, TooManyRequests, Unavailable) as interruption:
                error = interruption
            if reader.ended:
                return
            if reader.position > before or time.monotonic() - began > _STABLE_S:
                backoff = self._new_backoff()
            await self._transport.sleep(backoff.next_pause(error))

    async def _events_of_one_connection(self, path: str, reader: StreamReader) -> AsyncGenerator[StreamItem]:
        async with self._open(path, **reader.options) as streamed:
            async for event in streamed.events():
                item = reader.take(event, streamed.response)
                if item is not None:
                    yield item

    @asynccontextmanager
    async def _open(self, path: str, **options: Any) -> AsyncGenerator[StreamedResponse]:
        try:
            async with self._transport.stream(path, **options) as streamed:
                self._hear(streamed.response)
                if not streamed.response.is_success:
                    await streamed.read()
                    raise problem(streamed.response)
                yield streamed
        except httpx2.TransportError as error:
            raise unreachable(self.server, error) from error

    def _hear(self, response: httpx2.Response) -> None:
        """Notes that the server answers. Warns once if it is of another version than this client."""
        self._reached = True
        if self._compared or HEADER not in response.headers:  # a proxy may have answered instead
            return
        self._compared = True
        if (text := difference(response.headers[HEADER], address_of(response))) is not None:
            warnings.warn(text, stacklevel=2)

    def _new_backoff(self) -> Backoff:
        return Backoff(self._patience if self._reached else _FIRST_PATIENCE_S)


def _may_repeat(call: Call[Any], error: TorchyardError) -> bool:
    """Whether the call may be sent again: it has done nothing yet, or does no harm twice, and may then succeed."""
    if isinstance(error, ServerUnreachable):
        never_sent = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
        return never_sent or call.repeatable
    return isinstance(error, TooManyRequests) or (error.retry_after is not None and call.repeatable)
