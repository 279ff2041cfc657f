"""One channel of a reach: bytes go between the client's frames and descriptors of a program or a socket."""

from collections.abc import Callable, Collection
from contextlib import suppress
import os
import select
import socket

from torchyard.contract.reach.channels import Incoming, Outgoing
from torchyard.contract.reach.frames import Frame

_AT_ONCE = 1 << 16
"""Bytes of one read or write."""


class Channel:
    """Reads from `source` for the client, and writes to `sink` what the client sends. None: there is no such way.

    The descriptors do not block, and may be the same. `end_sink` is called once the client has sent all; it may return
    bytes that are written then. It is called again after output that follows, `ends` times in all.
    """

    def __init__(
        self,
        number: int,
        *,
        source: int | None,
        sink: int | None,
        end_sink: Callable[[], bytes] | None = None,
        ends: int = 1,
    ) -> None:
        self.outgoing = Outgoing(number)
        self.incoming = Incoming(number)
        self._source = source
        self._sink = sink
        self._end_sink = end_sink
        self._ends = ends
        self._must_end = True
        self._unwritten = bytearray()
        self._passed_on = 0
        self.drains = False
        """Whether what can be read without waiting is the last."""
        if source is None:
            self.outgoing.end()

    @property
    def has_ended(self) -> bool:
        """Whether no byte more comes from the source."""
        return self._source is None

    @property
    def is_over(self) -> bool:
        """Whether all bytes of both directions are where they belong."""
        return self.outgoing.is_done and self.incoming.has_ended and not self._unwritten

    def interests(self) -> dict[int, int]:
        """Returns what to poll for, by descriptor."""
        found: dict[int, int] = {}
        if self._source is not None and self.outgoing.room:
            found[self._source] = select.POLLIN
        if self._sink is not None and self._unwritten:
            found[self._sink] = found.get(self._sink, 0) | select.POLLOUT
        return found

    def serve(self, ready: Collection[int]) -> Frame | None:
        """Reads and writes what is possible now. `ready`: descriptors that are. Returns an acknowledgement, if it is
        time for one."""
        if self.drains or self._source in ready:
            self._read()
        return self._write() if self._unwritten else None

    def _read(self) -> None:
        while self._source is not None and self.outgoing.room:
            try:
                content = os.read(self._source, min(_AT_ONCE, self.outgoing.room))
            except BlockingIOError:
                if self.drains:
                    self._end_source()
                return
            except OSError:  # no process has the terminal open any more, or a connection was reset
                content = b""
            if content:
                self.outgoing.put(content)
                self._end_again()
            else:
                self._end_source()

    def _end_again(self) -> None:
        if self.incoming.has_ended and self._ends:
            self._must_end = True
            self._finish_sink()

    def _end_source(self) -> None:
        self._source = None
        self.outgoing.end()

    def take(self, content: bytes) -> None:
        """Takes bytes of the client. Raises BadFrame."""
        self.incoming.take(content)
        self._unwritten += content

    def end_incoming(self) -> Frame | None:
        """Notes that the client sends no more. Returns an acknowledgement, if it is time for one."""
        if not self.incoming.has_ended:
            self.incoming.end()
            self._finish_sink()
        return self.incoming.passed_on(0)

    def _write(self) -> Frame | None:
        passed_on = 0
        try:
            while self._sink is not None and self._unwritten:
                with memoryview(self._unwritten) as view:
                    written = os.write(self._sink, view[:_AT_ONCE])
                del self._unwritten[:written]
                passed_on += written
        except BlockingIOError:
            pass
        except OSError:  # nobody reads it any more
            self._sink = None
        if self._sink is None:
            passed_on += len(self._unwritten)
            self._unwritten.clear()
        self._finish_sink()
        counted = min(passed_on, self.incoming.received - self._passed_on)  # the bytes of `end_sink` are nobody's
        self._passed_on += counted
        return self.incoming.passed_on(counted) if counted else None

    def _finish_sink(self) -> None:
        if not (self.incoming.has_ended and self._must_end) or self._unwritten or self._end_sink is None:
            return
        self._must_end = False
        self._ends -= 1
        self._unwritten += self._end_sink() if self._sink is not None else b""


def end_of_socket(descriptor: int) -> bytes:
    """Says at a socket that no byte more comes. For `end_sink`."""
    with socket.socket(fileno=os.dup(descriptor)) as connection, suppress(OSError):  # it was reset
        connection.shutdown(socket.SHUT_WR)
    return b""
