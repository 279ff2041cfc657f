"""The folders that `--allow-path` names."""

from collections.abc import Iterable
from pathlib import Path

import typer

from torchyard.host.datadir import parse_allowed_paths


def allowed_folders(folders: Iterable[str]) -> dict[Path, bool]:
    """Returns the existing folders with links resolved, and whether jobs may write each. Raises BadParameter."""
    found: dict[Path, bool] = {}
    for text in folders:
        for path, writable in parse_allowed_paths(text).items():
            if not path.is_dir():
                raise typer.BadParameter(f"{path} is not a folder", param_hint="--allow-path")
            found[path.resolve()] = writable
    return found
