"""Runs a command in a pseudo-terminal."""

from collections.abc import Mapping, Sequence
import fcntl
import os
from pathlib import Path
import pty
import struct
import termios

from tests.torchyard.cli.invocation import COMMAND


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
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.chdir(cwd or Path.cwd())
        own = {key: value for key, value in environment.items() if key != "COLUMNS"}
        os.execvpe(COMMAND[0], [*COMMAND, *arguments], own)
    screen, typed = "", False
    while data := _read(terminal):
        screen += data
        if answer and not typed and shown in screen:
            os.write(terminal, answer.encode())
            typed = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:  # the process has ended
        return ""
