"""Runs a command in a pseudo-terminal: in a fork of the fork server, which starts much faster than Python does."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
import fcntl
import os
from pathlib import Path
import select
import struct
import sys
import termios
import traceback
from typing import Any, NoReturn

from tests import forks
from tests.torchyard.cli.invocation import exit_code

forks.preload(__name__)


class Terminal:
    """A terminal with the command in it. `screen`: all that it has shown."""

    def __init__(self, descriptor: int, process: forks.context.Process) -> None:
        self.descriptor = descriptor
        self.process = process
        self.screen = ""
        self._seen = 0

    def type(self, text: str) -> None:
        left = memoryview(text.encode())
        while left:
            left = left[os.write(self.descriptor, left) :]

    def wait_for(self, text: str) -> None:
        """Waits until this is shown, after what was waited for before."""
        while (found := self.screen.find(text, self._seen)) < 0:
            assert self._read(), f"it has ended without {text!r}:\n{self.screen}"
        self._seen = found + len(text)

    def answer(self, text: str, *, shown: str) -> None:
        """Types the text once `shown` is, if it ever is."""
        while shown not in self.screen:
            if not self._read():
                return
        self.type(text)

    def wait(self) -> int:
        """Reads to the end. Returns the exit code of the command."""
        while self._read():
            pass
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    def modes(self) -> list[Any]:
        """Returns what the terminal does with what is typed and shown."""
        return termios.tcgetattr(self.descriptor)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> bool:
        """Takes what is shown next. Returns whether there was anything: if not, all was read and the command ended."""
        ready, _, _ = select.select([self.descriptor, self.process.sentinel], [], [])
        shown = os.read(self.descriptor, 65536).decode(errors="replace") if self.descriptor in ready else ""
        self.screen += shown
        return bool(shown)


@contextmanager
def terminal(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    rows: int = 24,
    columns: int = 80,
    cwd: Path | None = None,
) -> Generator[Terminal]:
    """Runs `torchyard` in a terminal for the duration of the block, and kills it then."""
    descriptor, other_end = os.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = forks.context.Process(
        target=_run, args=(os.ttyname(other_end), [*arguments], {**environment}, str(cwd or Path.cwd()))
    )
    try:
        process.start()
        yield Terminal(descriptor, process)
    finally:
        process.kill()
        process.join()
        os.close(descriptor)
        os.close(other_end)


def in_terminal(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    answer: str = "",
    shown: str = "?",
    columns: int = 80,
    cwd: Path | None = None,
) -> tuple[int, str]:
    """Returns the exit code of `torchyard` and its output. Types `answer` once `shown` is in the output."""
    with terminal(arguments, environment, columns=columns, cwd=cwd) as running:
        if answer:
            running.answer(answer, shown=shown)
        return running.wait(), running.screen


def _run(terminal: str, arguments: list[str], environment: dict[str, str], cwd: str) -> NoReturn:
    """Runs the command in this process, and ends it."""
    code = 70
    try:
        os.setsid()
        descriptor = os.open(terminal, os.O_RDWR)  # the terminal of the new session
        for number in range(3):
            os.dup2(descriptor, number)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update({key: value for key, value in environment.items() if key != "COLUMNS"})
        sys.argv = ["torchyard", *arguments]
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        code = exit_code()
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - the test reads it
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
