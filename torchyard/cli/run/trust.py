"""Whether the user has agreed to what a folder's torchyard.toml gives its program: kept in the user's own file."""

from collections.abc import Mapping
import hashlib
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from torchyard.cli.run.settings import PROJECT_FILE, Settings
from torchyard.client.logins import login_file, parse
from torchyard.contract.errors import ConfigError
from torchyard.host.privatefile import open_own, write_private

GIVEN = ("secrets", "mounts", "init_from", "include", "visibility")
"""The settings that let a program have what is the user's beyond the folder, or let others see its job."""


class _Agreed(BaseModel):
    """By a folder's path, the digest of what was agreed to."""

    model_config = ConfigDict(frozen=True)

    folders: Mapping[str, str] = {}


def check(settings: Settings, folder: Path, *, agrees: bool) -> None:
    """Raises ConfigError if the folder's file sets one of `GIVEN`, and the user has never agreed to these values there.

    `agrees`: the user does so now. It holds until the values change.
    """
    layer = settings.of_folder
    given = {name: layer.values[name] for name in GIVEN if name in layer.values}
    if not given:
        return
    path, digest = str(folder.resolve()), hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    agreed = _read()
    if agreed.folders.get(path) == digest:
        return
    if not agrees:
        raise ConfigError(_refusal(given, layer.lines))
    _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(_file(), _Agreed(folders={**agreed.folders, path: digest}).model_dump_json(indent=2))


def _refusal(given: Mapping[str, object], lines: Mapping[str, int]) -> str:
    said = [f"{_place(name, lines)}: {name} = {json.dumps(value)}" for name, value in given.items()]
    takes = f"{PROJECT_FILE} of this folder takes what is yours, or says who sees the job."
    return "\n".join(
        (
            f"{takes} You have not agreed to that:",
            *(f"  {line}" for line in said),
            "If you trust who wrote the folder, add --trust-folder once: it holds until these values change.",
            "Else remove them from the file; a flag such as --secret can give the program what you choose.",
        )
    )


def _place(name: str, lines: Mapping[str, int]) -> str:
    return f"{PROJECT_FILE}, line {lines[name]}" if name in lines else PROJECT_FILE


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
