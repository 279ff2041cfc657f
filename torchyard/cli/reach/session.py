"""A program of a job at the standard streams of this process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
import signal
import sys

from torchyard.cli.reach import ownterminal
from torchyard.cli.reach.blocking import Worker, read_some, stop, widen_input, write_all
from torchyard.cli.reach.escape import Typed
from torchyard.client.reaching.reach import Reach
from torchyard.contract.errors import TorchyardError
from torchyard.host import terminal
from torchyard.host.channel import Channel, Closed

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_MOST_INTERRUPTS = 3
"""The last one ends a program that goes on after the others."""
_END_S = 3.0
"""For how long the end of a program is awaited that the user has left. It has 2 s of it to end by itself."""
_INTERRUPT = b"\x03"


def tell(line: str) -> None:
    """Writes a line beside what the program shows."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\n{terminal.plain(line)}\r\n")
        sys.stderr.flush()
    else:
        terminal.note(terminal.plain(line))


class Session:
    """`has_terminal`: the program has one. `is_raw`: this process has one, too, and each key is the program's. `end`
    asks the service to end what was started, while there is no connection.
    """

    def __init__(self, reach: Reach, *, has_terminal: bool, is_raw: bool, end: Callable[[], Awaitable[object]]) -> None:
        self._reach = reach
        self._is_raw = is_raw
        self._end = end
        self._main = reach.channel(0)
        self._errors = None if has_terminal else reach.channel(1)
        self._left = asyncio.Event()
        self._left_code = 0
        self._interrupts = 0
        self._modes = ownterminal.Modes()

    async def run(self) -> int:
        """Returns the exit code for this process. Raises TorchyardError."""
        with ExitStack() as stack:
            if self._is_raw:
                stack.enter_context(ownterminal.raw(0))
            self._catch_signals()
            running = asyncio.create_task(self._reach.run())
            left = asyncio.create_task(self._left.wait())
            reading = asyncio.create_task(self._read())
            writing = [asyncio.create_task(self._write(self._main, 1))]
            if self._errors is not None:
                writing.append(asyncio.create_task(self._write(self._errors, 2)))
            try:
                await asyncio.wait({running, left}, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    written = asyncio.gather(*writing)
                    await asyncio.wait({written, left}, return_when=asyncio.FIRST_COMPLETED)
                    return _exit_code(running.result())
                await self._leave(running)
                return self._left_code
            finally:
                stop(running, left, reading, *writing)
                if self._is_raw and (not running.done() or running.cancelled() or running.exception() is not None):
                    sys.stdout.buffer.write(self._modes.undoing + b"\r\n")
                    sys.stdout.flush()

    def leave(self, code: int) -> None:
        """Ends the program, and this process with the exit code."""
        self._left_code = code
        self._left.set()

    async def _leave(self, running: asyncio.Task[int]) -> None:
        if self._reach.is_connected:
            self._reach.close(self._main)
            await asyncio.wait({running}, timeout=_END_S)
            return
        ending = asyncio.ensure_future(self._end())
        await asyncio.wait({ending}, timeout=_END_S)
        if ending.done() and not isinstance(ending.exception(), TorchyardError | None):
            ending.result()

    async def _read(self) -> None:
        """Passes on what comes on this process's standard input."""
        worker, typed = Worker(), Typed()
        widen_input()
        try:
            while content := await worker(read_some):
                if self._is_raw:
                    if not self._reach.was_met and _INTERRUPT in content:
                        self.leave(128 + signal.SIGINT)
                    content = typed.feed(content)
                if content:
                    await self._main.write(content)
                if typed.is_leaving:
                    self.leave(0)
                    return
            self._main.end()
            if self._is_raw:
                self.leave(128 + signal.SIGHUP)
        except Closed:
            return

    async def _write(self, channel: Channel, descriptor: int) -> None:
        """Writes what the program does, at the speed of who reads it."""
        worker = Worker()
        with suppress(Closed):
            while content := await channel.read():
                self._modes.look(content)
                try:
                    await worker(lambda content=content: write_all(descriptor, content))
                except OSError:  # nobody reads it: what still comes is dropped
                    self.leave(128 + signal.SIGPIPE)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _PASSED_ON:
            loop.add_signal_handler(number, self._receive, number)
        if self._is_raw:
            loop.add_signal_handler(signal.SIGWINCH, self._resize)
            loop.add_signal_handler(signal.SIGCONT, self._go_on)

    def _receive(self, number: int) -> None:
        """Has the program get a signal. Where it has this terminal, the keys do that: others end all."""
        self._interrupts += number == signal.SIGINT
        if self._is_raw or not self._reach.is_connected or self._interrupts >= _MOST_INTERRUPTS:
            self.leave(128 + number)
        else:
            self._reach.signal(number)

    def _resize(self) -> None:
        self._reach.resize(ownterminal.current(0))

    def _go_on(self) -> None:
        """Takes the terminal again after this process was stopped: the user's shell has had it."""
        ownterminal.make_raw(0)
        self._resize()


def _exit_code(code: int) -> int:
    """Returns the code as a shell tells it: that of a signal is above 128."""
    return code if code >= 0 else 128 - code
