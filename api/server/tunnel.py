"""One connection after it became a WebSocket: bounded, counted as any other, and cut where its client is gone."""

import asyncio
import logging
import re
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from api.limits.connections import ConnectionLimits

LARGEST_MESSAGE = 1 << 18
"""Bytes of a message, at most."""
_STREAM = re.compile(rb"/v1/reaches/[A-Za-z0-9_-]+/stream(?:\?.*)?")
_log = logging.getLogger(__name__)
_log.setLevel(logging.WARNING)
_CLOSE_S, _LINGER_S = 5.0, 60.0
"""How long the client may take to answer that the WebSocket is closed, and to read what was sent before."""
_MOST_WAITING = 10
"""Messages that may wait for the application. An end sends one text, so many are a flood."""
_MOST_UNREAD = 1 << 20
"""Bytes that wait for a client which sends pings: no answer is added to more."""


def is_stream(url: bytes) -> bool:
    """Returns whether the service has a WebSocket at this path."""
    return _STREAM.fullmatch(url) is not None


class Tunnel(WebSocketsSansIOProtocol):
    """A WebSocket. Reading pauses while the application is busy, and writing while the client is."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.close_timeout = _CLOSE_S
        self.logger = _log  # a line for each request would be in no proportion
        self._joined = bytearray()
        """Messages that have come at once. They may be tiny, and each would take memory."""
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

    def handle_events(self) -> None:
        super().handle_events()
        self._hand_over()

    def send_receive_event_to_app(self) -> None:
        """Joins messages of bytes: what is passed on may be cut anywhere."""
        if self.curr_msg_data_type == "text" or self.close_sent:
            self._hand_over()
            super().send_receive_event_to_app()
            if self.queue.qsize() > _MOST_WAITING:
                self.transport.abort()
            return
        if len(self._joined) + sum(map(len, self.frames)) > LARGEST_MESSAGE:
            self._hand_over()
        for content in self.frames:
            self._joined += content
        self.frames = []

    def handle_close(self, event: Frame) -> None:
        self._hand_over()
        super().handle_close(event)

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.transport.abort()
        else:
            super().handle_ping()

    def keepalive_timeout(self) -> None:
        """Cuts the connection, unless the answer may lie unread as the application is busy."""
        if self.read_paused:
            self.pong_timer = None
            self.schedule_ping()
        else:
            self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(_LINGER_S, self.transport.abort)  # what nobody reads is thrown away

    def _hand_over(self) -> None:
        """Gives the application what has come, and reads no more until it has taken that."""
        if not self._joined:
            return
        self.queue.put_nowait({"type": "websocket.receive", "bytes": bytes(self._joined)})
        self._joined.clear()
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
