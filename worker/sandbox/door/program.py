"""Starts a program for a user, with pipes or a terminal, and says how it ended."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
import errno
import fcntl
from functools import partial
import os
from pathlib import Path
import shutil
import signal
import socket
import struct
import sys
import termios
from typing import NoReturn, Self

from torchyard.contract.reach.frames import BadFrame, Frame, Kind, with_number
from torchyard.contract.reach.orders import Hello, Order, Terminal
from worker.sandbox.door.channel import Channel, end_of_socket

_SSH_SERVER = "worker.reaches.sshd"
_SHELLS = ("/bin/bash", "/usr/bin/bash")
_LAST_SHELL = "/bin/sh"
_CHARACTERS = 6
"""The place of the special characters in what `tcgetattr` returns."""
ENDS = 20
"""How often an end of file is typed: a terminal forgets one that comes before its program has changed the mode."""


class CannotStart(Exception):
    """The program cannot be started. The text says why."""


class Program:
    """A program that runs in a session of its own, in the folder of this process."""

    result: Frame | None = None

    def __init__(self, pid: int, channels: Sequence[Channel], *, terminal: int | None = None) -> None:
        self.channels = dict(enumerate(channels))
        self._pid = pid
        self._terminal = terminal

    @classmethod
    def of_order(cls, order: Order, variables: Mapping[str, str]) -> Self:
        """Starts what a user wants. `variables`: all that it gets, but for `TERM`. Raises CannotStart."""
        argv = order.argv or [user_shell()]
        env = {**variables, **({} if order.terminal is None else {"TERM": order.terminal.kind})}
        found = shutil.which(argv[0], path=env.get("PATH", os.defpath))
        if found is None:
            raise CannotStart(f"there is no program {argv[0]} on PATH in the job's sandbox")
        program = _Executable(found, argv, env)
        try:
            return cls._with_pipes(program) if order.terminal is None else cls._in_terminal(program, order.terminal)
        except OSError as error:
            raise CannotStart(f"{argv[0]} cannot be started: {error.strerror or error}") from None

    @classmethod
    def of_server(cls, argv: list[str], variables: Mapping[str, str]) -> Self:
        """Starts a server of one client, whose connection is its standard input and output. Raises OSError."""
        ours, theirs = socket.socketpair()
        stderr, err = os.pipe2(os.O_CLOEXEC)
        end = theirs.detach()
        pid = _fork(_Executable(argv[0], argv, dict(variables)), (end, end, err))
        os.set_blocking(stderr, False)
        ours.setblocking(False)
        place = ours.detach()
        first = Channel(0, source=place, sink=place, end_sink=lambda: end_of_socket(place))
        return cls(pid, [first, Channel(1, source=stderr, sink=None)])

    def greet(self, hello: Hello) -> None:
        pass

    def handle(self, frame: Frame) -> Iterable[Frame]:
        if frame.kind is Kind.RESIZE:
            self._resize(Terminal.from_json(frame.content))
        elif frame.kind is Kind.SIGNAL:
            self._send(frame.number)
        else:
            raise BadFrame(f"a program takes no {frame.kind.name}")
        return ()

    def close(self, channel: int) -> bool:
        return channel == 0

    def look(self) -> None:
        pass

    def note_end(self, pid: int, code: int) -> None:
        if pid == self._pid:
            self.result = with_number(Kind.EXIT, code)
            for channel in self.channels.values():
                channel.drains = self._terminal is not None

    def _resize(self, terminal: Terminal) -> None:
        if self._terminal is None:
            raise BadFrame("the program has no terminal")
        with suppress(OSError):
            _set_size(self._terminal, terminal)

    def _send(self, number: int) -> None:
        """Signals the program's process group; in a terminal, the one in front."""
        if number not in signal.valid_signals():
            raise BadFrame(f"there is no signal {number}")
        if self.result is None:
            with suppress(OSError):
                os.killpg(self._pid if self._terminal is None else os.tcgetpgrp(self._terminal), number)

    @classmethod
    def _with_pipes(cls, program: "_Executable") -> Self:
        given, stdin = os.pipe2(os.O_CLOEXEC)
        stdout, out = os.pipe2(os.O_CLOEXEC)
        stderr, err = os.pipe2(os.O_CLOEXEC)
        pid = _fork(program, (given, out, err))
        for descriptor in (stdin, stdout, stderr):
            os.set_blocking(descriptor, False)
        first = Channel(0, source=stdout, sink=stdin, end_sink=lambda: _closed(stdin))
        return cls(pid, [first, Channel(1, source=stderr, sink=None)])

    @classmethod
    def _in_terminal(cls, program: "_Executable", terminal: Terminal) -> Self:
        ours, theirs = os.openpty()
        _set_size(ours, terminal)
        pid = _fork(program, (theirs, theirs, theirs), in_terminal=True)
        os.set_blocking(ours, False)
        end_sink = partial(end_of_file, ours)
        return cls(pid, [Channel(0, source=ours, sink=ours, end_sink=end_sink, ends=ENDS)], terminal=ours)


def ssh_server(authorized_key: str, *, first: int) -> list[str]:
    """Returns what runs an SSH server for one client. It is told the key, and the pid above all of the attempt."""
    return [sys.executable, "-P", "-I", "-m", _SSH_SERVER, authorized_key, str(first)]


@dataclass(frozen=True)
class _Executable:
    path: str
    argv: list[str]
    env: Mapping[str, str]


def user_shell() -> str:
    return next((path for path in _SHELLS if Path(path).exists()), _LAST_SHELL)


def _set_size(descriptor: int, terminal: Terminal) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("4H", terminal.rows, terminal.columns, 0, 0))


def _closed(descriptor: int) -> bytes:
    os.close(descriptor)
    return b""


def end_of_file(terminal: int) -> bytes:
    """Returns what a user types where a program reads no more."""
    return termios.tcgetattr(terminal)[_CHARACTERS][termios.VEOF]


def _fork(program: _Executable, standard: Sequence[int], *, in_terminal: bool = False) -> int:
    """Starts a program with these as its standard descriptors, and closes them. Returns its pid. Raises OSError."""
    trouble, failed = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(program, standard, failed, in_terminal=in_terminal)
    for descriptor in {failed, *standard}:
        os.close(descriptor)
    number = int.from_bytes(os.read(trouble, 4), "big")
    os.close(trouble)
    if number:
        raise OSError(number, os.strerror(number))
    return pid


def _become(program: _Executable, standard: Sequence[int], failed: int, *, in_terminal: bool) -> NoReturn:
    """Becomes the program. Writes the number of the error to `failed` if it cannot."""
    try:
        os.setsid()
        if in_terminal:
            fcntl.ioctl(standard[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate((*standard, failed)):
            os.dup2(descriptor, number, inheritable=descriptor != failed)
        os.closerange(len(standard) + 1, os.sysconf("SC_OPEN_MAX"))
        failed = len(standard)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with suppress(OSError):  # two of them are the C library's own
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(program.path, program.argv, program.env)  # noqa: S606 no shell is wanted
    except OSError as error:
        os.write(failed, (error.errno or errno.EIO).to_bytes(4, "big"))
    finally:
        os._exit(127)
