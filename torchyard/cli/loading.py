"""Loads the models of checkpoints, wherever they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.cli.arguments import connect
from torchyard.contract.errors import ConfigError

if TYPE_CHECKING:
    from torchyard.models.model import Model

_SUFFIXES = (".pt", ".safetensors")


def loaded(named: str, *, device: str, command: str) -> Model[Any, Any]:
    """Returns the model of a file, or of the checkpoint that `JOB`, `JOB/REF` or `model:NAME` names.

    Raises ConfigError, which names `command`, without the packages that it needs.
    """
    try:
        from torchyard.models.loading import load
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("torchyard"):
            raise
        raise ConfigError(f"{command} needs {error.name}: pip install 'torchyard[models]'") from error
    return load(_file(named), device=device)


def _file(named: str) -> Path:
    if named.endswith(_SUFFIXES) or Path(named).is_file():
        return Path(named)
    from torchyard.cli.cached import checkpoint_of

    with connect() as client:
        return checkpoint_of(client, named)
