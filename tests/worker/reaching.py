"""A client of what runs in an attempt, without a service between: it speaks frames over the worker's connection."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
import socket
from typing import Any
import uuid

from tests.worker.attempt import DEADLINE_S
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.reach.channels import Incoming, Outgoing
from torchyard.contract.reach.frames import Frame, FrameReader, Kind
from torchyard.contract.reach.orders import Call, Hello, Order, Target
from worker.engines.local import entrance


@dataclass
class Reached:
    """A reach, and all that has come over its connections so far."""

    connect: Callable[[Call], socket.socket]
    id: str = field(default_factory=lambda: f"rch_{uuid.uuid4()}")
    output: dict[int, bytearray] = field(default_factory=lambda: {0: bytearray(), 1: bytearray()})
    last: Frame | None = None
    """EXIT or ERROR."""
    warnings: list[str] = field(default_factory=list[str])
    answers: list[Frame] = field(default_factory=list[Frame])
    """Other frames."""

    def __post_init__(self) -> None:
        self.incoming: dict[int, Incoming] = {}
        self.outgoing: dict[int, Outgoing] = {}
        self._is_greeted = False
        self.connection: socket.socket | None = None

    @classmethod
    def into(cls, run: RunDir) -> "Reached":
        """Reaches into a running attempt."""
        return cls(lambda call: entrance.reach(run, call))

    def start(self, argv: Sequence[str] = (), **order: Any) -> "Reached":
        values: dict[str, Any] = {"kind": "program", "argv": list(argv), **order}
        self._connect(Call(kind="start", reach=self.id, order=Order(**values)))
        return self

    def join(self) -> "Reached":
        self._connect(Call(kind="join", reach=self.id))
        return self

    def cut(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def send(self, *frames: Frame) -> None:
        assert self.connection is not None
        self.connection.sendall(b"".join(frame.encode() for frame in frames))

    def write(self, content: bytes, *, channel: int = 0) -> None:
        """Sends bytes once they fit in the window."""
        self.read_until(lambda: self._out(channel).room >= len(content))
        self._out(channel).put(content)
        self.send(*self._out(channel).frames())

    def end_input(self, *, channel: int = 0) -> None:
        self._out(channel).end()
        self.send(*self._out(channel).frames())

    def read_until(self, condition: Callable[[], object], *, acknowledges: bool = True) -> "Reached":
        while not condition():
            assert self.connection is not None
            content = self.connection.recv(1 << 18)
            assert content, (self.output, self.last, self.warnings)
            for frame in self._reader.feed(content):
                self._take(frame, acknowledges=acknowledges)
        return self

    def exit_code(self) -> int:
        """Reads to the end of the program, and lets its handler go."""
        self.read_until(lambda: self.last is not None)
        assert self.last is not None
        assert self.last.kind is Kind.EXIT, self.last
        self.send(Frame(Kind.CLOSE))
        return self.last.number

    def error(self) -> str:
        self.read_until(lambda: self.last is not None)
        assert self.last is not None
        assert self.last.kind is Kind.ERROR, self.last
        return self.last.content.decode()

    def open(self, channel: int, **target: Any) -> str:
        """Has a channel be connected. Returns why it is not, or nothing."""
        self.send(Frame(Kind.OPEN, channel, Target(**target).to_json().encode()))
        before = len(self.answers)
        self.read_until(lambda: len(self.answers) > before)
        answer = self.answers[-1]
        assert answer.kind in {Kind.OPENED, Kind.REFUSED}, answer
        return answer.content.decode()

    def text(self, channel: int = 0) -> str:
        return self.output[channel].decode()

    def _connect(self, call: Call) -> None:
        self.connection = self.connect(call)
        self.connection.settimeout(DEADLINE_S)
        self._reader = FrameReader()
        numbers = self.incoming.keys() | self.outgoing.keys()
        received = {str(each): self.incoming[each].received if each in self.incoming else 0 for each in numbers}
        with suppress(BrokenPipeError):  # it is refused
            self.send(Frame(Kind.HELLO, content=Hello(received=received).to_json().encode()))
        self._is_greeted = False
        self.read_until(lambda: self._is_greeted)

    def _out(self, channel: int) -> Outgoing:
        return self.outgoing.setdefault(channel, Outgoing(channel))

    def _take(self, frame: Frame, *, acknowledges: bool) -> None:
        if frame.kind is Kind.HELLO:
            self._is_greeted = True
            self._greet(Hello.from_json(frame.content).received)
        elif frame.kind is Kind.DATA:
            incoming = self.incoming.setdefault(frame.channel, Incoming(frame.channel))
            incoming.take(frame.content)
            self.output.setdefault(frame.channel, bytearray()).extend(frame.content)
            answer = incoming.passed_on(len(frame.content))
            if answer is not None and acknowledges:
                self.send(answer)
        elif frame.kind is Kind.ACK:
            self._out(frame.channel).acknowledge(frame.number)
        elif frame.kind is Kind.WARNING:
            self.warnings.append(frame.content.decode())
        elif frame.kind in {Kind.EXIT, Kind.ERROR}:
            self.last = frame
        else:
            self.answers.append(frame)

    def _greet(self, received: Mapping[str, int]) -> None:
        for number, outgoing in self.outgoing.items():
            outgoing.resume(received.get(str(number), 0))
            self.send(*outgoing.frames())
        for incoming in self.incoming.values():
            self.send(incoming.resume())
