"""What a run logs of its speed and its memory: samples, tokens and operations a second, epochs, each rank's peak."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.ranks import environment, job, on_ranks, recipe, results
from tests.trainer.regression import SAMPLES, Regression
from tests.trainer.runs import points, small_pictures
import torchyard
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.recipes import TextClassification
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer import __main__ as trainer
from trainer import pace
from trainer.card import Card
from trainer.pace import Own, Pace, of_ranks
from trainer.peaks import peak_flops
from trainer.recipes import make_task
from trainer.train import Training
from trainer.world import World, joined

CPU = torch.device("cpu")
CARD = Card(
    parameters=1,
    trainable_parameters=1,
    flops_per_sample=10**12,
    inference_seconds=None,
    training_samples=1,
    global_batch=1,
    per_device_batch_size=1,
    gradient_accumulation_steps=1,
    world_size=2,
    device="NVIDIA H200",
    precision="bf16",
    data_hash=None,
    split_hash="",
    versions={},
)


class Clock:
    """What the trainer reads instead of the real time."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


def measured(clock: Clock, card: Card) -> tuple[float, dict[str, float]]:
    """Returns what is measured of two ranks that train 600 samples in two seconds."""
    found = Pace(World(rank=0, size=2, local_size=2, device=CPU), card=card)
    clock.now += 2
    ranks = [Own(data_wait=0.5, tokens=30, memory=2**30), Own(data_wait=1.5, tokens=50, memory=3 * 2**30)]
    return found.measure(ranks, samples=600)


def test_the_share_of_the_peak_is_three_forward_passes_of_each_sample(clock: Clock) -> None:
    speed, metrics = measured(clock, CARD)
    assert speed == 300
    assert metrics == pytest.approx(
        {
            "time/data_wait": 0.5,
            "train/tokens_per_second": 40,
            "train/mfu": 3 * 300 * 10**12 / (2 * 989.4e12),
            "memory_gib/rank0": 1,
            "memory_gib/rank1": 3,
        }
    )


@pytest.mark.parametrize("change", [{"device": "CPU"}, {"device": "a new GPU"}, {"flops_per_sample": None}])
def test_no_share_is_told_of_a_peak_or_of_operations_that_are_not_known(clock: Clock, change: dict[str, Any]) -> None:
    assert "train/mfu" not in measured(clock, replace(CARD, **change))[1]


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "fp16", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 494.7e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", None),
        ("Tesla T4", "fp16", 65e12),
        ("Tesla T4", "bf16", None),
        ("CPU", "fp32", None),
    ],
)
def test_peaks_are_of_whole_gpus_in_precisions_that_they_have(device: str, precision: str, peak: float | None) -> None:
    assert peak_flops(device, precision=precision) == peak


def test_of_many_ranks_there_are_only_the_least_and_the_greatest_value() -> None:
    assert of_ranks("x", [3, 5]) == {"x/rank0": 3, "x/rank1": 5}
    assert len(of_ranks("x", range(8))) == 8
    assert of_ranks("x", range(9)) == {"x/min": 0, "x/max": 8}


CONFIG: dict[str, Any] = {
    "training": {"epochs": 3, "per_device_batch_size": 16, "max_steps": 12},
    "logging": {"every_steps": 2},
    "evaluation": {"remeasure_best": False},
}


def train(stop_after: int | None) -> None:
    """Trains what the run directory says, and stops after `stop_after` steps."""
    run, steps = torchyard.init(), 0

    def should_stop() -> bool:
        nonlocal steps
        steps += 1
        return steps == stop_after

    run.should_stop = should_stop
    trainer.main()


def launch(root: Path, data: str, *, stop_after: int | None = None, resume_from: Path | None = None) -> RunDir:
    run = job(root, CONFIG)
    results(on_ranks(1, train, stop_after, env=environment(run, data=data, resume_from=resume_from)))
    return run


def test_each_epoch_that_one_attempt_trained_whole_has_its_time(tmp_path: Path) -> None:
    data = small_pictures(tmp_path, train=80, val=20)  # 5 steps an epoch
    stopped = launch(tmp_path / "1", data, stop_after=3)
    assert points(stopped, "time/epoch") == []
    (saved,) = stopped.checkpoints.iterdir()
    resumed = launch(tmp_path / "2", data, resume_from=saved)
    assert [step for step, _ in points(resumed, "train/loss")] == [4, 5, 6, 8, 10, 12]
    ((step, seconds),) = points(resumed, "time/epoch")  # not of epoch 3, which max_steps cuts
    assert (step, seconds > 0) == (10, True)
    memory = points(resumed, "memory_gib/rank0")
    assert len(memory) == 6
    assert all(gib > 2**-10 for _, gib in memory)
    assert points(resumed, "train/mfu") == points(resumed, "train/tokens_per_second") == []


class Timed(Regression):
    """Each step takes a second of a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._clock.now += 1
        return super().loss(outputs, targets)


def resumed_speeds() -> list[float]:
    """Stops after three steps of three samples, resumes, and returns the speeds that are then logged."""
    clock = pace.__dict__["time"] = Clock()
    config = recipe(training={"per_device_batch_size": 3, "epochs": 1}, logging={"every_steps": 5})
    found: list[float] = []
    states: list[Mapping[str, Any]] = []
    with joined(timedelta(minutes=1)) as world:

        def save(state: Mapping[str, Any], **_: object) -> None:
            states.append(state)

        def log(values: Mapping[str, float], *, step: int) -> None:
            found.extend(value for key, value in values.items() if key == "train/samples_per_second")

        def training(state: Mapping[str, Any] | None, should_stop: Callable[[], bool]) -> Training:
            run = Run({})
            run.should_stop = should_stop
            task = Timed(clock)
            made = Training(
                task,
                trainer="image-classification",
                config=config,
                policy=CheckpointPolicy(),
                run=run,
                world=world,
                state=state,
            )
            run.save_checkpoint = save
            run.log = log
            return made

        first = training(None, lambda: first.position.step == 3)
        first.train()
        training(states[0], lambda: False).train()
    return found


def test_a_speed_counts_no_samples_of_an_earlier_attempt() -> None:
    assert results(on_ranks(1, resumed_speeds)) == [pytest.approx([3.0, 3.0])]
    assert SAMPLES == 30


def token_ratio(source: str) -> tuple[float, float]:
    """Returns tokens by samples as they are logged in an epoch on two ranks, and as they are."""
    config = TextClassification.model_validate(
        {"data": {"source": "file:///texts", "val_fraction": 0.25}, "training": {"epochs": 1}}
    )
    logged: dict[str, float] = {}
    with joined(timedelta(minutes=1)) as world:
        task = make_task(config, source=source, weights="none", device=world.device)
        run = Run({})

        def log(values: Mapping[str, float], *, step: int) -> None:
            logged.update(values)

        run.log = log
        Training(
            task, trainer="text-classification", config=config, policy=CheckpointPolicy(), run=run, world=world
        ).train()
        lengths: Tensor = vars(task)["data"].train.lengths
        return logged["train/tokens_per_second"] / logged["train/samples_per_second"], float(lengths.double().mean())


def test_tokens_are_those_of_the_texts_without_padding(tmp_path: Path) -> None:
    for name, word in (("good", "fine"), ("bad", "poor")):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{word} " * (1 + number % 7) for number in range(24)))
    for logged, true in results(on_ranks(2, token_ratio, str(tmp_path))):
        assert logged == pytest.approx(true, rel=1e-9)
