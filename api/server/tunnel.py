"""One connection after it became a WebSocket: bounded, counted as any other, and cut where its client is gone."""

import asyncio
import re
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from api.limits.connections import ConnectionLimits

LARGEST_MESSAGE = 1 << 18
"""Bytes of a message, at most."""
_STREAM = re.compile(rb"/v1/reaches/[A-Za-z0-9_-]+/stream(?:\?.*)?")
_CLOSE_S = 5.0
"""How long the client may take to answer that the WebSocket is closed, and to read what was sent before."""


def is_stream(url: bytes) -> bool:
    """Returns whether the service has a WebSocket at this path."""
    return _STREAM.fullmatch(url) is not None


class Tunnel(WebSocketsSansIOProtocol):
    """A WebSocket. Reading pauses while the application is busy, and writing while the client is."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.close_timeout = _CLOSE_S
        self._limits: ConnectionLimits | None = None
        self._host: str | None = None

    def count(self, limits: ConnectionLimits, *, host: str | None) -> None:
        """Counts as busy until it is lost."""
        self._limits, self._host = limits, host
        limits.serve(self, host=host)

    def end(self) -> None:
        """Closes the connection. Idle ones alone are ended, and this is never one."""
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._limits is not None:
            self._limits.leave(self, host=self._host)

    def keepalive_timeout(self) -> None:
        """Cuts the connection, unless the answer may lie unread as the application is busy."""
        if self.read_paused:
            self.pong_timer = None
            self.schedule_ping()
        else:
            self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(_CLOSE_S, self.transport.abort)  # what nobody reads is thrown away
