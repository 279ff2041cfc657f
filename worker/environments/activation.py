"""The variables of an environment that is activated. Scripts of conda packages are read as data, and never run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
import json
import os
from pathlib import Path
import re
from typing import Any

from torchyard.contract.spec.environment import is_reserved
from torchyard.host.untrusted import read_given
from worker.environments.environment import CONDA_META, Environment

_MOST_FILES = 100
_MOST_BYTES = 64 << 10
_LIBRARIES = "LD_LIBRARY_PATH"
"""The one variable of the service's that an environment may set: its own libraries."""
_LONGEST = 32_768
"""Characters of a value, as in a spec."""
_MOST_SET = 1 << 18
"""Characters of all values that one script sets: each line could double what the one before has set."""
_UNSET = "***unset***"
"""What `conda env config vars unset` leaves in place of a value."""
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,199}+"
_USED = rf"\$(?:\{{{_NAME}\}}|{_NAME})"
_ASSIGNMENT = re.compile(
    rf"""(?:export\s+)?(?P<name>{_NAME})=
    (?:'(?P<plain>[^']*)' | "(?P<quoted>(?:[^"\\`$]|{_USED})*)"
    | (?P<bare>(?:[^\s'"\\`$;|&<>(){{}}*?~\[\]#!]|{_USED})*))\s*;?""",
    re.VERBOSE,
)
_EXPORT = re.compile(rf"export(\s+{_NAME})+\s*;?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True)
class Activation:
    variables: Mapping[str, str]
    notes: list[str] = field(default_factory=list[str])
    """What was left out, for the job's owner."""


def activate(environment: Environment, *, path: str) -> Activation:
    """Returns the variables with which programs of the environment run. `path`: PATH without it."""
    own = {"PATH": f"{environment.path / 'bin'}{os.pathsep}{path}"}
    if environment.kind == "venv":
        return Activation(own | {"VIRTUAL_ENV": str(environment.path)})
    name = environment.path.name
    own |= {"CONDA_PREFIX": str(environment.path), "CONDA_DEFAULT_ENV": name, "CONDA_SHLVL": "1"}
    variables, notes = dict(own), list[str]()
    for file, values in (*_scripts(environment.path, variables), *_tables(environment.path)):
        if values is None:
            notes.append(f"{file} of the environment {name} does more than set variables: it is not run")
            continue
        refused = sorted(key for key in values if key in own or (is_reserved(key) and key != _LIBRARIES))
        if refused:
            notes.append(f"{file} of the environment {name} sets {', '.join(refused)}, which the service sets itself")
        variables |= {key: value for key, value in values.items() if key not in refused}
    return Activation(variables, notes)


def assignments(text: str, known: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the variables that a script of a shell sets; None if it does anything else. `known`: those before it."""
    assigned: dict[str, str] = {}
    left = _MOST_SET
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or _EXPORT.fullmatch(stripped):
            continue
        match = _ASSIGNMENT.fullmatch(stripped)
        if match is None:
            return None
        if match["plain"] is not None:
            value = match["plain"]
        else:
            value = _expanded(match["quoted"] or match["bare"] or "", {**known, **assigned})
        if value is None or not _is_value(value) or len(value) > left:
            return None
        left -= len(value)
        assigned[match["name"]] = value
    return assigned


def _scripts(prefix: Path, known: dict[str, str]) -> Iterator[tuple[str, dict[str, str] | None]]:
    folder = prefix / "etc" / "conda" / "activate.d"
    for name in _files(folder, ".sh"):
        values = assignments(_text(folder / name), known)
        yield f"activate.d/{name}", values


def _tables(prefix: Path) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Yields the variables of `conda env config vars set`, and those of packages."""
    folder = prefix / "etc" / "conda" / "env_vars.d"
    for name in _files(folder, ".json"):
        yield f"env_vars.d/{name}", _texts(_object(folder / name))
    state = prefix / CONDA_META / "state"
    if state.is_file():
        yield "conda-meta/state", _texts(_object(state).get("env_vars", {}))


def _files(folder: Path, suffix: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(suffix))[:_MOST_FILES]  # noqa: PTH208 names
    except OSError:
        return []


def _object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(file))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _texts(values: Any) -> dict[str, str] | None:
    pairs = values.items() if isinstance(values, dict) else ()
    texts = {str(name): value for name, value in pairs if isinstance(value, str) and value != _UNSET}
    possible = all(re.fullmatch(_NAME, name) and _is_value(value) for name, value in texts.items())
    return texts if possible else None


def _text(file: Path) -> str:
    try:
        return read_given(file, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return "unreadable"


def _expanded(text: str, values: Mapping[str, str]) -> str | None:
    """Returns the text with the values of its variables; None if it becomes too long."""
    used = [values.get(match[1] or match[2], "") for match in _VARIABLE.finditer(text)]
    if sum(map(len, used)) > _LONGEST:
        return None
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], ""), text)


def _is_value(text: str) -> bool:
    """Returns whether a program can have it as a variable's value."""
    return len(text) <= _LONGEST and "\0" not in text and not _SURROGATE.search(text)
