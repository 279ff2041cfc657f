"""The connection of a client to the handler of its reach. No call waits."""

import select
import socket
import time

from torchyard.contract.reach.frames import Frame, FrameReader

_AT_ONCE = 1 << 18
"""Bytes that are received or sent in one turn, at most."""


class Link:
    """At most one connection at a time. A client that comes again has another one."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._reader = FrameReader()
        self._unsent = bytearray()
        self.is_greeted = False
        """Whether the client has said what it has: what follows its greeting may be sent."""
        self.cut_at = time.monotonic()
        """When the last connection ended."""

    @property
    def is_cut(self) -> bool:
        return self._connection is None

    @property
    def takes_more(self) -> bool:
        """Whether bytes of the program are to be sent now: those that wait are few."""
        return self.is_greeted and len(self._unsent) < _AT_ONCE

    @property
    def has_sent_all(self) -> bool:
        return not self._unsent

    def join(self, connection: socket.socket) -> None:
        """Takes another connection in place of the one that is there."""
        self.cut()
        connection.setblocking(False)
        self._connection = connection

    def cut(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._reader, self.is_greeted, self.cut_at = None, FrameReader(), False, time.monotonic()
        self._unsent.clear()

    def interests(self) -> dict[int, int]:
        """Returns what to poll for, by descriptor."""
        if self._connection is None:
            return {}
        return {self._connection.fileno(): select.POLLIN | (select.POLLOUT if self._unsent else 0)}

    def put(self, frame: Frame) -> None:
        """Has a frame be sent, after those before it. Without a connection it is lost."""
        if self._connection is not None:
            self._unsent += frame.encode()

    def receive(self) -> list[Frame]:
        """Returns the frames that have come. Raises BadFrame."""
        if self._connection is None:
            return []
        try:
            content = self._connection.recv(_AT_ONCE)
        except BlockingIOError:
            return []
        except OSError:
            content = b""
        if not content:
            self.cut()
            return []
        return list(self._reader.feed(content))

    def flush(self) -> None:
        """Sends what the connection takes."""
        try:
            while self._connection is not None and self._unsent:
                with memoryview(self._unsent) as view:
                    sent = self._connection.send(view[:_AT_ONCE])
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.cut()
