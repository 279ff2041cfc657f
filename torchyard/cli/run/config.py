"""`run --config` and `run --init`: show the settings of `run`, and write a file for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.cli.run.settings import Setting, Settings


def show_settings(settings: Settings, *, as_json: bool) -> None:
    """Prints the settings that `run` has here, and where each is from."""
    from torchyard.cli.run.settings import user_file

    found = settings.all()
    rows = [(name, _shown(name, item), item.origin) for name, item in found.items()]
    output.show(
        {name: {"value": item.value, "origin": item.origin} for name, item in found.items()},
        output.table(("SETTING", "VALUE", "FROM"), rows),
        notes=[f"Your user settings: {user_file()}. To write settings for this folder: {output.command()} run --init"],
        as_json=as_json,
    )


def write_template() -> None:
    """Writes torchyard.toml, with a comment on each setting. Raises Conflict if there is one."""
    from torchyard.cli.run.settings import PROJECT_FILE
    from torchyard.contract.errors import Conflict

    try:
        with Path(PROJECT_FILE).open("x", encoding="utf-8") as file:
            file.write(_template())
    except FileExistsError:
        raise Conflict(f"{PROJECT_FILE} exists and was not changed") from None
    terminal.write(PROJECT_FILE)
    terminal.note(
        f"Remove the # before a setting to use it. To show the settings in effect: {output.command()} run --config"
    )


def _template() -> str:
    from torchyard.cli.run.keys import KEYS
    from torchyard.cli.run.settings import TABLE

    parts = [f"# {_sentence(key.about)} Allowed: {key.allowed}.\n# {key.name} = {key.example}\n" for key in KEYS]
    heading = "# Settings of `torchyard run` in this folder. Options and TORCHYARD_RUN_… variables override them.\n"
    return "\n".join((f"{heading}[{TABLE}]\n", *parts))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _shown(name: str, setting: Setting) -> str:
    if setting.value is None:
        return ""
    if name == "max_size":
        return terminal.size(setting.value)
    return str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)
