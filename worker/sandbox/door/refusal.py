"""What a client hears of a reach that does not begin."""

from contextlib import suppress
import socket

from torchyard.contract.reach.frames import Frame, Kind
from torchyard.contract.reach.orders import Hello

_LONGEST = 1000


def refuse(connection: socket.socket, why: str) -> None:
    """Tells a client why nothing runs, and does not wait for it."""
    frames = Frame(Kind.HELLO, content=Hello().to_json().encode()), Frame(Kind.ERROR, content=why.encode()[:_LONGEST])
    with suppress(OSError):  # it has gone
        connection.send(b"".join(frame.encode() for frame in frames), socket.MSG_DONTWAIT)
