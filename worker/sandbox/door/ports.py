"""Connections of a client to what the processes of its job listen on, each on a channel of its own."""

from collections.abc import Iterable
import socket

from torchyard.contract.reach.frames import BadFrame, Frame, Kind
from torchyard.contract.reach.orders import Hello, Target
from worker.sandbox.door.channel import Channel, end_of_socket
from worker.sandbox.door.listeners import Neighbours, Refused

_MOST = 1000


class Ports:
    """It has no end of its own."""

    result: Frame | None = None

    def __init__(self, neighbours: Neighbours) -> None:
        self.channels: dict[int, Channel] = {}
        self._neighbours = neighbours
        self._connections: dict[int, socket.socket] = {}

    def greet(self, hello: Hello) -> None:
        for number in [*self.channels]:
            if str(number) not in hello.received:  # the client has closed it meanwhile
                self.close(number)

    def handle(self, frame: Frame) -> Iterable[Frame]:
        if frame.kind is not Kind.OPEN:
            raise BadFrame(f"connections take no {frame.kind.name}")
        number = frame.channel
        if number in self.channels:
            raise BadFrame(f"channel {number} is open")
        target = Target.from_json(frame.content)
        if len(self.channels) >= _MOST:
            return [Frame(Kind.REFUSED, number, f"there are {_MOST} connections, the most that there may be".encode())]
        try:
            connection = self._neighbours.connect(target)
        except Refused as error:
            return [Frame(Kind.REFUSED, number, str(error).encode(errors="replace")[:1000])]
        connection.setblocking(False)
        self._connections[number] = connection
        place = connection.fileno()
        self.channels[number] = Channel(number, source=place, sink=place, end_sink=lambda: end_of_socket(place))
        return [Frame(Kind.OPENED, number)]

    def close(self, channel: int) -> bool:
        if self.channels.pop(channel, None) is not None:
            self._connections.pop(channel).close()
        return False

    def look(self) -> None:
        for number in [number for number, channel in self.channels.items() if channel.is_over]:
            self.close(number)

    def note_end(self, pid: int, code: int) -> None:
        pass
