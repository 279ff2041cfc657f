"""Reads a secret from the user: never from the arguments, which everybody on the host can read."""

import getpass
import sys

import typer


def read_secret(what: str, *, from_stdin: bool, option: str) -> str:
    """Asks for `what` on the terminal, without an echo, or reads stdin. `option` is the one that reads stdin.

    Raises BadParameter if it is empty, or if there is no terminal to ask on.
    """
    if not (from_stdin or sys.stdin.isatty()):
        raise typer.BadParameter(f"there is no terminal to ask for the {what}: give it on stdin, with {option}")
    text = sys.stdin.read() if from_stdin else getpass.getpass(f"{what.capitalize()}: ")
    if not text.strip():
        raise typer.BadParameter(f"the {what} is empty")
    return text.strip()
