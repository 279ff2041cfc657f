"""Trains on the simulated device, as a rank of a job does."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from tests.device import sim
from tests.trainer.ranks import environment, job, on_ranks, results
import torchyard
from torchyard.contract.attempts.rundir import RunDir
from trainer.__main__ import make_training, read_config
from trainer.randomness import use_deterministic_algorithms
from trainer.train import Training
from trainer.world import joined


@dataclass(frozen=True)
class Outcome:
    """What one rank saw of a run."""

    waits: tuple[int, ...]
    """How often the host waited for the device in each step."""
    weights: dict[str, list[float]]
    """A few numbers of each tensor of the model at the end."""
    peaks: tuple[int, int]
    """The peak bytes on the first two devices."""
    device: int
    micro_batch: int
    waits_to_save: tuple[int, ...]
    """How often the host waited while the state of each checkpoint was collected."""


def train(
    root: Path,
    library: Path,
    config: dict[str, Any],
    *,
    data: str = "digits",
    trainer: str = "image-classification",
    resume_from: Path | None = None,
    change: Callable[[Training], None] | None = None,
    memory: int = 0,
    ranks: int = 2,
) -> tuple[RunDir, list[Outcome]]:
    """Runs a job on ranks with a device each. `change` gets the prepared run of each rank.

    `memory`: the bytes of each device; 0 is enough for anything.
    """
    run = job(root, config, trainer=trainer)
    env = environment(run, data=data, resume_from=resume_from)
    return run, results(on_ranks(ranks, _main, library, change, memory, ranks, env=env))


def _main(library: Path, change: Callable[[Training], None] | None, memory: int, ranks: int) -> Outcome:
    devices = max(ranks, 2)
    sim.load(library, devices=devices)
    for device in range(devices):
        sim.limit_memory(memory, device=device)
    run = torchyard.init()
    config = read_config(run)
    if config.training.deterministic:
        use_deterministic_algorithms()
    with joined(config.distributed.collective_timeout()) as world:
        training = make_training(run, config=config, world=world)
        if change:
            change(training)
        waits = _count_waits(training, "train_step")
        waits_to_save = _count_waits(training, "state_dict")
        training.train()
        state = training.task.model.state_dict()
        weights = {name: _whole(tensor).flatten()[:8].tolist() for name, tensor in state.items()}
    run.close()
    peaks = (torch.accelerator.max_memory_allocated(0), torch.accelerator.max_memory_allocated(1))
    return Outcome(tuple(waits), weights, peaks, world.device.index, training.sampler.batch_size, tuple(waits_to_save))


def _count_waits(owner: Any, method: str) -> list[int]:
    """Returns a list that gets the waits of each call of the method."""
    waits: list[int] = []
    original = getattr(owner, method)

    def watched(*arguments: Any, **named: Any) -> Any:
        before = sim.host_waits()
        result = original(*arguments, **named)
        waits.append(sim.host_waits() - before)
        return result

    vars(owner)[method] = watched
    return waits


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
