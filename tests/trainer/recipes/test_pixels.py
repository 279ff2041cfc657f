"""The loss and the metrics of pixels, against NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
import pytest
import torch
from torch import Tensor

from torchyard.models.segmenter import logit
from trainer.recipes.pixels import PixelLoss, PixelTally

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)
LOGITS: NDArray[Any] = RANDOM.normal(size=(5, 1, 8, 6)) * 3
MASKS: NDArray[Any] = (RANDOM.random(size=(5, 1, 8, 6)) < 0.2).astype(np.uint8)


def tensors() -> tuple[Tensor, Tensor]:
    return torch.from_numpy(LOGITS), torch.from_numpy(MASKS)


def chances() -> NDArray[Any]:
    return 1 / (1 + np.exp(-LOGITS))


def tally(*, threshold: float = 0.5) -> PixelTally:
    return PixelTally(PixelLoss(pos_weight=3.0, dice=0.5, device=CPU), threshold=threshold, device=CPU)


def test_the_loss_is_weighted_cross_entropy_and_the_dice_of_each_picture() -> None:
    probability = chances()
    entropy = -(3.0 * MASKS * np.log(probability) + (1 - MASKS) * np.log(1 - probability)).mean(axis=(1, 2, 3))
    common = (probability * MASKS).sum(axis=(1, 2, 3))
    dice = 1 - (2 * common + 1) / (probability.sum(axis=(1, 2, 3)) + MASKS.sum(axis=(1, 2, 3)) + 1)
    for weight in (0.0, 0.5):
        losses = PixelLoss(pos_weight=3.0, dice=weight, device=CPU)(*tensors())
        assert losses.numpy() == pytest.approx(entropy + weight * dice)


def test_an_empty_prediction_of_an_empty_mask_has_no_loss() -> None:
    loss = PixelLoss(pos_weight=20.0, dice=1.0, device=CPU)
    nothing = torch.zeros(1, 1, 8, 8)
    assert loss(nothing - 50, nothing).item() == pytest.approx(0, abs=1e-6)
    assert loss(nothing + 50, nothing).item() > 50


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_of_half_precision_is_computed_in_single_precision(dtype: torch.dtype) -> None:
    loss = PixelLoss(pos_weight=3.0, dice=0.5, device=CPU)
    logits, masks = tensors()
    losses = loss(logits.to(dtype), masks)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, loss(logits.to(dtype).float(), masks))


@pytest.mark.parametrize("threshold", [0.5, 0.1, 0.9])
def test_the_metrics_are_those_of_all_pixels_together(threshold: float) -> None:
    logits, masks = tensors()
    uneven = tally(threshold=threshold)
    for part in (slice(0, 1), slice(1, 5)):
        uneven.add(logits[part], masks[part])
    predicted, truth = chances() > threshold, MASKS > 0
    right, either = (predicted & truth).sum(), (predicted | truth).sum()
    assert uneven.metrics() == pytest.approx(
        {
            "val/loss": PixelLoss(pos_weight=3.0, dice=0.5, device=CPU)(logits, masks).mean().item(),
            "val/iou": right / either,
            "val/dice": 2 * right / (predicted.sum() + truth.sum()),
            "val/precision": right / predicted.sum(),
            "val/recall": right / truth.sum(),
        }
    )
    assert uneven.samples == 5


@pytest.mark.parametrize(
    ("predicted", "true", "ratios"),
    [
        (False, False, (1, 1, 1, 1)),
        (True, False, (0, 0, 0, 0)),
        (False, True, (0, 0, 0, 0)),
        (True, True, (1, 1, 1, 1)),
    ],
)
def test_ratios_with_denominator_zero(predicted: bool, true: bool, ratios: tuple[float, ...]) -> None:
    counted = tally()
    shape = (2, 1, 4, 4)
    counted.add(torch.full(shape, 5.0 if predicted else -5.0), torch.full(shape, int(true)).byte())
    _, *measured = counted.metrics().values()
    assert tuple(measured) == ratios


def test_a_probability_at_the_threshold_is_negative() -> None:
    counted = tally(threshold=0.25)
    cut = torch.tensor(logit(0.25), dtype=torch.float64)
    above = torch.nextafter(cut, torch.tensor(1.0, dtype=torch.float64))
    counted.add(torch.stack([cut, above]).reshape(1, 1, 1, 2), torch.ones(1, 1, 1, 2).byte())
    assert counted.metrics()["val/recall"] == 0.5
