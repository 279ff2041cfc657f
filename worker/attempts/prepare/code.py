"""Prepares what a job's spec names of files: bundles, mounts, and `file://` URLs below folders that are allowed."""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
from urllib.parse import unquote

from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.bundles.mounting import is_path
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.errors import DataError
from torchyard.contract.spec.spec import RecipeSpec, ScriptSpec, Spec
from worker.bundles.cache import BundleCache, Check
from worker.engines.base import COMMAND_OPTION

CODE = "config.code"
"""The field whose bundle a program gets a copy of."""
_FILE = "file://"
_MOUNT = "config.mounts."


def prepare(
    spec: Spec, *, run: RunDir, bundles: BundleCache, owner: str, allowed: Sequence[Path], check: Check = lambda: None
) -> dict[str, Path]:
    """Writes the links into a new run directory, and returns the unpacked bundles by field.

    `check`: as for `BundleCache.fetch`. Raises DataError if a bundle or a folder is missing or not allowed, and
    OSError.
    """
    trees = {field: bundles.fetch(sha256, owner=owner, check=check) for field, sha256 in bundles_of(spec).items()}
    if isinstance(spec, ScriptSpec) and spec.config.mounts:
        run.mounts.mkdir(mode=0o700)
        for path, target in _targets(spec, allowed, trees).items():
            if not is_path(path):
                (run.mounts / path).symlink_to(target)
    return trees


def mounted(spec: ScriptSpec, allowed: Sequence[Path], trees: Mapping[str, Path]) -> dict[str, str]:
    """Returns the folders that lie in the working folder, by their paths there. Raises DataError."""
    return {path: str(target) for path, target in _targets(spec, allowed, trees).items() if is_path(path)}


def _targets(spec: ScriptSpec, allowed: Sequence[Path], trees: Mapping[str, Path]) -> dict[str, Path]:
    targets: dict[str, Path] = {}
    for path, url in spec.config.mounts.items():
        folder = targets[path] = trees.get(f"{_MOUNT}{path}") or resolve(url, allowed)
        if not folder.is_dir():
            raise DataError(f"the mount {path} is not a folder: {folder}")
    return targets


def resolve(url: str, allowed: Sequence[Path]) -> Path:
    """Returns the existing file or folder at a `file:///…` URL, with links resolved. Raises DataError."""
    try:
        path = Path(unquote(url.removeprefix(_FILE), errors="strict"))
    except UnicodeDecodeError:
        raise DataError(f"{url} is not a path in UTF-8") from None
    if "\0" in str(path):
        raise DataError(f"{url} is not a path")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in allowed):
        raise DataError(f"{path} is not in a folder that this worker allows (--allow-path)")
    if not os.path.exists(real):  # noqa: PTH110 Path.exists raises for a name that is too long
        raise DataError(f"there is no {path}")
    if not os.access(real, os.R_OK):
        raise DataError(f"{path} cannot be read by the worker")
    return real


def data_of(spec: RecipeSpec, allowed: Sequence[Path], *, unpacked: Mapping[str, Path]) -> dict[str, str]:
    """Returns the environment variables that name a recipe's data and weights. Raises DataError.

    `unpacked`: the bundles that the recipe reads, by field.
    """
    data, weights = spec.config.data.source, spec.config.model.weights
    bundle, base = unpacked.get("config.data.source"), unpacked.get("config.model.weights")
    if bundle is not None:
        data = str(_file_alone(bundle) or bundle)
    variables = {Env.DATA.value: str(resolve(data, allowed)) if data.startswith(_FILE) else data}
    if base is not None or weights.startswith(_FILE):
        variables[Env.WEIGHTS.value] = str(base or resolve(weights, allowed))
    return variables


def program_of(spec: ScriptSpec, *, source: Path, folder: Path) -> tuple[str, ...]:
    """Returns what the script runs in `folder`, without its arguments. Raises DataError.

    `source`: the code as it came, which no job can have changed; `folder` itself if it runs where it is.
    """
    if not source.is_dir():
        raise DataError(f"{source} is not a folder")
    config = spec.config
    if config.command is not None:
        return COMMAND_OPTION, config.command
    if config.module is not None:
        return "-m", config.module
    script = entrypoint(source, config.entrypoint or "", shown=folder)
    return (str(folder / script.relative_to(source)),)


def entrypoint(code: Path, name: str, *, shown: Path) -> Path:
    """Returns the path of the script `name` in the folder `code`, which messages call `shown`. Raises DataError."""
    script = Path(os.path.realpath(code / name))
    if not script.is_relative_to(code):
        raise DataError(f"{shown / name} is outside the code folder")
    if not os.path.isfile(script):  # noqa: PTH113 Path.is_file raises for it, too
        raise DataError(f"there is no {shown / name}")
    return script


def _file_alone(folder: Path) -> Path | None:
    """Returns the file of a bundle that has no other and no folder: data such as one `.npz` or `.csv`."""
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_file() else None
