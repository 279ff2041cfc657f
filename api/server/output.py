"""Sends the head and the body of an answer with one system call."""

import asyncio
from typing import Any


class Output:
    """A connection's transport for one answer. What is held is sent with the next write, or before the loop waits."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._holds = False
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def hold(self) -> None:
        """Holds what is written next, which is the head of an answer that has a body."""
        self._holds = True
        self._loop.call_soon(self.flush)  # the body of a stream may come much later

    def write(self, data: bytes) -> None:
        if self._holds:
            self._holds, self._held = False, data
            return
        held, self._held = self._held, b""
        self._transport.write(held + data if held else data)

    def flush(self) -> None:
        """Sends what is held."""
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()
