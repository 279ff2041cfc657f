"""Loads the models of checkpoints, wherever they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli.arguments import connect
from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.contract.errors import ConfigError

if TYPE_CHECKING:
    from torchyard.models.generator import Generator
    from torchyard.models.model import Model

Base = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of an adapter's base model. Default: the job's, if this machine has it.",
        rich_help_panel="Language models",
        show_default=False,
    ),
]
_SUFFIXES = (".pt", ".safetensors", ".tar")


def loaded(named: str, *, device: str, base: Path | None, command: str) -> Model[Any, Any] | Generator:
    """Returns the model of a file, or of the checkpoint that `JOB`, `JOB/REF`, `SWEEP/best` or `model:NAME` names.

    Raises ConfigError, which names `command`, without the packages that it needs.
    """
    try:
        from torchyard.models.loading import load
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("torchyard"):
            raise
        raise ConfigError(f"{command} needs {error.name}: pip install 'torchyard[models]'") from error
    return load(_file(named), device=device, base=base)


def _file(named: str) -> Path:
    if named.endswith(_SUFFIXES) or Path(named).is_file() or (Path(named) / INDEX_FILE).is_file():
        return Path(named)
    from torchyard.cli.cached import checkpoint_of

    with connect() as client:
        return checkpoint_of(client, named)
