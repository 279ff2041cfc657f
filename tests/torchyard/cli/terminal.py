"""Runs a command in a pseudo-terminal: in a fork of this process, which starts much faster than Python does."""

from collections.abc import Mapping, Sequence
import fcntl
import os
from pathlib import Path
import pty
import struct
import sys
import termios
import traceback
from typing import NoReturn

from tests.torchyard.cli.invocation import exit_code


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
    pid, terminal = pty.fork()
    if pid == 0:
        _run(arguments, environment, columns=columns, cwd=cwd or Path.cwd())
    screen, typed = "", False
    while data := _read(terminal):
        screen += data
        if answer and not typed and shown in screen:
            os.write(terminal, answer.encode())
            typed = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen


def _run(arguments: Sequence[str], environment: Mapping[str, str], *, columns: int, cwd: Path) -> NoReturn:
    """Runs the command in this process, and ends it: nothing of the test may go on in the fork."""
    code = 70
    try:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
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


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:  # the process has ended
        return ""
