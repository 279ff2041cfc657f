"""The commands `config` and `init`: show the settings of `run`, and write a file for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.cli.run.settings import Setting


def config(
    *,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
    as_json: Json = False,
) -> None:
    """Show the settings that `run` has here, and where each is from.

    They come from the environment, torchyard.toml and your own file.
    """
    from torchyard.cli.run.settings import read_settings, user_file

    found = read_settings().all()
    if as_json:
        values = {name: {"value": item.value, "origin": item.origin} for name, item in found.items()}
        return terminal.write(json.dumps(values))
    headers = ("SETTING", "VALUE", *(("FROM",) if origin else ()))
    rows = [(name, _shown(name, item), *((item.origin,) if origin else ())) for name, item in found.items()]
    for line in output.table(headers, rows):
        terminal.write(line)
    return terminal.note(f"Your own file is {user_file()}; `{output.command()} init` writes one for this folder.")


def init() -> None:
    """Write torchyard.toml, with a comment on each setting.

    A file that is there stays as it is.
    """
    from torchyard.cli.run.settings import PROJECT_FILE
    from torchyard.contract.errors import Conflict

    try:
        with Path(PROJECT_FILE).open("x", encoding="utf-8") as file:
            file.write(_template())
    except FileExistsError:
        raise Conflict(f"there is a {PROJECT_FILE} here: it stays as it is") from None
    terminal.write(PROJECT_FILE)
    terminal.note(f"Take the # from what you want to set. `{output.command()} config --origin` shows what holds.")


def _template() -> str:
    from torchyard.cli.run.keys import KEYS
    from torchyard.cli.run.settings import TABLE

    parts = [f"# {_sentence(key.about)} Allowed: {key.allowed}.\n# {key.name} = {key.example}\n" for key in KEYS]
    heading = "# What `torchyard run` does in this folder. A flag or a variable TORCHYARD_RUN_… goes before it.\n"
    return "\n".join((f"{heading}[{TABLE}]\n", *parts))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _shown(name: str, setting: Setting) -> str:
    if setting.value is None:
        return ""
    if name == "max_size":
        return terminal.size(setting.value)
    return str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)
