"""Redraws the screen of a terminal until the user leaves."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import os
import select
import shutil
import sys
import termios
import tty

from torchyard.host import terminal


def redraw(read: Callable[[], list[str]], *, seconds: float) -> None:
    """Shows the lines that `read` returns, and calls it again every `seconds`, until Ctrl-C or q.

    If the server does not answer, the lines stay, below a line that says so.
    """
    from rich.live import Live  # which takes long to import
    from rich.text import Text

    from torchyard.contract.errors import ServerUnreachable, Unavailable

    lines: list[str] = []
    try:
        with _keys(), Live(screen=True, auto_refresh=False) as live:
            while True:
                try:
                    lines, trouble = read(), []
                except (ServerUnreachable, Unavailable) as error:
                    trouble = [terminal.paint(f"Not up to date: {terminal.plain(error.message)}", "33", sys.stdout)]
                shown = [*trouble, *lines][: shutil.get_terminal_size().lines]
                live.update(Text.from_ansi("\n".join(shown), no_wrap=True), refresh=True)
                if _leaves(seconds):
                    return
    except KeyboardInterrupt:
        return


@contextmanager
def _keys() -> Generator[None]:
    """Has the terminal pass on each key at once, and not show it."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _leaves(seconds: float) -> bool:
    """Waits, and returns whether q was pressed meanwhile."""
    keyboard = [sys.stdin] if sys.stdin.isatty() else []
    pressed, _, _ = select.select(keyboard, [], [], seconds)
    return bool(pressed) and os.read(sys.stdin.fileno(), 100) in {b"q", b"Q", b""}
