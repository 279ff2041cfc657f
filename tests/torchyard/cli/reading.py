"""Has the real command line read arguments without doing what they ask."""

from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from torchyard.cli import app
from torchyard.cli.commands import COMMANDS


def read(arguments: list[str]) -> None:
    """Has the command line read the arguments, and do nothing. Raises its error."""
    _command_line()(arguments, standalone_mode=False)


def commands() -> dict[str, Any]:
    """Returns every command that does something by its whole name, such as `tokens add`."""
    return _leaves(_command_line())


@cache
def _command_line() -> Any:
    """Returns the real command line, whose commands do nothing."""
    top: Any = typer.main.get_command(app)
    for name in COMMANDS:
        top.get_command(None, name)
    for command in _leaves(top).values():
        command.callback = None
    return top


def _leaves(command: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(command, TyperGroup):
        return {name: command}
    return {
        leaf: found
        for inner, below in command.commands.items()
        for leaf, found in _leaves(below, f"{name} {inner}".strip()).items()
    }
