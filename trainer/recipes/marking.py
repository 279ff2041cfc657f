"""What a model of `segmentation` marks: the pixels of one class, or the class of each pixel."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import Segmentation
from torchyard.models.palette import palette
from torchyard.models.segmenter import logit
from torchyard.run.publishing import Content
from trainer.data.pairs import Pairs
from trainer.recipes.pixelclasses import ClassPixelLoss, ClassPixelTally
from trainer.recipes.pixels import PixelLoss, PixelTally
from trainer.recipes.weighting import class_weights
from trainer.score import ClassIou, Iou, Score


class PixelSums(Protocol):
    """The sums of a measurement, over all ranks after `trainer.recipes.measuring.measure`."""

    @property
    def sums(self) -> Tensor: ...

    def add(self, outputs: Any, targets: Any) -> None: ...

    @property
    def samples(self) -> int: ...

    def metrics(self) -> dict[str, float]: ...

    @property
    def matrix(self) -> Tensor | None: ...

    def files(self) -> Mapping[str, Content]: ...


@dataclass(frozen=True)
class Marking:
    """What a model marks, with its loss and its metrics. Masks are uint8 (samples, 1, height, width)."""

    metadata: dict[str, Any]
    """The part of a checkpoint's metadata that says what the model's outputs mean."""
    description: str
    loss: Callable[[Tensor, Tensor], Tensor]
    """Returns the loss of each picture, of outputs and true masks."""
    masks: Callable[[Tensor], Tensor]
    """Returns the masks that outputs are."""
    score: Score
    tally: Callable[[], PixelSums]


def outputs(config: Segmentation) -> int:
    """Returns the logits of each pixel: one, or one for each of several classes."""
    return 1 if config.data.classes is None else len(config.data.classes)


def make_marking(
    config: Segmentation,
    pairs: Pairs,
    *,
    source: str,
    workers: int,
    device: torch.device,
    metadata: Mapping[str, Any] | None,
) -> Marking:
    """Returns what the configuration asks for; weights are those of `metadata`, or of the training masks.

    Raises DataError and ConfigError.
    """
    if config.data.classes is None:
        weight = _pos_weight(config, pairs, source, workers) if metadata is None else float(metadata["pos_weight"])
        return _one_class(config, weight, device)
    weights = _class_weights(config, pairs, source, workers) if metadata is None else metadata["class_weights"]
    return _several_classes(config, config.data.classes, weights, device)


def _one_class(config: Segmentation, pos_weight: float, device: torch.device) -> Marking:
    threshold, cut = config.evaluation.threshold, logit(config.evaluation.threshold)
    loss = PixelLoss(pos_weight=pos_weight, dice=config.loss.dice, device=device)
    return Marking(
        metadata={
            "classes": ["background", "foreground"],
            "outputs": 1,
            "palette": None,
            "pos_weight": pos_weight,
            "mask_threshold": config.data.mask_threshold,
            "threshold": threshold,
        },
        description=f"a positive pixel weighs {pos_weight:.4g}",
        loss=loss,
        masks=lambda logits: (logits > cut).byte(),
        score=Iou(cut=cut, device=device),
        tally=partial(PixelTally, loss, threshold=threshold, device=device),
    )


def _several_classes(
    config: Segmentation, classes: list[str], weights: list[float] | None, device: torch.device
) -> Marking:
    colours = config.data.palette or palette(len(classes))
    loss = ClassPixelLoss(weights=weights, dice=config.loss.dice, device=device)
    return Marking(
        metadata={"classes": classes, "outputs": len(classes), "palette": colours, "class_weights": weights},
        description=f"{len(classes)} classes",
        loss=loss,
        masks=lambda logits: logits.argmax(1, keepdim=True).byte(),
        score=ClassIou(device),
        tally=partial(ClassPixelTally, loss, classes=classes, device=device),
    )


def _pos_weight(config: Segmentation, pairs: Pairs, source: str, workers: int) -> float:
    wanted = config.loss.pos_weight
    if wanted != "auto":
        return wanted
    negative, positive = pairs.count_classes(workers=workers)
    if negative and positive:
        return negative / positive
    which = "every pixel" if positive else "no pixel"
    raise DataError(
        f"{source}: {which} of the training masks at {config.data.image_size}×{config.data.image_size} is above "
        f"data.mask_threshold, {config.data.mask_threshold:g} of full scale (0 suits masks of 0 and 1): there is "
        "nothing to learn"
    )


def _class_weights(config: Segmentation, pairs: Pairs, source: str, workers: int) -> list[float] | None:
    wanted = config.loss.class_weights
    if wanted != "auto":
        return class_weights(wanted, [1] * outputs(config))
    counts = pairs.count_classes(workers=workers)
    if sum(count > 0 for count in counts) < 2:
        raise DataError(f"{source}: the training masks have fewer than two of data.classes: there is nothing to learn")
    return class_weights(wanted, counts)
