"""What a relay passes bytes between: the WebSocket of an end, and a Unix socket of another process of the API."""

import asyncio
from contextlib import suppress
from typing import Protocol

from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from store.team.callers import Caller

NORMAL, GOING_AWAY, BAD_DATA = 1000, 1001, 1003
"""Codes of a close (RFC 6455, 7.4.1)."""
_READ_BYTES = 1 << 18
_CLOSE_S = 5.0


class End(Protocol):
    """One end of a meeting."""

    has_finished: bool
    """Whether it has said by itself that it has no more to say; else it was cut, or is there."""

    async def greet(self) -> None:
        """Tells it that the other end has come."""
        ...

    async def receive(self) -> bytes:
        """Returns some bytes; none once there are no more."""
        ...

    async def send(self, content: bytes) -> None:
        """Waits as long as the end is slow. Raises ConnectionError once it is gone."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Tells it why nothing more comes."""
        ...


class OwnEnd:
    """An end that this process is itself."""

    has_finished = False
    caller: Caller | None = None
    """Who has the reach, as the audit records it."""


class SocketEnd:
    """An end that has come to this process by its WebSocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._is_gone = False
        self.has_finished = False
        self.greeting = ""

    @property
    def scope(self) -> Scope:
        """Of its request."""
        return self._websocket.scope

    async def greet(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # who reads on sees that it is gone
            await self._websocket.send_text(self.greeting)

    async def receive(self) -> bytes:
        while not self._is_gone:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self.has_finished = message.get("code") == NORMAL and not self._is_gone
                self._is_gone = True
            elif content := message.get("bytes"):
                return content
            elif message.get("text") is not None:
                await self.close(BAD_DATA, "only bytes are passed on")
        return b""

    async def send(self, content: bytes) -> None:
        try:
            await self._websocket.send_bytes(content)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionError("the WebSocket is closed") from error

    async def close(self, code: int, reason: str) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._websocket.close(code, reason)
        except (TimeoutError, WebSocketDisconnect, RuntimeError):
            pass  # it reads nothing, or was cut meanwhile


class StreamEnd:
    """An end that has come to another process, which passes its bytes on."""

    has_finished = False

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def greet(self) -> None:
        pass

    async def receive(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:
            return b""

    async def send(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def close(self, code: int, reason: str) -> None:
        self._writer.close()
