"""The files and folders of a worker's host that a job names by `file://`, below what the operator allowed."""

from collections.abc import Sequence
import os
from pathlib import Path
from urllib.parse import unquote

from torchyard.contract.errors import DataError
from torchyard.contract.rundir import Env
from torchyard.contract.spec import RecipeSpec

_FILE = "file://"


def resolve(url: str, allowed: Sequence[Path]) -> Path:
    """The existing file or folder at a `file:///…` URL, links followed. Raises DataError naming the path."""
    try:
        path = Path(unquote(url.removeprefix(_FILE), errors="strict"))
    except UnicodeDecodeError:
        raise DataError(f"{url} is no path in UTF-8") from None
    if "\0" in str(path):
        raise DataError(f"{url} is no path")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in allowed):
        raise DataError(f"{path} is not below a folder that this worker allows (--allow-path)")
    if not os.path.exists(real):  # noqa: PTH110 Path.exists raises for a name that is too long
        raise DataError(f"there is no {path}")
    if not os.access(real, os.R_OK):
        raise DataError(f"{path} cannot be read by the worker")
    return real


def data_of(spec: RecipeSpec, allowed: Sequence[Path]) -> dict[str, str]:
    """The variables that name a recipe's data and weights. Raises DataError."""
    data, weights = spec.config.data.source, spec.config.model.weights
    found = {Env.DATA.value: str(resolve(data, allowed)) if data.startswith(_FILE) else data}
    if weights.startswith(_FILE):
        found[Env.WEIGHTS.value] = str(resolve(weights, allowed))
    return found


def entrypoint(code: Path, name: str) -> Path:
    """The script `name` in the folder `code`. Raises DataError."""
    if not code.is_dir():
        raise DataError(f"{code} is no folder")
    script = Path(os.path.realpath(code / name))
    if not script.is_relative_to(code):
        raise DataError(f"{code / name} lies outside the code folder")
    if not os.path.isfile(script):  # noqa: PTH113 for the same reason
        raise DataError(f"there is no {code / name}")
    return script
