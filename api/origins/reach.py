"""The service as the client of a reach: connections to the ports of a job, each on a channel."""

import asyncio
from collections import deque
from collections.abc import Iterator

from api.reaches.ends import OwnEnd
from torchyard.contract.reach.frames import BadFrame, Frame, FrameReader, Kind
from torchyard.contract.reach.orders import Hello, Target
from torchyard.host.channel import Channel, Closed

MOST_CONNECTIONS = 64
"""Connections to a job by one origin. Each keeps at most a window of bytes in each direction."""
_LONGEST_MESSAGE = 1 << 18


class Reach(OwnEnd):
    """One connection of the reach. When it is cut, all that is open on it is lost."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._controls: deque[Frame] = deque([Frame(Kind.HELLO, content=Hello().to_json().encode())])
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channels: dict[int, Channel] = {}
        self._next = 0
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._why: str | None = None

    @property
    def is_over(self) -> bool:
        return self._why is not None

    @property
    def is_used(self) -> bool:
        return bool(self._channels)

    async def connect(self, port: int) -> Channel:
        """Returns a connection to what listens there, which `disconnect` ends. Raises Closed."""
        await self._room.acquire()
        channel: Channel | None = None
        try:
            await asyncio.shield(self._met)
            channel = Channel(self._next, send=self._send, wake=self._wanted.set, target=Target(port=port))
            self._next += 1
            self._channels[channel.number] = channel
            self._send(Frame(Kind.OPEN, channel.number, Target(port=port).to_json().encode()))
            await channel.opened()
        except BaseException:
            if channel is not None and self._channels.pop(channel.number, None) is not None:
                self._send(Frame(Kind.CLOSE, channel.number))
            self._room.release()
            raise
        return channel

    def disconnect(self, channel: Channel) -> None:
        if self._channels.pop(channel.number, None) is not None:
            self._send(Frame(Kind.CLOSE, channel.number))
        self._room.release()

    def lose(self, why: str) -> None:
        """Ends all that is open."""
        self._why = self._why or why or "the connection to the job is lost"
        for channel in self._channels.values():
            channel.lose(self._why)
        self._channels.clear()
        if not self._met.done():
            self._met.set_exception(Closed(self._why))
            self._met.exception()  # there may be nobody who waits for it
        self._wanted.set()

    async def greet(self) -> None:
        pass

    async def receive(self) -> bytes:
        while not self.is_over:
            if message := self._message():
                return message
            self._wanted.clear()
            await self._wanted.wait()
        return b""

    async def send(self, content: bytes) -> None:
        try:
            for frame in self._reader.feed(content):
                self._take(frame)
        except (BadFrame, ValueError) as error:
            self.lose(f"what the job's side sends cannot be read: {error}")
            raise ConnectionError(str(error)) from None

    async def close(self, code: int, reason: str) -> None:
        self.lose(reason)

    def _send(self, frame: Frame) -> None:
        self._controls.append(frame)
        self._wanted.set()

    def _message(self) -> bytes:
        """Returns what is to be sent next, up to the size of a message."""
        message = bytearray()
        for frame in self._frames():
            message += frame.encode()
            if len(message) > _LONGEST_MESSAGE // 2:
                break
        return bytes(message)

    def _frames(self) -> Iterator[Frame]:
        while self._controls:
            yield self._controls.popleft()
        for channel in [*self._channels.values()]:
            if channel.is_open:
                yield from channel.outgoing.frames()

    def _take(self, frame: Frame) -> None:
        if frame.kind in {Kind.ERROR, Kind.EXIT}:
            self.lose(frame.content.decode(errors="replace") if frame.kind is Kind.ERROR else "it has ended")
        elif not self._met.done():
            if frame.kind is not Kind.HELLO:
                raise BadFrame(f"it begins with {frame.kind.name}")
            self._met.set_result(None)
        elif frame.kind is not Kind.WARNING and (channel := self._channels.get(frame.channel)) is not None:
            channel.take(frame)
            if frame.kind in {Kind.REFUSED, Kind.CLOSE}:
                self._channels.pop(frame.channel)
