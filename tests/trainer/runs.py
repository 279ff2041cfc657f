"""Reads what a run of the trainer wrote, and writes pictures to train on."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchyard.contract.attempts.events import Metric, parse_line
from torchyard.contract.attempts.rundir import RunDir
from trainer.data.digits import read_digits

TIMED = "train/samples_per_second"


def lines(run: RunDir) -> list[Any]:
    return [parse_line(line) for line in run.events.read_text().splitlines()]


def points(run: RunDir, key: str) -> list[tuple[int, float]]:
    return [(line.step, line.values[key]) for line in lines(run) if isinstance(line, Metric) and key in line.values]


def state(run: RunDir, name: str) -> dict[str, Any]:
    return load(run.checkpoints / name)


def load(checkpoint: Path) -> dict[str, Any]:
    """Returns the state in a checkpoint's folder, without measured times."""
    found = torch.load(checkpoint / "state.pt", weights_only=True)
    found["metrics"].pop(TIMED, None)
    return found


def same(one: Any, other: Any) -> bool:
    """Returns whether two states are bit-equal."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def small_pictures(folder: Path, *, train: int = 150, val: int = 67) -> str:
    """Writes an `.npz` file of real digits. Returns its path."""
    pictures, labels = read_digits()
    images = (pictures.reshape(-1, 8, 8) * 15).astype(np.uint8)
    path, end = folder / "small.npz", train + val
    np.savez(path, x_train=images[:train], y_train=labels[:train], x_test=images[train:end], y_test=labels[train:end])
    return str(path)
