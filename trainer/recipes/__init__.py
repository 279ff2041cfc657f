"""The recipes: a model with its data, loss and metrics, as the job's configuration asks for."""

from collections.abc import Mapping
from typing import Any

import torch

from torchyard.contract.recipes import AnyRecipe, ImageClassification, Segmentation, TextClassification
from trainer.task import Task


def make_task(
    config: AnyRecipe,
    *,
    source: str,
    weights: str,
    device: torch.device,
    local_size: int = 1,
    facts: Mapping[str, Any] | None = None,
) -> Task:
    """The task of a recipe's configuration, on `device`.

    `source`: `digits`, a path or a `file://` URL. `weights`: `none`, the name of published ones, a path or a `file://`
    URL. `local_size`: ranks of this host. `facts`: a checkpoint's state; what it tells is not measured again, and its
    weights are loaded by the caller. Raises DataError and ConfigError.
    """
    # Imported here: no recipe waits for the libraries of another.
    match config:
        case ImageClassification():
            from trainer.recipes.classification import make_classifier

            return make_classifier(
                config, source=source, weights=weights, device=device, local_size=local_size, facts=facts
            )
        case Segmentation():
            from trainer.recipes.segmentation import make_segmentation

            return make_segmentation(
                config, source=source, weights=weights, device=device, local_size=local_size, facts=facts
            )
        case TextClassification():
            from trainer.recipes.text import make_text_classifier

            return make_text_classifier(
                config, source=source, weights=weights, device=device, local_size=local_size, facts=facts
            )
