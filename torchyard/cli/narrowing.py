"""Prepares the command that is called, and no other: to prepare all takes as long as to import them."""

from collections.abc import Sequence
import copy
from functools import cache

import typer
from typer.main import get_command_name


def narrowed(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """Returns the app with the command, or the group, that the first argument names. Else all of it."""
    return _only(app, arguments[0]) if arguments else app


@cache
def _only(app: typer.Typer, name: str) -> typer.Typer:
    made = copy.copy(app)
    made.registered_commands = [
        info
        for info in app.registered_commands
        if name == (info.name or (info.callback is not None and get_command_name(info.callback.__name__)))
    ]
    made.registered_groups = [info for info in app.registered_groups if name == info.name]
    return made if made.registered_commands or made.registered_groups else app
