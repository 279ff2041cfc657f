"""Asks the user: for a secret, never from the arguments, which everybody on the host can read; and before anything is
removed or stopped.
"""

from collections.abc import Iterable
import getpass
import sys

import typer

from torchyard.host import terminal


def read_secret(what: str, *, from_stdin: bool, option: str) -> str:
    """Asks for `what` on the terminal, without an echo, or reads stdin. `option` is the one that reads stdin.

    Raises BadParameter if it is empty, or if there is no terminal to ask on.
    """
    if not (from_stdin or sys.stdin.isatty()):
        raise typer.BadParameter(f"cannot ask for the {what} without a terminal: pass it on stdin with {option}")
    text = sys.stdin.read() if from_stdin else getpass.getpass(f"{what.capitalize()}: ")
    if not text.strip():
        raise typer.BadParameter(f"the {what} is empty")
    return text.strip()


def confirm(question: str, lines: Iterable[str]) -> None:
    """Prints the lines and asks. Raises Abort unless the answer is yes, and BadParameter without a terminal."""
    if not can_ask():
        raise typer.BadParameter("cannot ask for confirmation without a terminal: use --yes")
    for line in lines:
        terminal.note(line)
    typer.confirm(question, abort=True, err=True)


def can_ask() -> bool:
    """Returns whether there is a terminal that can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()
