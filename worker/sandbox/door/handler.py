"""The handler of one reach: a process that serves its client, whichever connection that has, until the reach ends."""

from collections.abc import Iterable
from contextlib import suppress
import os
import select
import signal
import socket
import time
from typing import Protocol

from torchyard.contract.reach.channels import WINDOW
from torchyard.contract.reach.frames import BadFrame, Frame, Kind
from torchyard.contract.reach.orders import Hello
from worker.host import process
from worker.sandbox.door.channel import Channel
from worker.sandbox.door.link import Link

WAIT_IN_TERMINAL_S, WAIT_S = 12 * 3600.0, 60.0
"""How long a handler waits for a client that has lost its connection."""
_HANG_UP_S = 2.0
"""How long programs have to end after SIGHUP."""
_REST_S = 1.0
"""How long pipes are read after the program has ended. A process that it left may keep them open."""
_KILL_POLL_MS = 20
_LONGEST_MS = 3_600_000.0
_NEVER, _LONG_AGO = float("inf"), float("-inf")
_LEAST_ROOM = WINDOW >> 3
"""Bytes that a terminal always takes while its client is away: a program that waited for it would stand still."""
STOP, JOIN, OVER = b"s", b"j", b"o"
"""What door and handler say: the attempt is to stop; here is the next connection; the program has ended."""


class Service(Protocol):
    """What a reach is about."""

    @property
    def channels(self) -> dict[int, Channel]: ...

    @property
    def result(self) -> Frame | None:
        """The last frame but for output, once nothing runs that the client waits for."""
        ...

    def greet(self, hello: Hello) -> None:
        """Takes what a client says that comes again. Raises BadFrame."""
        ...

    def handle(self, frame: Frame) -> Iterable[Frame]:
        """Does what a client asks for. Returns the answers. Raises BadFrame, and ValueError for what is no JSON."""
        ...

    def close(self, channel: int) -> bool:
        """Ends a channel. Returns whether the client has ended all by that."""
        ...

    def look(self) -> None:
        """Does what is due after bytes have been moved."""
        ...

    def note_end(self, pid: int, code: int) -> None:
        """Notes that a child of this process has ended."""
        ...


