"""Gradient accumulation over few and over many micro-batches: the loss curves are equal, the speeds differ.

The global batch is the same. A small RoBERTa learns made-up texts. It has no batch norm, whose statistics depend on the
micro-batch. It has no dropout, which draws other numbers for each micro-batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
import random
from statistics import median
import sys
from typing import Any

from bench.service import scratch
from bench.table import Row
from bench.training import train
from torchyard.contract.attempts.events import Metric, parse_line
from torchyard.contract.attempts.rundir import RunDir

FEW, MANY = 2, 80
"""Micro-batches a step, as in the guides."""
MOST_PPM = 50.0
"""So far may two losses of one step differ: sums in another order round differently, and training amplifies that."""
_SMALLEST_BATCH = 2
_STEPS = 30
_WORDS = 60


@dataclass(frozen=True)
class Curve:
    """The losses of one training, by step, and its speed after the first epoch, which warms up."""

    losses: Sequence[float]
    speed: float


def measure(*, processes: int, repeats: int) -> Iterator[Row]:
    """Trains both ways with each seed, in turns, and yields the rows of the table."""
    curves: dict[int, list[Curve]] = {FEW: [], MANY: []}
    for seed in range(42, 42 + repeats):
        for window, found in curves.items():
            found.append(_curve(window, processes=processes, seed=seed))
    yield from rows(curves[FEW], curves[MANY], processes=processes)


def rows(few: Sequence[Curve], many: Sequence[Curve], *, processes: int) -> Iterator[Row]:
    """Yields the speed of many micro-batches beside that of few, and how far their loss curves are apart."""
    peer = f"windows of {FEW}"
    speeds = [[curve.speed for curve in curves] for curves in (many, few)]
    yield Row(f"DDP, {processes} × {_SMALLEST_BATCH}, windows of {MANY}", "samples/s", speeds[0], peer, speeds[1])
    apart = [distance(ours, theirs) for ours, theirs in zip(many, few, strict=True)]
    yield Row(f"– its losses from those of {peer}, the farthest step", "ppm", apart, at_most=MOST_PPM)


def distance(one: Curve, other: Curve) -> float:
    """Returns the largest difference between the losses of one step, in millionths of the first loss."""
    pairs = zip(one.losses, other.losses, strict=True)
    return max(abs(ours - theirs) for ours, theirs in pairs) / other.losses[0] * 1e6


def job(source: str, *, window: int, processes: int, seed: int) -> dict[str, Any]:
    """Returns the spec of one training with windows of so many micro-batches."""
    batch = _SMALLEST_BATCH * MANY // window
    return {
        "trainer": "text-classification",
        "config": {
            "data": {"source": Path(source).as_uri(), "max_length": 16, "vocabulary": 1000},
            "model": {"dropout": 0.0},
            "training": {
                "max_steps": _STEPS,
                "epochs": _STEPS,
                "seed": seed,
                "precision": "fp32",
                "per_device_batch_size": batch,
                "gradient_accumulation_steps": window,
            },
            "optimizer": {"lr": 0.002},
            "lr_scheduler": {"warmup_steps": 3},
            "evaluation": {"every_epochs": _STEPS},
            "logging": {"every_steps": 1},
        },
        "checkpoint": {"every_epochs": None},
    }


def write_texts(path: Path, count: int) -> None:
    """Writes so many made-up texts of two classes, which share half of their words."""
    chance = random.Random(0)
    with path.open("w") as file:
        for number in range(count):
            label = number % 2
            words = [chance.randrange(_WORDS) + label * _WORDS // 2 for _ in range(12)]
            file.write(json.dumps({"text": " ".join(f"w{word}" for word in words), "label": str(label)}) + "\n")


def curve_of(run: RunDir) -> Curve:
    """Reads the curve of a run that logged every step."""
    logged = [line for raw in run.events.read_bytes().splitlines() if isinstance(line := parse_line(raw), Metric)]
    speeds = [line.values["train/samples_per_second"] for line in logged if "train/samples_per_second" in line.values]
    losses = {line.step: line.values["train/loss"] for line in logged if "train/loss" in line.values}
    return Curve([loss for _, loss in sorted(losses.items())], median(speeds[1:]))


def _curve(window: int, *, processes: int, seed: int) -> Curve:
    with scratch() as folder:
        texts = folder / "texts.jsonl"
        write_texts(texts, 6 * _SMALLEST_BATCH * MANY * processes)
        name, spec = f"windows of {window}", job(str(texts), window=window, processes=processes, seed=seed)
        found = curve_of(train(spec, name=name, folder=folder, source=str(texts), processes=processes))
    print(f"{name}, seed {seed}: {found.speed:.1f} samples/s", file=sys.stderr, flush=True)
    return found
