"""The terminal of this process while a program of a job has it: raw, and afterwards as it was before."""

from collections.abc import Generator
from contextlib import contextmanager
import os
import re
import termios
import tty

from torchyard.contract.reach.orders import Terminal

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_MOST = 10_000
"""Rows or columns that a terminal may have."""
_MODES = "\x1b[?1000;1002;1003;1006;2004l\x1b[?25h\x1b[0m"
"""Ends reports of the mouse and of pasted text, shows the cursor, ends colours."""
_ENTER, _LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
"""Of the alternate screen."""


def current(descriptor: int) -> Terminal:
    """Returns what a program of a job may know of the terminal. What is none has the usual size."""
    named = os.environ.get("TERM", "")
    kind = named if _KIND.fullmatch(named) else Terminal.kind
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns = rows = 0
    if not (columns and rows):
        return Terminal(kind=kind)
    return Terminal(rows=min(rows, _MOST), columns=min(columns, _MOST), kind=kind)


@contextmanager
def raw(descriptor: int) -> Generator[None]:
    """Passes each key on as it is for the duration of the block."""
    before = termios.tcgetattr(descriptor)
    try:
        make_raw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def make_raw(descriptor: int) -> None:
    tty.setraw(descriptor, termios.TCSANOW)


class Modes:
    """Knows of the screen what must be undone if the program cannot do so itself."""

    def __init__(self) -> None:
        self._is_alternate = False

    def look(self, content: bytes) -> None:
        """Takes what the program shows."""
        entered, left = content.rfind(_ENTER), content.rfind(_LEAVE)
        if entered != left:
            self._is_alternate = entered > left

    @property
    def undoing(self) -> bytes:
        return (_LEAVE if self._is_alternate else b"") + _MODES.encode()
