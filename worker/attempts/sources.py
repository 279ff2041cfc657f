"""Resolves the `file://` URLs of a job to files of the worker's host, below the folders that the operator allowed."""

from collections.abc import Sequence
import os
from pathlib import Path
from urllib.parse import unquote

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import Script
from torchyard.contract.rundir import Env
from torchyard.contract.spec import RecipeSpec

_FILE = "file://"


def resolve(url: str, allowed: Sequence[Path]) -> Path:
    """Returns the existing file or folder at a `file:///…` URL, with links resolved. Raises DataError."""
    if not url.startswith(_FILE):
        raise DataError(f"{url} cannot be fetched: this worker knows no bundles yet")
    try:
        path = Path(unquote(url.removeprefix(_FILE), errors="strict"))
    except UnicodeDecodeError:
        raise DataError(f"{url} is not a path in UTF-8") from None
    if "\0" in str(path):
        raise DataError(f"{url} is not a path")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in allowed):
        raise DataError(f"{path} is not below a folder that this worker allows (--allow-path)")
    if not os.path.exists(real):  # noqa: PTH110 Path.exists raises for a name that is too long
        raise DataError(f"there is no {path}")
    if not os.access(real, os.R_OK):
        raise DataError(f"{path} cannot be read by the worker")
    return real


def data_of(spec: RecipeSpec, allowed: Sequence[Path]) -> dict[str, str]:
    """Returns the environment variables that name a recipe's data and weights. Raises DataError."""
    data, weights = spec.config.data.source, spec.config.model.weights
    found = {Env.DATA.value: data if data == "digits" else str(resolve(data, allowed))}
    if weights.startswith(_FILE):
        found[Env.WEIGHTS.value] = str(resolve(weights, allowed))
    return found


def program(code: Path, config: Script) -> tuple[str, ...]:
    """Returns what a rank of the script runs, without its arguments. Raises DataError."""
    if config.command is not None or config.mounts:
        raise DataError("this worker knows no commands and mounts yet")
    if config.module is not None:
        return "-m", config.module
    return (str(entrypoint(code, config.entrypoint or "")),)


def entrypoint(code: Path, name: str) -> Path:
    """Returns the path of the script `name` in the folder `code`. Raises DataError."""
    if not code.is_dir():
        raise DataError(f"{code} is not a folder")
    script = Path(os.path.realpath(code / name))
    if not script.is_relative_to(code):
        raise DataError(f"{code / name} lies outside the code folder")
    if not os.path.isfile(script):  # noqa: PTH113 Path.is_file raises for it, too
        raise DataError(f"there is no {code / name}")
    return script
