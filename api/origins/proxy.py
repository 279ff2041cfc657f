"""Passes the requests of a browser to a port of a job, and its answers back. Neither is held: both are streams."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, suppress

import h11
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Origin as OriginText
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from api.auth.callers import check_origin
from api.errors import Interrupted
from api.origins.headers import to_browser, to_job
from store.reaches.facts import OriginFacts
from torchyard.contract.errors import Conflict, Forbidden
from torchyard.host.channel import Channel, Closed

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_ANSWER_S = 300.0
"""How long a job may send nothing of an answer's head."""
_LARGEST_HEAD = 1 << 16
_LARGEST_MESSAGE = 1 << 24
"""Bytes of a message of a job's WebSocket."""
_NOT_PASSED = frozenset({
    *(b"host", b"connection", b"upgrade", b"origin", b"content-length"),
    *(b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions", b"sec-websocket-protocol"),
})  # fmt: skip
"""Headers that the handshake with the job has of its own."""


async def pass_on(
    connected: AbstractAsyncContextManager[Channel], facts: OriginFacts, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answers a request or a WebSocket by what the job answers. `connected`: to its port.

    Raises Forbidden, Conflict and what `connected` does.
    """
    _check_site(scope)
    async with connected as channel:
        try:
            if scope["type"] == "websocket":
                await _Tunnel(channel, facts, WebSocket(scope, receive, send)).run()
            else:
                await _pass_request(channel, facts, scope, receive, send)
        except (h11.ProtocolError, WebSocketException):
            raise Conflict(f"the program on port {facts.port} of the job does not speak HTTP") from None
        except Closed as error:
            raise Conflict(f"port {facts.port} of the job closed the connection: {error}") from None
        except TimeoutError:
            raise Conflict(f"port {facts.port} of the job did not answer within {_ANSWER_S:g} s") from None


def _check_site(scope: Scope) -> None:
    """Raises Forbidden for what a page of another origin asks for with the browser's cookie."""
    request = HTTPConnection(scope)
    is_change = scope["type"] == "websocket" or scope["method"] not in _SAFE
    if is_change or request.headers.get("origin", "null") != "null":
        check_origin(request)
    is_elsewhere = request.headers.get("sec-fetch-site", "") in {"same-site", "cross-site"}
    if is_elsewhere and request.headers.get("sec-fetch-mode") != "navigate":
        raise Forbidden("the request comes from another web site")


async def _pass_request(channel: Channel, facts: OriginFacts, scope: Scope, receive: Receive, send: Send) -> None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGEST_HEAD)
    headers = [*_of_job(facts, scope), (b"connection", b"close")]
    sent = {name for name, _ in scope["headers"]}
    has_body = b"transfer-encoding" in sent or b"content-length" in sent
    if b"transfer-encoding" in sent:
        headers = [*(each for each in headers if each[0] != b"content-length"), (b"transfer-encoding", b"chunked")]
    head = h11.Request(method=scope["method"], target=_target(scope), headers=headers)
    await channel.write(connection.send(head) or b"")
    sending = asyncio.create_task(_send_body(channel, connection, receive, has_body=has_body))
    try:
        await _pass_answer(channel, connection, facts, send)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send_body(channel: Channel, connection: h11.Connection, receive: Receive, *, has_body: bool) -> None:
    more = has_body
    while more:
        message = await receive()
        if message["type"] != "http.request":
            channel.lose("the browser has gone")
            return
        more = message.get("more_body", False)
        if content := message.get("body", b""):
            await channel.write(connection.send(h11.Data(data=content)) or b"")
    await channel.write(connection.send(h11.EndOfMessage()) or b"")
    while (await receive())["type"] != "http.disconnect":
        pass
    channel.lose("the browser has gone")


async def _pass_answer(channel: Channel, connection: h11.Connection, facts: OriginFacts, send: Send) -> None:
    has_begun = False
    try:
        async for event in _events(channel, connection):
            if isinstance(event, h11.Response):
                assert facts.port is not None
                headers = to_browser(event.headers.raw_items(), port=facts.port)
                await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
                has_begun = True
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except (h11.ProtocolError, Closed, TimeoutError) as error:
        if has_begun:
            raise Interrupted(f"the answer of a job is not complete: {error}") from None
        raise


async def _events(channel: Channel, connection: h11.Connection) -> AsyncGenerator[h11.Event]:
    """Yields what the job answers, until it is whole."""
    limit: float | None = _ANSWER_S
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(limit):
                connection.receive_data(await channel.read())
        elif isinstance(event, h11.EndOfMessage) or event is h11.PAUSED:
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection is closed without an answer")
        elif isinstance(event, h11.Event):
            if isinstance(event, h11.Response):
                limit = None  # a stream may be silent for long
            yield event


class _Tunnel:
    """A WebSocket of the browser, and one to the job."""

    def __init__(self, channel: Channel, facts: OriginFacts, browser: WebSocket) -> None:
        self._channel, self._browser = channel, browser
        headers = _of_job(facts, browser.scope)
        origin = next((value.decode("latin-1") for name, value in headers if name == b"origin"), None)
        offered = [Subprotocol(name) for name in browser.scope.get("subprotocols", [])]
        self._job = ClientProtocol(
            parse_uri(f"ws://127.0.0.1:{facts.port}{_target(browser.scope).decode('latin-1')}"),
            origin=None if origin is None else OriginText(origin),
            subprotocols=offered or None,
            max_size=_LARGEST_MESSAGE,
        )
        self._headers = [each for each in headers if each[0] not in _NOT_PASSED]
        self._parts: list[bytes] = []
        self._is_text = False
        self._early: list[object] = []
        """What has come with the answer to the handshake."""

    async def run(self) -> None:
        request = self._job.connect()
        for name, value in self._headers:
            request.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._job.send_request(request)
        await self._flush()
        await self._open()
        tasks = [asyncio.create_task(self._pass_up()), asyncio.create_task(self._pass_down())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._browser.close(self._job.close_rcvd.code if self._job.close_rcvd else 1001)

    async def _open(self) -> None:
        """Opens the browser's WebSocket once the job has opened its own. Raises Conflict."""
        async with asyncio.timeout(_ANSWER_S):
            while not any(isinstance(event, Response) for event in self._early):
                self._early += await self._read()
                if self._job.handshake_exc is not None:
                    break
        if self._job.handshake_exc is not None:
            raise Conflict(f"the job refused the WebSocket: {self._job.handshake_exc}")
        await self._browser.accept(self._job.subprotocol)

    async def _read(self) -> list[object]:
        content = await self._channel.read()
        if content:
            self._job.receive_data(content)
        else:
            self._job.receive_eof()
        events: list[object] = [*self._job.events_received()]
        await self._flush()
        if not content and not events:
            raise Closed("it is closed")
        return events

    async def _pass_up(self) -> None:
        while (message := await self._browser.receive())["type"] == "websocket.receive":
            if (content := message.get("bytes")) is not None:
                self._job.send_binary(content)
            else:
                self._job.send_text(message["text"].encode())
            await self._flush()
        self._job.send_close(1001)
        await self._flush()

    async def _pass_down(self) -> None:
        events = self._early
        while True:
            for event in events:
                if isinstance(event, Frame) and event.opcode in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
                    await self._show(event)
            if self._job.close_rcvd is not None or self._job.parser_exc is not None:
                return
            events = await self._read()

    async def _show(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        content = b"".join(self._parts)
        self._parts.clear()
        if self._is_text:
            await self._browser.send_text(content.decode(errors="replace"))
        else:
            await self._browser.send_bytes(content)

    async def _flush(self) -> None:
        for content in self._job.data_to_send():
            if content:
                await self._channel.write(content)
            else:
                self._channel.end()


def _of_job(facts: OriginFacts, scope: Scope) -> list[tuple[bytes, bytes]]:
    assert facts.port is not None
    own = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return to_job(scope["headers"], port=facts.port, own_host=own)


def _target(scope: Scope) -> bytes:
    query = scope["query_string"]
    return scope["raw_path"] + (b"?" + query if query else b"")
