"""Frames: what a client and its handler in a job's sandbox say to each other, over one stream of bytes.

A frame is a header of 9 bytes (kind, channel, length of the content; network byte order) and its content. Whatever
lies between the two, such as the messages of a WebSocket, may cut the stream anywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
import struct

LONGEST = 1 << 16
"""Bytes of the content of a frame, at most."""

_HEADER = struct.Struct("!BII")


class Kind(IntEnum):
    """What a frame says. `c`: the client sends it; `h`: the handler does."""

    HELLO = 0
    """ch. The first frame of each connection: a `Hello` as JSON. Frames of channels follow once the other side's has
    come: each `Outgoing` and `Incoming` is resumed by it."""
    DATA = 1
    """ch. Bytes of the channel."""
    EOF = 2
    """ch. The sender sends no more bytes on the channel."""
    ACK = 3
    """ch. How many bytes of the channel the sender of this frame has passed on, in all: 8 bytes."""
    OPEN = 4
    """c. Asks for a connection of the channel to a `Target`, as JSON."""
    OPENED = 5
    """h. The channel is connected."""
    REFUSED = 6
    """h. The channel is not connected. The content says why."""
    CLOSE = 7
    """ch. Ends the channel, whatever is on its way. From a client of a program, on its channel: ends the program."""
    RESIZE = 8
    """c. The terminal has another size: a `Terminal` as JSON."""
    SIGNAL = 9
    """c. The program's process group is to get this signal: 1 byte."""
    EXIT = 10
    """h. The program has ended: its exit code, or minus the number of its signal, in 4 bytes. The last frame: the
    client answers by CLOSE on channel 0. Until then it may come again to get it."""
    ERROR = 11
    """h. Nothing runs, and why. The last frame."""
    WARNING = 12
    """h. A line for the user: such as that an idle job will be stopped."""


class BadFrame(ValueError):
    """The other side has sent what is no frame, or one that does not fit here."""


@dataclass(frozen=True)
class Frame:
    kind: Kind
    channel: int = 0
    content: bytes = b""

    def encode(self) -> bytes:
        return _HEADER.pack(self.kind, self.channel, len(self.content)) + self.content

    @property
    def number(self) -> int:
        """The number in the content. Raises BadFrame if it is none."""
        size = _NUMBER_SIZES.get(self.kind)
        if size is None or len(self.content) != size:
            raise BadFrame(f"{self.kind.name} has no number of {size} bytes")
        return int.from_bytes(self.content, "big", signed=True)


_NUMBER_SIZES = {Kind.ACK: 8, Kind.EXIT: 4, Kind.SIGNAL: 1}


def with_number(kind: Kind, number: int, *, channel: int = 0) -> Frame:
    """Returns a frame whose content is a number. Raises OverflowError."""
    return Frame(kind, channel, number.to_bytes(_NUMBER_SIZES[kind], "big", signed=True))


class FrameReader:
    """Cuts a stream of bytes into frames. It holds at most one that is not whole."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, received: bytes) -> Iterator[Frame]:
        """Yields the frames that are whole; all must be taken. Raises BadFrame: then the stream is of no use."""
        self._rest += received
        start = 0
        try:
            while len(self._rest) - start >= _HEADER.size:
                number, channel, length = _HEADER.unpack_from(self._rest, start)
                if length > LONGEST:
                    raise BadFrame(f"a frame has {length} bytes, of at most {LONGEST}")
                end = start + _HEADER.size + length
                if end > len(self._rest):
                    break
                with memoryview(self._rest) as view:
                    content = bytes(view[start + _HEADER.size : end])
                start = end
                yield Frame(_kind(number), channel, content)
        finally:
            del self._rest[:start]


def _kind(number: int) -> Kind:
    try:
        return Kind(number)
    except ValueError:
        raise BadFrame(f"there is no frame of kind {number}") from None
