"""What a model gets right in training: counted from the loss's own outputs over all ranks, by one operation a step."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import Regression
from tests.trainer.runs import small_pictures
from tests.trainer.walls import walls
from torchyard.contract.recipes import REGISTRY, Recipe, Segmentation
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.recipes import make_task
from trainer.score import KEPT_BATCHES, Accuracy, Iou
from trainer.train import Training
from trainer.world import joined

CPU = torch.device("cpu")
TAKEN, SKIPPED = torch.zeros(()), torch.ones(())


class Operations(TorchDispatchMode):
    """Counts what the dispatcher runs."""

    count = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_accuracy_is_the_share_of_largest_logits_in_the_right_place() -> None:
    score, right, samples = Accuracy(CPU), 0, 0
    for number in range(KEPT_BATCHES + 7):
        logits, classes = torch.randn(number % 5 + 1, 4), torch.randint(4, (number % 5 + 1,))
        score.add(logits, classes)
        score.end_step(skipped=TAKEN)
        right += sum(int(row.argmax()) == int(own) for row, own in zip(logits, classes, strict=True))
        samples += len(logits)
    assert score.take().tolist() == [right, samples]
    assert score.take().tolist() == [0, 0]


def test_a_blend_of_samples_counts_as_the_larger_one() -> None:
    score = Accuracy(CPU)
    score.add(torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([[0.6, 0.4], [0.6, 0.4]]))
    score.end_step(skipped=TAKEN)
    assert score.take().tolist() == [1, 2]


def test_iou_is_of_the_pixels_of_all_pictures_together() -> None:
    score = Iou(cut=0.5, device=CPU)
    logits = torch.tensor([[1.0, 0.4, 2.0], [9.0, 0.6, -1.0]]).reshape(2, 1, 1, 3)
    masks = torch.tensor([[1, 1, 0], [1, 0, 0]], dtype=torch.uint8).reshape(2, 1, 1, 3)
    for _ in range(KEPT_BATCHES):
        for picture, mask in zip(logits.split(1), masks.split(1), strict=True):
            score.add(picture, mask)
        score.end_step(skipped=TAKEN)
    score.add(logits, masks)
    score.end_step(skipped=TAKEN)
    assert score.take().tolist() == [2 * (KEPT_BATCHES + 1), 5 * (KEPT_BATCHES + 1)]
    assert score.take().tolist() == [0, 0]


def test_the_batches_of_a_skipped_step_do_not_count() -> None:
    right = torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1])
    for score, batch, of_nothing in (
        (Accuracy(CPU), right, [0, 0]),
        (Iou(cut=0.5, device=CPU), (torch.ones(1, 1, 2, 1), torch.ones(1, 1, 2, 1, dtype=torch.uint8)), [0, 0]),
    ):
        for skipped in (SKIPPED, TAKEN, SKIPPED):
            score.add(*batch)
            score.add(*batch)
            score.end_step(skipped=skipped)
        assert score.take().tolist() == [4, 4]
        score.add(*batch)
        score.end_step(skipped=SKIPPED)
        assert score.take().tolist() == of_nothing


def test_a_step_costs_one_operation() -> None:
    score, logits, classes = Accuracy(CPU), torch.randn(8, 4), torch.randint(4, (8,))
    with Operations() as counted:
        for _ in range(KEPT_BATCHES - 1):
            score.add(logits, classes)
            score.end_step(skipped=TAKEN)
    assert counted.count == KEPT_BATCHES - 1


def scored(config: Recipe, source: str) -> tuple[list[float], list[tuple[float, float]]]:
    """Returns the logged score, and of each log line what this rank should have counted."""
    own, logged, windows = torch.zeros(2), list[float](), list[tuple[float, float]]()
    with joined(timedelta(minutes=1)) as world:
        task = make_task(config, source=source, weights="none", device=world.device)
        assert task.score is not None
        loss, name = task.loss, task.score.name
        trainer = next(key for key, entry in REGISTRY.items() if entry.config is type(config))
        policy = CheckpointPolicy(every_epochs=5)
        training = Training(task, trainer=trainer, config=config, policy=policy, run=Run({}), world=world)

        def watched(outputs: Tensor, targets: Tensor) -> Tensor:
            own.add_(torch.tensor(_iou(outputs, targets) if name == "train/iou" else _accuracy(outputs, targets)))
            return loss(outputs, targets)

        def log(values: Mapping[str, float], *, step: int) -> None:
            if name in values:
                logged.append(values[name])
                windows.append((float(own[0]), float(own[1])))
                own.zero_()

        vars(task)["loss"] = watched
        training.run.log = log
        training.train()
    return logged, windows


def _accuracy(outputs: Tensor, targets: Tensor) -> list[float]:
    return [float((outputs.argmax(1) == targets).sum()), float(len(targets))]


def _iou(outputs: Tensor, targets: Tensor) -> list[float]:
    found, truth = outputs > 0, targets.bool()
    return [float((found * truth).sum()), float((found + truth).sum())]


STEPS = {"per_device_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 5, "epochs": 3}


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.thorough)])
def test_the_logged_accuracy_is_of_all_samples_of_all_ranks(tmp_path: Path, strategy: str) -> None:
    config = recipe(training=STEPS, logging={"every_steps": 2}, distributed={"strategy": strategy})
    check(results(on_ranks(2, scored, config, small_pictures(tmp_path, val=20))), lines=3)


@pytest.mark.thorough  # the ranks add up what a score counts, whichever it is
def test_the_logged_iou_is_of_all_pixels_of_all_ranks(tmp_path: Path) -> None:
    config = Segmentation.model_validate(
        {
            "data": {"source": "file:///walls", "image_size": 32, "workers": 0, "val_fraction": 0.25},
            "training": {**STEPS, "gradient_accumulation_steps": 1, "epochs": 5},
            "logging": {"every_steps": 2},
        }
    )
    check(results(on_ranks(2, scored, config, str(walls(tmp_path, count=16)))), lines=4)


class Seen:
    """Counts the batches that it gets."""

    name, batches = "train/seen", 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        self.batches += 1

    def end_step(self, *, skipped: Tensor) -> None:
        assert skipped == 0

    def take(self) -> Tensor:
        return torch.zeros(2, dtype=torch.float64)


def one_sample() -> int:
    """Trains on a single sample. Returns the batches of this rank that were scored."""
    config, task, seen = recipe(training={"epochs": 1}), Regression(), Seen()
    vars(task).update(samples=1, score=seen)
    with joined(timedelta(minutes=1)) as world:
        Training(
            task, trainer="image-classification", config=config, policy=CheckpointPolicy(), run=Run({}), world=world
        ).train()
    return seen.batches


def test_a_rank_without_a_sample_left_scores_none() -> None:
    assert results(on_ranks(2, one_sample)) == [1, 0]


def check(found: list[tuple[list[float], list[tuple[float, float]]]], *, lines: int) -> None:
    (logged, first), (again, second) = found
    assert len(logged) >= lines - 1
    shares = [(a + c) / (b + d) if b + d else 1.0 for (a, b), (c, d) in zip(first, second, strict=True)]
    assert logged == again == pytest.approx(shares, rel=1e-12)