class Handler:
    """Serves a client of `service`. `door`: the door has the other end."""

    def __init__(self, service: Service, door: socket.socket, connection: socket.socket, *, in_terminal: bool) -> None:
        self._service = service
        self._door = door
        self._link = Link()
        self._in_terminal = in_terminal
        self._child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)  # only a signal with a handler writes to the wakeup descriptor
        self._kill_at, self._rest_until = _NEVER, _NEVER
        """When what still runs is killed, and until when pipes are read after the end of the program."""
        self._is_killed = self._has_told = self._is_confirmed = False
        """Whether nothing is left that was to end; the client was sent the result, and has said that it has it."""
        self._turns = 0
        self._join(connection)

    def serve(self) -> None:
        """Returns once the reach is over. What a program has left behind goes on."""
        self._reap()
        while not self._is_over():
            self._turn()

    def _is_over(self) -> bool:
        if self._is_killed:
            return self._link.is_cut or (self._link.has_sent_all and (self._has_told or self._service.result is None))
        waited = self._link.is_cut and time.monotonic() >= self._link.cut_at + self._wait_s
        return self._is_confirmed or (waited and self._service.result is not None)

    def _turn(self) -> None:
        interests = {self._door.fileno(): select.POLLIN, self._child_ended: select.POLLIN, **self._link.interests()}
        for channel in self._service.channels.values():
            for descriptor, events in channel.interests().items():
                interests[descriptor] = interests.get(descriptor, 0) | events
        poll = select.poll()
        for descriptor, events in interests.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(self._next_ms()))
        if self._door.fileno() in ready:
            self._hear_door()
        if self._child_ended in ready:
            os.read(self._child_ended, 4096)
            self._reap()
        self._receive()
        self._look_at_clock()
        self._pump(ready)
        self._send()

    def _next_ms(self) -> float:
        waits = self._link.cut_at + self._wait_s if self._link.is_cut and self._kill_at == _NEVER else _NEVER
        left_ms = (min(self._kill_at, self._rest_until, waits) - time.monotonic()) * 1000
        return max(0.0, min(left_ms, _LONGEST_MS))

    @property
    def _wait_s(self) -> float:
        return WAIT_IN_TERMINAL_S if self._in_terminal else WAIT_S

    def _hear_door(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._door, 16, 1)
        if message == JOIN:
            self._join(socket.socket(fileno=descriptors[0]))
        elif message == STOP:
            self._link.put(Frame(Kind.WARNING, content=b"the job stops, and this ends with it"))
            self._hang_up()
        else:  # the attempt ends, or something has ended the door
            self._kill_all()
            raise SystemExit

    def _join(self, connection: socket.socket) -> None:
        self._link.join(connection)
        self._has_told = False
        received = {str(number): channel.incoming.received for number, channel in self._service.channels.items()}
        self._link.put(Frame(Kind.HELLO, content=Hello(received=received).to_json().encode()))
        self._link.flush()

    def _reap(self) -> None:
        for pid, code in process.reap_children():
            self._service.note_end(pid, code)
            if self._service.result is not None and self._rest_until == _NEVER:
                self._rest_until = time.monotonic() + _REST_S
                with suppress(OSError):  # it has ended
                    self._door.send(OVER)

    def _receive(self) -> None:
        try:
            for frame in self._link.receive():
                self._handle(frame)
        except ValueError as error:
            self._link.put(Frame(Kind.ERROR, content=f"the client sent what makes no sense: {error}".encode()[:1000]))
            self._link.flush()
            self._link.cut()
            self._hang_up()

    def _handle(self, frame: Frame) -> None:
        """Raises ValueError."""
        channel = self._service.channels.get(frame.channel)
        if frame.kind is Kind.HELLO:
            self._greet(Hello.from_json(frame.content))
        elif not self._link.is_greeted:
            raise BadFrame("the first frame is not HELLO")
        elif frame.kind is Kind.CLOSE:
            self._close(frame.channel)
        elif frame.kind not in {Kind.DATA, Kind.EOF, Kind.ACK}:
            for answer in self._service.handle(frame):
                self._link.put(answer)
        elif channel is None:  # it has ended meanwhile
            pass
        elif frame.kind is Kind.DATA:
            channel.take(frame.content)
        elif frame.kind is Kind.EOF:
            acknowledgement = channel.end_incoming()
            if acknowledgement is not None:
                self._link.put(acknowledgement)
        else:
            channel.outgoing.acknowledge(frame.number)

    def _close(self, channel: int) -> None:
        if self._service.close(channel):
            if self._has_told:
                self._is_confirmed = True
            else:
                self._hang_up()

    def _greet(self, hello: Hello) -> None:
        if self._link.is_greeted:
            raise BadFrame("there is a second HELLO")
        self._service.greet(hello)
        for number, channel in self._service.channels.items():
            missed = channel.outgoing.resume(hello.received.get(str(number), 0))
            if missed:
                text = f"{missed} bytes of output are not shown: they came while you were away"
                self._link.put(Frame(Kind.WARNING, content=text.encode()))
            self._link.put(channel.incoming.resume())
        self._link.is_greeted = True

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        if now >= self._rest_until:
            self._rest_until = _LONG_AGO
            for channel in self._service.channels.values():
                channel.drains = True
        if self._service.result is None and self._link.is_cut and now >= self._link.cut_at + self._wait_s:
            self._hang_up()
        if not self._is_killed and (now >= self._kill_at or (self._kill_at < _NEVER and not process.has_children())):
            self._kill_all()

    def _hang_up(self) -> None:
        """Ends what runs, as the end of a terminal does."""
        if self._kill_at < _NEVER:
            return
        self._kill_at = time.monotonic() + _HANG_UP_S
        for item in process.descendants(os.getpid()):
            for number in (signal.SIGHUP, signal.SIGCONT):
                process.send(item, number)

    def _kill_all(self) -> None:
        poll = select.poll()
        poll.register(self._child_ended, select.POLLIN)
        while process.has_children():
            for item in process.descendants(os.getpid()):
                process.send(item, signal.SIGKILL)
            poll.poll(_KILL_POLL_MS)
            self._reap()
        self._is_killed = True

    def _pump(self, ready: dict[int, int]) -> None:
        """Moves bytes between the channels and their descriptors."""
        for channel in self._service.channels.values():
            acknowledgement = channel.serve(ready)
            if acknowledgement is not None:
                self._link.put(acknowledgement)
            if self._link.is_cut and self._in_terminal and channel.outgoing.room < _LEAST_ROOM:
                channel.outgoing.drop(_LEAST_ROOM)
        self._service.look()

    def _send(self) -> None:
        channels = [*self._service.channels.values()]
        self._turns += 1
        first = self._turns % max(1, len(channels))
        for channel in (*channels[first:], *channels[:first]):
            if not self._link.takes_more:
                break
            for frame in channel.outgoing.frames():
                self._link.put(frame)
        else:
            self._tell_result(channels)
        self._link.flush()

    def _tell_result(self, channels: list[Channel]) -> None:
        """Call it once the connection has all that was read."""
        result = self._service.result
        if result is None or self._has_told or not self._link.is_greeted:
            return
        if all(channel.has_ended for channel in channels):
            self._link.put(result)
            self._has_told = True


def _do_nothing(*_: object) -> None:
    pass
