"""Runs a command in a pseudo-terminal: in a fork of the fork server, which starts much faster than Python does."""

from collections.abc import Mapping, Sequence
import fcntl
import os
from pathlib import Path
import select
import struct
import sys
import termios
import traceback
from typing import NoReturn

from tests import forks
from tests.torchyard.cli.invocation import exit_code

forks.preload(__name__)


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
    terminal, other_end = os.openpty()
    try:
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = forks.context.Process(
            target=_run, args=(os.ttyname(other_end), [*arguments], {**environment}, str(cwd or Path.cwd()))
        )
        process.start()
        screen, typed = "", False
        while data := _read(terminal, ended=process.sentinel):
            screen += data
            if answer and not typed and shown in screen:
                os.write(terminal, answer.encode())
                typed = True
        process.join()
    finally:
        os.close(terminal)
        os.close(other_end)
    assert process.exitcode is not None
    return process.exitcode, screen


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


def _read(terminal: int, *, ended: int) -> str:
    """Returns what the process shows next. Returns "" if it has ended and everything was read."""
    ready, _, _ = select.select([terminal, ended], [], [])
    return os.read(terminal, 65536).decode(errors="replace") if terminal in ready else ""
