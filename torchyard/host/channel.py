"""A channel of a reach, as what uses it reads and writes it: it waits where the other side is slow."""

import asyncio
from collections import deque
from collections.abc import Callable

from torchyard.contract.reach.channels import Incoming, Outgoing
from torchyard.contract.reach.frames import Frame, Kind
from torchyard.contract.reach.orders import Target


class Closed(Exception):
    """The other side has closed the channel, or the reach has ended. The message says why, if that is known."""


class Channel:
    """Both directions of a channel. `send` queues a control frame; `wake` is called when there are bytes to send."""

    def __init__(
        self, number: int, *, send: Callable[[Frame], None], wake: Callable[[], None], target: Target | None = None
    ) -> None:
        self.number = number
        self.target = target
        """Where it is to be connected; None: it is there from the beginning."""
        self.is_open = target is None
        self.outgoing, self.incoming = Outgoing(number), Incoming(number)
        self._send, self._wake = send, wake
        self._arrived: deque[bytes] = deque()
        self._taken = 0
        """Bytes that the last `read` has returned."""
        self._why: str | None = None
        """Why it is closed."""
        self._changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether both directions have ended, and nothing is on its way."""
        return self.incoming.has_ended and not self._arrived and not self._taken and self.outgoing.is_done

    async def opened(self) -> None:
        """Waits until it is connected. Raises Closed if the other side refuses it."""
        while not self.is_open:
            await self._change()

    async def read(self) -> bytes:
        """Waits for bytes, and returns them; none at the end. The next call tells the sender that they are where they
        belong. Raises Closed.
        """
        taken, self._taken = self._taken, 0
        self._acknowledge(taken)
        while not self._arrived:
            if self.incoming.has_ended:
                self._acknowledge(0)
                return b""
            await self._change()
        content = b"".join(self._arrived)
        self._arrived.clear()
        self._taken = len(content)
        return content

    async def write(self, content: bytes) -> None:
        """Waits until all bytes are on their way. Raises Closed."""
        left = memoryview(content)
        while left:
            if room := self.outgoing.room:
                self.outgoing.put(bytes(left[:room]))
                left = left[room:]
                self._wake()
            else:
                await self._change()

    def end(self) -> None:
        """Says that no more bytes come."""
        self.outgoing.end()
        self._wake()

    def take(self, frame: Frame) -> None:
        """Takes what the other side says on this channel. Raises BadFrame."""
        match frame.kind:
            case Kind.DATA:
                self.incoming.take(frame.content)
                self._arrived.append(frame.content)
            case Kind.EOF:
                self.incoming.end()
            case Kind.ACK:
                self.outgoing.acknowledge(frame.number)
            case Kind.OPENED:
                self.is_open = True
            case _:
                self.lose(frame.content.decode(errors="replace"))
        self._changed.set()

    def lose(self, why: str) -> None:
        """Notes that nothing goes on any more. What has arrived may be read still."""
        self._why = why
        self._changed.set()

    def finish(self) -> None:
        """Notes that nothing comes any more, as the program has ended."""
        self.incoming.end()
        self._changed.set()

    def _acknowledge(self, count: int) -> None:
        if (frame := self.incoming.passed_on(count)) is not None:
            self._send(frame)

    async def _change(self) -> None:
        if self._why is not None:
            raise Closed(self._why)
        self._changed.clear()
        await self._changed.wait()
