"""The two directions of a channel: flow control, and going on after a cut of the connection. No I/O.

A sender keeps what the other side has not acknowledged, `WINDOW` bytes at most. That bounds what is on its way, and
is what is sent again on the next connection.
"""

from collections.abc import Iterator

from torchyard.contract.reach.frames import LONGEST, BadFrame, Frame, Kind, with_number

WINDOW = 1 << 20
"""Bytes of one direction of a channel that are sent and not acknowledged, at most."""

_ACK_EVERY = WINDOW // 4


class Outgoing:
    """What one side sends on a channel."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._kept = bytearray()
        """From the first byte that is not acknowledged."""
        self._acknowledged = self._sent = 0
        """Bytes of the channel, in all."""
        self._dropped = 0
        """Bytes that were dropped in this connection, the last of them before the first that is kept."""
        self._ended = self._told_end = False

    @property
    def room(self) -> int:
        """How many bytes `put` takes now."""
        return 0 if self._ended else WINDOW - len(self._kept)

    @property
    def is_done(self) -> bool:
        """Whether the other side has passed on all that was put, and no more will be."""
        return self._ended and self._told_end and not self._kept

    def put(self, content: bytes) -> None:
        """Raises ValueError for more than `room`."""
        if len(content) > self.room:
            raise ValueError(f"{len(content)} bytes are more than the {self.room} that fit")
        self._kept += content

    def end(self) -> None:
        """Has the other side be told that no more bytes come."""
        self._ended = True

    def frames(self) -> Iterator[Frame]:
        """Yields what this connection has not carried yet. All of it must be sent."""
        while (start := self._sent - self._acknowledged) < len(self._kept):
            with memoryview(self._kept) as view:
                content = bytes(view[start : start + LONGEST])
            self._sent += len(content)
            yield Frame(Kind.DATA, self._channel, content)
        if self._ended and not self._told_end:
            self._told_end = True
            yield Frame(Kind.EOF, self._channel)

    def acknowledge(self, total: int) -> None:
        """Takes what an ACK says. Raises BadFrame if it names what was never sent."""
        if not self._acknowledged <= total <= self._sent:
            raise BadFrame(f"{total} bytes are acknowledged, of {self._acknowledged} to {self._sent}")
        del self._kept[: total - self._acknowledged]
        self._acknowledged = total

    def drop(self, count: int) -> None:
        """Forgets the oldest bytes, while there is no connection."""
        dropped = min(count, len(self._kept))
        del self._kept[:dropped]
        self._acknowledged += dropped
        self._dropped += dropped
        self._sent = max(self._sent, self._acknowledged)

    def resume(self, received: int) -> int:
        """Begins a new connection, to a side that has these bytes. Raises BadFrame if it cannot have them.

        Returns how many it misses for ever, as they were dropped: what is kept follows what it has.
        """
        if not self._acknowledged - self._dropped <= received <= self._sent:
            raise BadFrame(f"{received} bytes were received, of {self._acknowledged} to {self._sent}")
        missed = max(0, self._acknowledged - received)
        self._acknowledged -= missed
        self._sent = received
        self._dropped = 0
        self._told_end = False
        return missed


class Incoming:
    """What one side receives on a channel."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self.received = 0
        """Bytes, in all."""
        self.has_ended = False
        self._passed_on = self._acknowledged = 0

    def take(self, content: bytes) -> None:
        """Counts the bytes of a DATA frame. Raises BadFrame if they are more than the sender may have on its way."""
        self.received += len(content)
        if self.received - self._acknowledged > WINDOW:
            raise BadFrame(f"more than {WINDOW} bytes were sent without being acknowledged")
        if self.has_ended and content:
            raise BadFrame("bytes were sent after the end of their channel")

    def end(self) -> None:
        self.has_ended = True

    def passed_on(self, count: int) -> Frame | None:
        """Notes that `count` bytes more are where they belong. Returns the frame to send, if it is time for one: so it
        is for the last bytes, after which the sender has nothing to keep.
        """
        self._passed_on += count
        is_last = self.has_ended and self._passed_on == self.received > self._acknowledged
        if not is_last and self._passed_on - self._acknowledged < _ACK_EVERY:
            return None
        return self.resume()

    def resume(self) -> Frame:
        """Returns an ACK of all bytes that were passed on. Send it first on each further connection.

        The last one may have been lost, and a sender without room would wait for ever.
        """
        self._acknowledged = self._passed_on
        return with_number(Kind.ACK, self._passed_on, channel=self._channel)
