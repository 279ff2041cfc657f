"""Whether the user has agreed to what files of a folder give its program: kept in the user's own file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from torchyard.cli.run.settings import PROJECT_FILE, Settings
from torchyard.client.logins import login_file, parse
from torchyard.client.packing.rules import IGNORE_FILE, bringing_back
from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.codec import Record
from torchyard.contract.wire.text import printable
from torchyard.host.privatefile import open_own, write_private

GIVEN = ("secrets", "mounts", "init_from", "include", "visibility")
"""The settings that let a program have what is the user's beyond the folder, or let others see its job."""


@dataclass(frozen=True, kw_only=True)
class _Agreed(Record):
    """By a folder's path, the digest of what was agreed to."""

    folders: dict[str, str] = field(default_factory=dict[str, str])


def check(settings: Settings, folder: Path, *, agrees: bool) -> None:
    """Raises ConfigError if the folder's file sets one of `GIVEN`, or another one of its files has packed what git
    ignores, and the user has never agreed to these values there.

    `agrees`: the user does so now. It holds until the values change.
    """
    layer = settings.of_folder
    given = {name: layer.values[name] for name in GIVEN if name in layer.values}
    if lines := bringing_back(folder):
        given[IGNORE_FILE] = lines
    if not given:
        return
    path, digest = _key_of(folder), hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    agreed = _read()
    if agreed.folders.get(path) == digest:
        return
    if not agrees:
        raise ConfigError(_refusal(given, layer.lines))
    _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(_file(), json.dumps(_Agreed(folders={**agreed.folders, path: digest}).to_dict(), indent=2))


def _refusal(given: Mapping[str, Any], lines: Mapping[str, int]) -> str:
    settings = {name: value for name, value in given.items() if name != IGNORE_FILE}
    said = [f"{_place(name, lines)}: {name} = {json.dumps(value)}" for name, value in settings.items()]
    said += [f"{IGNORE_FILE}: {printable(line)}" for line in given.get(IGNORE_FILE, ())]
    files = " and ".join(
        name for name, has in ((PROJECT_FILE, settings), (IGNORE_FILE, len(said) > len(settings))) if has
    )
    takes = f"{files} of this folder would give the program your data, or set who sees the job."
    return "\n".join(
        (
            f"{takes} You have not accepted that:",
            *(f"  {line}" for line in said),
            "If you trust the folder's author, add --trust-folder once. It lasts until these values change.",
            "Otherwise delete these lines, and pass what you choose as options, such as --secret.",
        )
    )


def _place(name: str, lines: Mapping[str, int]) -> str:
    return f"{PROJECT_FILE}, line {lines[name]}" if name in lines else PROJECT_FILE


def _key_of(folder: Path) -> str:
    """Returns the name of the folder in the user's file, which is UTF-8: its path, or the bytes of another one."""
    path = str(folder.resolve())
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"bytes:{os.fsencode(path).hex()}"
    return path


def _file() -> Path:
    return login_file().with_name("trusted.json")


def _read() -> _Agreed:
    path = _file()
    try:
        with open_own(path) as file:
            return parse(_Agreed, file.read(), path=path)
    except (FileNotFoundError, NotADirectoryError):
        return _Agreed()
    except OSError as error:
        raise ConfigError(f"{path} cannot be used: {error.strerror or error}") from None
