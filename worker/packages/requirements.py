"""Reads what a job's code requires: `requirements.txt`, `pyproject.toml` with `uv.lock`, or a script's metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import hashlib
import json
import os
from pathlib import Path
import re
import stat
import tomllib
from typing import Any, Literal

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Script
from torchyard.contract.recipes.script import SCRIPT_METADATA
from worker.packages.order import LOCK, PYPROJECT, REQUIREMENTS, SCRIPT

Kind = Literal["requirements", "lock", "script"]

_MOST_BYTES = 1 << 24
_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")  # as in PEP 723
_INDEX_OPTION = re.compile(r"\s*(-i|-f|--index-url|--extra-index-url|--find-links|--no-index|--trusted-host)\b")
_INDEX_KEYS = {"index", "index-url", "extra-index-url", "find-links", "no-index", "sources", "pip"}
_TORCH = re.compile(r"\s*torch(?![\w.\-])", re.IGNORECASE)


@dataclass(frozen=True)
class Requirements:
    """What to install, as files for uv."""

    kind: Kind
    shown: str
    """The name for the job's owner."""
    files: Mapping[str, bytes] = field(repr=False)
    names_torch: bool
    """Whether torch itself is among what is required. Else it is the worker's."""

    def digest(self) -> str:
        """Returns the sha256 of all that is read, as hexadecimal digits."""
        parts = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return hashlib.sha256(json.dumps([self.kind, parts], sort_keys=True).encode()).hexdigest()


def read(code: Path, config: Script, *, own_index: bool) -> Requirements | None:
    """Returns what the program in the folder `code`, a path without links, requires.

    Returns None if it takes the worker's packages.
    `own_index`: the operator chose where packages come from, so that the job may not. Raises DataError if a file is
    missing or cannot be read, ConfigError if it asks for what is not possible, and OSError.
    """
    name = config.requirements
    if name is None:
        return None
    if name == SCRIPT_METADATA:
        return _of_script(code, config, own_index=own_index)
    if Path(name).name == PYPROJECT:
        return _of_project(code, name)
    return _of_requirements(code, name, own_index=own_index)


def _of_requirements(code: Path, name: str, *, own_index: bool) -> Requirements:
    text = _text(code, name)
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if own_index and (found := _INDEX_OPTION.match(line)):
            raise ConfigError(f"{name}, line {number}: {_one_index(found[1])}")
    torch = any(_TORCH.match(line.partition("#")[0]) for line in lines)
    return Requirements("requirements", name, {REQUIREMENTS: text.encode()}, torch)


def _of_project(code: Path, name: str) -> Requirements:
    lock = str(Path(name).with_name(LOCK))
    if not os.path.lexists(code / lock):
        raise DataError(f"{name} needs {lock} beside it: make it with `uv lock`")
    project, locked = _text(code, name), _text(code, lock)
    _toml(project, name)
    packages = _toml(locked, lock).get("package", [])
    named = [item.get("name") for item in packages if isinstance(item, dict)] if isinstance(packages, list) else []
    return Requirements("lock", lock, {PYPROJECT: project.encode(), LOCK: locked.encode()}, "torch" in named)


def _of_script(code: Path, config: Script, *, own_index: bool) -> Requirements:
    name = config.entrypoint
    if name is None:
        raise ConfigError("config.requirements: script needs an entrypoint, whose metadata it reads")
    blocks = list(_BLOCK.finditer(_text(code, name)))
    if len(blocks) != 1:
        many = "more than one block" if blocks else "no block"
        raise DataError(f"{name} has {many} of metadata that begins with `# /// script` (PEP 723)")
    metadata = _toml("\n".join(line[2:] for line in blocks[0]["content"].splitlines()), name)
    chosen = sorted(_INDEX_KEYS & _table(_table(metadata.get("tool")).get("uv")).keys())
    if own_index and chosen:
        raise ConfigError(f"{name}: {_one_index(f'tool.uv.{chosen[0]}')}")
    wanted = metadata.get("dependencies", [])
    torch = any(isinstance(item, str) and _TORCH.match(item) for item in wanted) if isinstance(wanted, list) else False
    return Requirements("script", f"the metadata of {name}", {SCRIPT: blocks[0][0].encode() + b"\n"}, torch)


def _one_index(option: str) -> str:
    return f"this worker installs from one package index (TORCHYARD_PACKAGE_INDEX): leave {option} out"


def _text(code: Path, name: str) -> str:
    path = Path(os.path.realpath(code / name))
    if not path.is_relative_to(code):
        raise DataError(f"{code / name} lies outside the code folder")
    if not os.path.isfile(path):  # noqa: PTH113 Path.is_file raises for a name that is too long
        raise DataError(f"there is no {code / name}")
    with open(path, "rb", opener=_open_at_once) as file:
        # Its owner may have put a link or a pipe in its place meanwhile.
        opened = Path(f"/proc/self/fd/{file.fileno()}").readlink()
        if opened != path or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataError(f"{code / name} changed while it was read")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise DataError(f"{name} has more than {_MOST_BYTES} bytes")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise DataError(f"{name} is not a text in UTF-8") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{name} is not valid TOML: {error}") from None


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
