"""Sums of a classifier's results."""

import json

import pytest
import torch
from torch.nn import functional

from trainer.recipes.tally import MAX_CONFUSION, TOP, Tally

CPU = torch.device("cpu")


def test_the_metrics_are_means_over_all_samples_for_any_batches() -> None:
    torch.manual_seed(0)
    outputs, targets = torch.randn(23, 7), torch.randint(7, (23,))
    tally = Tally(classes=7, device=CPU)
    for part in torch.arange(23).split([1, 9, 13]):
        tally.add(outputs[part], targets[part])
    best = outputs.topk(TOP).indices
    expected = {
        "val/loss": functional.cross_entropy(outputs.double(), targets).item(),
        "val/accuracy": (best[:, 0] == targets).double().mean().item(),
        "val/accuracy_top5": (best == targets[:, None]).any(1).double().mean().item(),
    }
    assert tally.metrics() == pytest.approx(expected, rel=1e-12)
    assert tally.samples == 23


def test_the_confusion_matrix_has_a_row_for_each_true_class() -> None:
    tally = Tally(classes=3, device=CPU)
    outputs = torch.eye(3)[[0, 0, 1, 2, 0]]
    tally.add(outputs[:2], torch.tensor([0, 2]))
    tally.add(outputs[2:], torch.tensor([1, 1, 2]))
    found = json.loads(tally.files(["ant", "bee", "cat"])["confusion.json"])
    assert found == {"classes": ["ant", "bee", "cat"], "matrix": [[1, 0, 0], [0, 1, 1], [2, 0, 0]]}
    assert "val/accuracy_top5" not in tally.metrics()


def test_above_a_thousand_classes_there_is_no_matrix() -> None:
    tally = Tally(classes=MAX_CONFUSION + 1, device=CPU)
    tally.add(torch.zeros(1, MAX_CONFUSION + 1), torch.tensor([3]))
    assert tally.files([]) == {}
    assert len(tally.sums) == 4
    assert tally.metrics()["val/accuracy"] == 0
