"""Refuses batches of one before the start, where a batch norm of the model has nothing to average over."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage] the base of all of them

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import ImageClassification, Segmentation
from trainer.data.scanning import Scan


def expect_more_than_one(
    model: nn.Module,
    shape: tuple[int, int, int],
    config: ImageClassification | Segmentation,
    *,
    samples: int,
    scan: Scan,
) -> None:
    """Raises ConfigError if each rank trains on one sample at a time, and a batch norm has one value of it.

    `shape`: channels, height and width of an input; `samples`: those of the training split.
    """
    ranks = 1 if scan.world is None else scan.world.size
    together = ranks if config.distributed.sync_batchnorm else 1
    wanted = config.training.per_device_batch_size
    if min(wanted * together, samples) > 1:
        return
    layer = single_valued(model, shape)
    if layer is None:
        return
    if samples == 1:
        raise ConfigError(
            f"the training split has one sample, and {config.model.name} needs two in a batch: its batch norm {layer} "
            "has one value a channel of each. Add samples, or set a larger data.image_size"
        )
    raise ConfigError(
        f"training.per_device_batch_size is 1, and {config.model.name} needs two samples in a batch: its batch norm "
        f"{layer} has one value a channel of each. Set it to 2 or more, set a larger data.image_size, or on several "
        "devices distributed.sync_batchnorm"
    )


def single_valued(model: nn.Module, shape: tuple[int, int, int]) -> str | None:
    """Returns the name of a batch norm that has one value a channel of a sample. None: there is none."""
    names: list[str] = []

    def noting(name: str) -> Any:
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if inputs[0].numel() == inputs[0].shape[1]:
                names.append(name)

        return note

    hooks = [
        module.register_forward_pre_hook(noting(name))
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
    ]
    was_training = model.training
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))  # statistics stay as they are
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return names[0] if names else None
