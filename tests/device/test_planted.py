"""Three mistakes that a CPU forgives, planted in a run on the simulated device: each is caught."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.device import sim
from tests.device.runs import train
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import small_pictures, state
import torchyard
from torchyard.run import accelerator
from trainer.train import Training

CONFIG: dict[str, Any] = {"training": {"epochs": 1, "max_steps": 4, "per_device_batch_size": 8}}
CHECKPOINT = "step-00000004"


def no_events(devices: Iterable[torch.device]) -> list[torch.Event]:
    del devices
    return []


def save(library: Path, waits: bool) -> None:
    """Saves a checkpoint. Without `waits`, it is written before the copies of its tensors have arrived."""
    sim.load(library)
    if not waits:
        accelerator.record_events = no_events
    run = torchyard.init()
    run.save_checkpoint({"weights": torch.ones(100, device="sim")}, step=1)
    run.close()


def use_a_constant_of_the_host(training: Training) -> None:
    """The loss has weights of the classes, which are on the CPU."""
    loss, weights = training.task.loss, torch.ones(10)

    def weighted(outputs: Tensor, targets: Any) -> Tensor:
        return loss(outputs * weights, targets)

    vars(training.task)["loss"] = weighted


def fetch_a_number(training: Training) -> None:
    """Each loss is fetched from the device."""
    loss = training.task.loss

    def fetched(outputs: Tensor, targets: Any) -> Tensor:
        value = loss(outputs, targets)
        with sim.no_host_waits():
            value.item()
        return value

    vars(training.task)["loss"] = fetched


@pytest.mark.parametrize("waits", [pytest.param(True, marks=pytest.mark.thorough), False])  # test_training saves, too
def test_a_missing_wait_for_an_event_is_seen(tmp_path: Path, library: Path, waits: bool) -> None:
    run = job(tmp_path, {})
    results(on_ranks(1, save, library, waits, env=environment(run, data="digits")))
    saved = torch.load(run.checkpoints / "step-00000001" / "state.pt", weights_only=True)
    assert bool(saved["weights"].isfinite().all()) == waits


@pytest.mark.thorough  # as those of test_training do
def test_without_a_mistake_the_run_ends(tmp_path: Path, library: Path) -> None:
    run, _ = train(tmp_path, library, CONFIG)
    assert all(tensor.isfinite().all() for tensor in state(run, CHECKPOINT)["model"].values())


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        pytest.param(use_a_constant_of_the_host, "found at least two devices", marks=pytest.mark.thorough),
        (fetch_a_number, "the host waits for the device here: aten::_local_scalar_dense"),
    ],
)
def test_a_mistake_raises(tmp_path: Path, library: Path, mistake: Callable[[Training], None], said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        train(tmp_path / "run", library, CONFIG, data=small_pictures(tmp_path, val=20), change=mistake)
