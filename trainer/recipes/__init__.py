"""The recipes: a model with its data, loss and metrics, as the job's configuration asks for.

Each module that `torchyard.contract.recipes.MODULES` names has a function `make_task`.
"""

from collections.abc import Mapping
import importlib
from typing import Any, Protocol

import torch

from torchyard.contract.recipes import Recipe
from trainer.data.scanning import ALONE, Scan
from trainer.task import Task


class MakeTask(Protocol):
    """The type of `make_task` in a recipe's module."""

    def __call__(
        self,
        config: Any,
        *,
        source: str,
        weights: str = "none",
        device: torch.device,
        local_size: int = 1,
        metadata: Mapping[str, Any] | None = None,
        scan: Scan = ALONE,
    ) -> Task: ...


def make_task(
    config: Recipe,
    *,
    source: str,
    weights: str = "none",
    device: torch.device,
    local_size: int = 1,
    metadata: Mapping[str, Any] | None = None,
    scan: Scan = ALONE,
) -> Task:
    """Returns the task of a recipe's configuration, on `device`. Raises DataError and ConfigError.

    `source`: `digits`, a path or a `file://` URL. `weights`: `none`, the name of published weights, a path or a
    `file://` URL. `local_size`: the number of ranks on this host. `metadata`: the state of a checkpoint. The task then
    takes its `Task.metadata` from there instead of measuring it; the caller loads the weights. `scan`: how the ranks
    look through a source of many files. All of them call this together.
    """
    # Imported here, so that a recipe does not import the libraries of the others.
    module = type(config).__module__.rpartition(".")[2]
    make: MakeTask = importlib.import_module(f"{__name__}.{module}").make_task
    return make(
        config, source=source, weights=weights, device=device, local_size=local_size, metadata=metadata, scan=scan
    )
