"""The settings of `torchyard run`, each with the place that it comes from.

A flag goes before a variable of the environment, that before `torchyard.toml` in the working directory, and that before
the user's own file.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
import os
from pathlib import Path
import re
import tomllib

import typer

from torchyard.cli.run.keys import KEYS, Key
from torchyard.cli.run.values import Value
from torchyard.client.logins import login_file
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.wording import suggestion, unknown_key
from torchyard.host.untrusted import read_given

PROJECT_FILE = "torchyard.toml"
DEFAULT = "default"
TABLE = "run"
"""The table of a file that has the settings."""

MOST_BYTES = 1 << 20
"""Of a file with settings."""

_KEY = re.compile(r"[a-z_]+(?=[ \t.=\]])")
_PREFIX = "TORCHYARD_RUN_"
_OTHERS = {Env.RUN_DIR}
"""Variables that begin like those of settings, and are something else."""
_BY_NAME = {key.name: key for key in KEYS}
_EXCLUDE = {"env": "secrets", "secrets": "env"}
"""A variable has its value from one of these two."""


@dataclass(frozen=True)
class Setting:
    """A value, and where it was set. `None` is a value that nobody has set."""

    value: Value
    origin: str


@dataclass(frozen=True)
class Layer:
    """What one place sets. `origins` has the name of the place for each key."""

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    """In which line of a file a key stands, where that was found."""


class Settings:
    """The settings of all layers, the strongest first. Tables are joined, key by key.

    `of_folder` is the layer of the file that came with the folder.
    """

    def __init__(self, *layers: Layer, of_folder: Layer | None = None) -> None:
        self.of_folder = of_folder or Layer()
        self._settings = {key.name: Setting(key.default, DEFAULT) for key in KEYS if not key.is_table}
        self._tables: dict[str, dict[str, Setting]] = {key.name: {} for key in KEYS if key.is_table}
        for layer in reversed(layers):
            for name, value in layer.values.items():
                self._set(name, value, layer.origins[name])

    def __getitem__(self, name: str) -> Value:
        """Returns the value of a setting."""
        if name in self._tables:
            return {inner: setting.value for inner, setting in self._tables[name].items()}
        return self._settings[name].value

    def all(self) -> dict[str, Setting]:
        """Returns every setting. The entries of a table have names such as `env.OMP_NUM_THREADS`."""
        found: dict[str, Setting] = {}
        for key in KEYS:
            if key.is_table:
                found |= {f"{key.name}.{inner}": setting for inner, setting in self._tables[key.name].items()}
            else:
                found[key.name] = self._settings[key.name]
        return found

    def _set(self, name: str, value: Value, origin: str) -> None:
        if name not in self._tables:
            self._settings[name] = Setting(value, origin)
            return
        for inner, item in value.items():
            self._tables[name][inner] = Setting(item, origin)
            if name in _EXCLUDE:
                self._tables[_EXCLUDE[name]].pop(inner, None)


def read_settings(flags: Mapping[str, Value] | None = None) -> Settings:
    """Returns the settings of the flags, the environment, the project's file and the user's.

    Raises ConfigError, and BadParameter for a wrong flag.
    """
    of_folder = _from_file(Path(PROJECT_FILE))
    return Settings(
        _from_flags(flags or {}),
        _from_environment(os.environ),
        of_folder,
        _from_file(user_file()),
        of_folder=of_folder,
    )


def user_file() -> Path:
    """Returns the path of the user's own file."""
    return login_file().with_name("config.toml")


def _from_flags(flags: Mapping[str, Value]) -> Layer:
    """Takes what was given: not None, and not empty. Raises BadParameter."""
    given = {name: value for name, value in flags.items() if value not in (None, {}, [])}
    origins = {name: f"--{_flag(name)}" for name in given}
    try:
        return _checked(given, origins, origins)
    except ConfigError as error:
        raise typer.BadParameter(error.message) from None


def _flag(name: str) -> str:
    return {"secrets": "secret", "mounts": "mount", "labels": "label"}.get(name, name.replace("_", "-"))


def _from_environment(environment: Mapping[str, str]) -> Layer:
    known = {key.variable: key for key in KEYS}
    given = {name: text for name, text in environment.items() if name.startswith(_PREFIX) and name not in _OTHERS}
    for name in given.keys() - known.keys():
        raise ConfigError(f"{name}: {unknown_key(name, known)}")
    values = {known[name].name: known[name].from_text(text) for name, text in given.items()}
    origins = {known[name].name: name for name in given}
    return _checked(values, origins, origins)


def _from_file(path: Path) -> Layer:
    try:
        text = read_given(path, MOST_BYTES).decode("utf-8")
        content = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return Layer()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for name in content.keys() - {TABLE}:
        inside = f"below the line [{TABLE}], {suggestion(name, _BY_NAME)}"
        raise ConfigError(f"{path}: unknown key {name}; the table is [{TABLE}]; {inside}")
    values = content.get(TABLE, {})
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: {TABLE} must be a table, which begins with the line [{TABLE}]")
    layer = _checked(values, {name: f"{path}: {TABLE}.{name}" for name in values}, dict.fromkeys(values, str(path)))
    return replace(layer, lines=_lines(text, layer.values))


def _lines(text: str, names: Collection[str]) -> dict[str, int]:
    """Returns the first line that begins with each key. A key that TOML allows in other forms is not found."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key = _KEY.match(line.lstrip(" \t[").removeprefix(f"{TABLE}."))
        if key is not None and key[0] in names:
            found.setdefault(key[0], number)
    return found


def _checked(values: Mapping[str, Value], places: Mapping[str, str], origins: Mapping[str, str]) -> Layer:
    """Returns the layer of one place. Raises ConfigError, which names the place of the first wrong key."""
    found: dict[str, Value] = {}
    for name, value in values.items():
        key = _known(name, places[name])
        try:
            found[name] = key.check(value)
        except ValueError as error:
            raise ConfigError(f"{places[name]} {error}") from None
    both = found.get("env", {}).keys() & found.get("secrets", {}).keys()
    if both:
        raise ConfigError(f"{places['secrets']}: {', '.join(sorted(both))} has a text as value, too")
    if found.get("mounts"):
        _check_places(found["mounts"], places["mounts"])
    return Layer(found, origins)


def _check_places(mounts: Value, origin: str) -> None:
    from torchyard.contract.bundles.mounting import paths_in

    try:
        paths_in(mounts)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None


def _known(name: str, place: str) -> Key:
    if name not in _BY_NAME:
        raise ConfigError(f"{place}: {unknown_key(name, _BY_NAME)}")
    return _BY_NAME[name]
