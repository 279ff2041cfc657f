"""What a job runs: a file of the folder, a module, or an executable. Finds out before anything is uploaded."""

from collections.abc import Mapping
from dataclasses import dataclass
import os
from pathlib import Path
import re
from typing import Any

from torchyard.contract.errors import ConfigError

SHELLS = frozenset({"sh", "bash"})
"""Every worker has these."""
SOURCES = "src"
"""A folder whose modules are found as those of the folder itself."""
_HOW = "give a file of this folder, a module after -m, or a command after --"


@dataclass(frozen=True)
class Program:
    """A program and its arguments. `file` is the file of the bundle that has it; None if it is not in the folder."""

    key: str
    """Of the job's `config`: entrypoint, module or command."""
    value: str
    args: tuple[str, ...]
    file: str | None

    @property
    def config(self) -> Mapping[str, Any]:
        """The keys of the job's `config` that name the program."""
        return {self.key: self.value, "args": [*self.args]}

    def source(self, folder: Path) -> str | None:
        """Returns the Python file that reads the arguments: of `accelerate launch train.py`, that after the command."""
        if self.key != "command":
            return self.file
        return next((arg for arg in self.args if arg.endswith(".py") and (folder / arg).is_file()), None)


def find_program(words: tuple[str, ...], *, folder: Path, module: bool, any_executable: bool) -> Program:
    """Returns the program that the words of the command line name: the first of them; the others are its arguments.

    With `any_executable` it may be one of the worker's environment, which the folder does not have. Raises ConfigError.
    """
    if not words or not words[0]:
        raise ConfigError(f"there is no program: {_HOW}")
    name, args = words[0], words[1:]
    if module:
        return Program("module", name, args, _file_of_module(name, folder))
    inside = _inside(name, folder)
    if (folder / inside).is_file():
        return _file(inside, args, folder)
    if not any_executable and name in {"python", "python3"}:
        raise ConfigError(f"omit {name}: give its file, or a module after -m. `-- {name} …` runs it once, unchanged")
    if name in SHELLS and (script := _script(args)) is not None:
        if not (folder / _inside(script, folder)).is_file():
            raise ConfigError(f"there is no file {script} in {folder} for {name} to run: {_HOW}")
        if not any_executable:
            raise ConfigError(f"omit {name}: give {script} (`chmod +x {script}`). `-- {name} …` runs it unchanged")
    if not any_executable or "/" in name or name.endswith(".py"):
        raise ConfigError(f"there is no file {name} in {folder}: {_HOW}")
    return Program("command", name, args, None)


def _script(args: tuple[str, ...]) -> str | None:
    """Returns the file of the folder that a shell with these arguments runs; None if it is another one."""
    first = next(iter(args), "-")
    return None if first.startswith(("-", "/")) else first


def absolute_python(text: str | None) -> str | None:
    """Returns the name of an environment as it is, and a path as an absolute one, by the names that it has."""
    if text is None or "/" not in text:
        return text
    return os.path.abspath(Path(text).expanduser())  # noqa: PTH100 a link stays one: it tells an environment's Python


def _file(name: str, args: tuple[str, ...], folder: Path) -> Program:
    if name.endswith(".py"):
        return Program("entrypoint", name, args, name)
    if not os.access(folder / name, os.X_OK):
        raise ConfigError(f"{name} is neither a Python file nor executable: `chmod +x {name}`, or `-- bash {name}`")
    return Program("command", f"./{name}", args, name)


def _inside(name: str, folder: Path) -> str:
    """Returns the path relative to the folder. Raises ConfigError if it leads outside."""
    path = os.path.normpath(folder / name)
    if not Path(path).is_relative_to(folder) and re.fullmatch(r"python[0-9.]*", Path(path).name):
        raise ConfigError(f"omit {name}: `--python {name}` before the program runs it in that environment")
    if not Path(path).is_relative_to(folder):
        raise ConfigError(f"{name} is outside of the uploaded folder {folder}: run the command in the program's folder")
    return os.path.relpath(path, folder)


def _file_of_module(name: str, folder: Path) -> str | None:
    """Returns the file of a module; None if its package is not in the folder, and may be in the environment.

    Raises ConfigError if the folder has the package without the module, or if the name cannot be one.
    """
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{name} is not a module: write it as `python -m` takes it, such as package.train")
    path = Path(*parts)
    candidates = (path.with_name(f"{path.name}.py"), path / "__main__.py")
    files = (Path(place, file) for place in ("", SOURCES) for file in candidates)
    found = next((file for file in files if (folder / file).is_file()), None)
    if found is not None:
        return found.as_posix()
    if (folder / SOURCES / parts[0]).is_dir():
        raise ConfigError(
            f"there is no module {name} in {folder / SOURCES}: neither {candidates[0]} nor {candidates[1]}"
        )
    if (folder / parts[0]).is_dir() or (folder / f"{parts[0]}.py").is_file():
        raise ConfigError(
            f"there is no module {name} in {folder}: neither {candidates[0]} nor {candidates[1]} is there"
        )
    return None
