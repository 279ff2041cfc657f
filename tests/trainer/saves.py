"""Trainings that save real checkpoints, each on ranks that the caller has started."""

from collections.abc import Mapping, Sequence
import ctypes
from datetime import timedelta
import gc
import os
from pathlib import Path
import re
from typing import Any

import torch
from torch import Tensor, nn

from tests.trainer.ranks import environment, recipe
from tests.trainer.regression import Regression
from tests.trainer.runs import TIMED
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.train import Training
from trainer.world import joined

MINUTES = timedelta(minutes=10)


class Scale(nn.Module):
    """Multiplies by a buffer, which each rank has whole."""

    factor: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("factor", torch.linspace(0.5, 1.5, width))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.factor


class Wide(Regression):
    """A regression with square layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        blocks = [nn.Sequential(nn.Linear(width, width, bias=False), nn.Tanh()) for _ in range(layers)]
        self.model = nn.Sequential(
            nn.Linear(3, width), nn.Sequential(*blocks), Scale(width), nn.Linear(width, 1)
        ).double()


def training(
    run: Run,
    world: Any,
    *,
    width: int,
    layers: int,
    steps: int,
    strategy: str = "fsdp",
    state: Any = None,
    **sections: Any,
) -> Training:
    return Training(
        Wide(width, layers),
        trainer="test",
        config=recipe(
            training={"epochs": 2, "max_steps": steps, "per_device_batch_size": 2, "precision": "fp32"},
            distributed={"strategy": strategy},
            **sections,
        ),
        policy=CheckpointPolicy(every_steps=2),
        run=run,
        world=world,
        state=state,
    )


def train(*attempts: Mapping[str, str], **keywords: Any) -> None:
    """Trains once in each environment, from its checkpoint if it has one. Saves at every second step."""
    with joined(MINUTES) as world:
        for attempt in attempts:
            run = Run({**os.environ, **attempt})
            training(run, world, state=run.resume(), **keywords).train()
            run.close()


def environ(run: RunDir, *, above: int | None = None, resume_from: Path | None = None) -> dict[str, str]:
    """Returns the environment of an attempt in which ranks write parts of states above so many bytes."""
    return {**environment(run, data="", resume_from=resume_from), Env.SHARD_ABOVE: "" if above is None else str(above)}


def read(checkpoint: Path) -> dict[str, Any]:
    """Returns the state in a checkpoint's folder, whole or in parts, without measured times."""
    found = Run({Env.RESUME_FROM: str(checkpoint)}).resume()
    assert found is not None
    found["metrics"].pop(TIMED, None)
    return found


def kibibytes(name: str) -> int:
    """Returns a line of this process's memory, in KiB."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def growth(first: Mapping[str, str], attempt: Mapping[str, str], **keywords: Any) -> int:
    """Trains as `train` does. Returns the bytes by which this rank grows in its save, until that is written.

    `first` is that of a small training, which loads the code of a save.
    """
    grown: list[int] = []

    def save(self: Training, original: Any = Training.save, **named: Any) -> None:
        gc.collect()  # what the training has left would be taken first
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = kibibytes("VmRSS")
        original(self, **named)
        self.run.flush()
        grown.append((kibibytes("VmHWM") - before) * 1024)

    Training.save = save
    with joined(MINUTES) as world:
        small: dict[str, Any] = {"width": 8, "layers": 1, "steps": 1}
        for environ, sizes in ((first, small), (attempt, keywords)):
            run = Run({**os.environ, **environ})
            training(run, world, **sizes).train()
            run.close()
    return grown[-1]


def size_of(tree: Any) -> int:
    """Returns the bytes of the tensors in a state."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.itemsize
    items: Sequence[Any] = (
        [*tree.values()] if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else []
    )
    return sum(map(size_of, items))
