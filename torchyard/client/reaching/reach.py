"""A reach: frames of a client and its end in the job, over one connection after the other."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
import time

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from torchyard.client.reaching.meeting import Cut, Elsewhere, closed
from torchyard.contract.errors import ServerError, ServerUnreachable, TooManyRequests, TorchyardError, Unavailable
from torchyard.contract.reach.frames import BadFrame, Frame, FrameReader, Kind, with_number
from torchyard.contract.reach.orders import Hello, Target, Terminal
from torchyard.contract.reach.views import OpenedReachView
from torchyard.host.channel import Channel, Closed

MOST_CHANNELS = 1000
_LONGEST_MESSAGE = 256 << 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0

Connect = Callable[[OpenedReachView], Awaitable[ClientConnection]]
MeetAgain = Callable[[], Awaitable[OpenedReachView]]


class Ended(TorchyardError):
    """What was started in the job runs no more, and has no exit code to tell."""

    code = "reach_ended"
    status = 409
    title = "What was started in the job has ended"


class Gone(Ended):
    """It has ended without a word, as all does with its attempt."""


class Reach:
    """What `meeting` leads to. `patience`: for how many seconds after a cut it is tried to come again. `tell` gets each
    line for the user: one of the job, or of a connection that is cut or there again.
    """

    def __init__(
        self,
        meeting: OpenedReachView,
        *,
        connect: Connect,
        meet_again: MeetAgain,
        patience: float,
        tell: Callable[[str], None],
    ) -> None:
        self.id = meeting.id
        self.job_id, self.attempt = meeting.job_id, meeting.attempt
        self._meeting = meeting
        self._connect, self._meet_again = connect, meet_again
        self._patience = patience
        self._tell = tell
        self._channels: dict[int, Channel] = {}
        self._controls: deque[Frame] = deque()
        self._wanted = asyncio.Event()
        """There is something to send."""
        self._next = 0
        self._terminal: Terminal | None = None
        self.was_met = False
        """Whether the other side has ever answered."""
        self._is_closed = False
        """Whether this side has ended the program."""
        self._end: str | None = None
        """Why it has ended."""
        self._deadline: float | None = None
        """Until when it is tried to come again; None while it is connected."""
        self._has_told_cut = False
        self._pause = _FIRST_PAUSE_S

    @property
    def is_connected(self) -> bool:
        return self.was_met and self._deadline is None

    def channel(self, number: int) -> Channel:
        """Returns a channel that is there from the beginning. It is asked for before `run`."""
        self._next = max(self._next, number + 1)
        return self._add(number, target=None)

    async def open(self, target: Target) -> Channel:
        """Has a new channel be connected. Raises Closed if the job's side refuses it, or there are too many, or the
        reach has ended.
        """
        if self._end is not None:
            raise Closed(self._end)
        if len(self._channels) >= MOST_CHANNELS:
            raise Closed(f"there are {MOST_CHANNELS} connections already")
        channel = self._add(self._next, target=target)
        self._next += 1
        self._send(_opening(channel))
        await channel.opened()
        return channel

    def close(self, channel: Channel) -> None:
        """Ends a channel, whatever is on its way. That of a program ends the program."""
        self._is_closed = self._is_closed or channel.target is None
        if channel.target is not None and self._channels.pop(channel.number, None) is None:
            return
        self._send(Frame(Kind.CLOSE, channel.number))

    def resize(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._send(Frame(Kind.RESIZE, content=terminal.to_json().encode()))

    def signal(self, number: int) -> None:
        self._send(with_number(Kind.SIGNAL, number))

    async def run(self) -> int:
        """Carries frames until the program ends. Returns its exit code, or minus the number of its signal.

        Raises Ended if that cannot be told any more, ServerUnreachable if the service was away for too long, and the
        TorchyardError with which it refuses.
        """
        try:
            code = await self._over_all()
        except BadFrame as error:
            raise self._lost(ServerError(f"what the job's side sends cannot be read: {error}")) from None
        except TorchyardError as error:
            raise self._lost(error) from error.__cause__
        for channel in self._channels.values():
            channel.finish()
        return code

    async def _over_all(self) -> int:
        connecting = self._connect(self._meeting)
        while True:
            try:
                return await self._over(await connecting)
            except Cut as error:
                if self._is_closed:
                    raise Ended("it was ended from here") from None
                if not self.was_met and not isinstance(error, Elsewhere):
                    raise
            connecting = self._again()

    async def _over(self, socket: ClientConnection) -> int:
        """Carries frames over one connection, and returns the exit code. Raises Cut."""
        reader, sending = FrameReader(), None
        try:
            await socket.send(self._hello().encode())
            async for message in socket:
                for frame in reader.feed(message if isinstance(message, bytes) else message.encode()):
                    if sending is None:
                        self._begin(frame)
                        sending = asyncio.create_task(self._send_all(socket))
                    elif frame.kind is Kind.EXIT:
                        await socket.send(Frame(Kind.CLOSE).encode())  # it need not be told again
                        return frame.number
                    else:
                        self._take(frame)
            raise _gone(socket)
        except ConnectionClosed as error:
            raise closed(error) from None
        finally:
            if sending is not None:
                sending.cancel()
            await socket.close()

    async def _again(self) -> ClientConnection:
        """Returns the next connection, after as many tries as it takes within the time."""
        if self._deadline is None:
            self._deadline, self._pause = time.monotonic() + self._patience, _FIRST_PAUSE_S
        while True:
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
            try:
                meeting = await self._meet_again()  # it is refused where the attempt has ended: that is no cut
                self._tell_cut()
                return await self._connect(meeting)
            except (ServerUnreachable, TooManyRequests, Unavailable) as error:
                self._tell_cut()
                if time.monotonic() + self._pause > self._deadline:
                    raise
                self._pause = max(self._pause, error.retry_after or 0)

    def _tell_cut(self) -> None:
        if self.was_met and not self._has_told_cut:
            self._has_told_cut = True
            self._tell("the connection is lost: trying again")

    def _hello(self) -> Frame:
        received = {str(number): channel.incoming.received for number, channel in self._channels.items()}
        return Frame(Kind.HELLO, content=Hello(received=received).to_json().encode())

    def _begin(self, frame: Frame) -> None:
        """Begins a connection with what the other side has of the channels. What the last one lost is sent again."""
        if frame.kind is Kind.ERROR:
            self._take(frame)
        if frame.kind is not Kind.HELLO:
            raise BadFrame(f"it begins with {frame.kind.name}")
        theirs = _hello_of(frame).received
        if self._has_told_cut:
            self._has_told_cut = False
            self._tell("connected again")
        is_first, self.was_met, self._deadline = not self.was_met, True, None
        if is_first:
            return
        self._controls = deque(each for each in self._controls if each.kind in {Kind.CLOSE, Kind.SIGNAL})
        if self._terminal is not None:
            self.resize(self._terminal)
        for channel in [*self._channels.values()]:
            self._resume(channel, theirs.get(str(channel.number)))
        unknown = {int(number) for number in theirs} - self._channels.keys()
        self._controls.extend(Frame(Kind.CLOSE, number) for number in sorted(unknown))

    def _resume(self, channel: Channel, received: int | None) -> None:
        if received is None and channel.target is not None and channel.is_open:
            self._drop(channel, "the job's side has lost it")
            return
        if received is None and channel.target is not None:
            self._send(_opening(channel))
        elif not channel.is_open:  # what says so was lost
            channel.take(Frame(Kind.OPENED))
        channel.outgoing.resume(received or 0)
        self._send(channel.incoming.resume())

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.ERROR:
            raise Ended(frame.content.decode(errors="replace"))
        if frame.kind is Kind.WARNING:
            self._tell(frame.content.decode(errors="replace"))
            return
        if frame.kind not in _OF_CHANNELS:
            raise BadFrame(f"only a client sends {frame.kind.name}")
        channel = self._channels.get(frame.channel)
        if channel is None:  # this side has closed it already
            return
        channel.take(frame)
        if frame.kind in {Kind.REFUSED, Kind.CLOSE}:
            del self._channels[channel.number]

    async def _send_all(self, socket: ClientConnection) -> None:
        """Sends what is to be sent, for as long as the connection lasts."""
        with suppress(ConnectionClosed):
            while True:
                self._wanted.clear()
                for message in _messages(self._frames()):
                    await socket.send(message)
                await self._wanted.wait()

    def _frames(self) -> Iterator[Frame]:
        while self._controls:
            yield self._controls.popleft()
        for channel in [*self._channels.values()]:
            if channel.is_open:
                yield from channel.outgoing.frames()
            if channel.target is not None and channel.is_done:
                del self._channels[channel.number]

    def _add(self, number: int, *, target: Target | None) -> Channel:
        channel = Channel(number, send=self._send, wake=self._wanted.set, target=target)
        self._channels[number] = channel
        return channel

    def _send(self, frame: Frame) -> None:
        self._controls.append(frame)
        self._wanted.set()

    def _drop(self, channel: Channel, why: str) -> None:
        del self._channels[channel.number]
        channel.lose(why)

    def _lost(self, error: TorchyardError) -> TorchyardError:
        self._end = error.message
        for channel in [*self._channels.values()]:
            self._drop(channel, error.message)
        return error


_OF_CHANNELS = {Kind.DATA, Kind.EOF, Kind.ACK, Kind.OPENED, Kind.REFUSED, Kind.CLOSE}


def _opening(channel: Channel) -> Frame:
    assert channel.target is not None
    return Frame(Kind.OPEN, channel.number, channel.target.to_json().encode())


def _hello_of(frame: Frame) -> Hello:
    try:
        return Hello.from_json(frame.content)
    except ValueError as error:
        raise BadFrame(str(error)) from None


def _gone(socket: ClientConnection) -> TorchyardError:
    """Returns what it means that the service has closed a connection in order."""
    if socket.close_code == CloseCode.NORMAL_CLOSURE:  # so says the worker, and nothing is left to come again for
        return Gone("what was started in the job has ended, and its exit code is not known")
    return Cut(socket.close_reason or "the service has closed the connection")


def _messages(frames: Iterator[Frame]) -> Iterator[bytes]:
    """Yields the frames, several in a message as far as they fit."""
    message = bytearray()
    for frame in frames:
        encoded = frame.encode()
        if message and len(message) + len(encoded) > _LONGEST_MESSAGE:
            yield bytes(message)
            message.clear()
        message += encoded
    if message:
        yield bytes(message)
