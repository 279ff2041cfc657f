"""How long each rank waits for the others in a step: the slowest one is named."""

from collections.abc import Mapping
from datetime import timedelta
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from api.advice.judgement import judge
from tests.api.advice.facts import facts
from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import Regression
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.meeting import KEPT_PAIRS, EventTimer
from trainer.train import Training
from trainer.world import World, joined


class Late(Regression):
    """Its rank `slow` computes a loss only when the other one has its gradients, and takes its time."""

    def __init__(self, world: World, *, slow: int | None, folder: Path) -> None:
        super().__init__()
        self._late = world.rank == slow
        self._folder, self._step = folder, 0
        if world.rank != slow:
            next(self.model.parameters()).register_post_accumulate_grad_hook(self._mark)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._step += 1
        if self._late:
            while not (self._folder / str(self._step)).exists():
                pass
            for _ in range(30):
                torch.mm(torch.randn(200, 200), torch.randn(200, 200))
        return super().loss(outputs, targets)

    def _mark(self, _: Tensor) -> None:
        (self._folder / str(self._step)).touch()


def waits(options: dict[str, Any], slow: int | None, folder: Path) -> list[dict[str, float]]:
    """Returns what each log line says of the ranks' waits."""
    config = recipe(training={"per_device_batch_size": 3, "epochs": 2}, logging={"every_steps": 5}, **options)
    found: list[dict[str, float]] = []
    with joined(timedelta(minutes=1)) as world:
        task, run = Late(world, slow=slow, folder=folder), Run({})

        def log(values: Mapping[str, float], *, step: int) -> None:
            if "train/loss" in values:
                found.append({key: value for key, value in values.items() if key.startswith("wait/")})

        run.log = log
        Training(
            task, trainer="image-classification", config=config, policy=CheckpointPolicy(), run=run, world=world
        ).train()
    return found


STRATEGIES: list[dict[str, Any]] = [
    {},
    {"distributed": {"strategy": "local_sgd", "local_sgd": {"period": 1}}},
    {"distributed": {"static_graph": True, "gradient_as_bucket_view": True}},
]


@pytest.mark.parametrize(
    ("options", "slow"),
    [
        (STRATEGIES[0], 0),
        *(
            pytest.param(STRATEGIES[index], slow, marks=pytest.mark.thorough)
            for index, slow in ((0, 1), (1, 0), (1, 1), (2, 0), (2, 1))
        ),
    ],
)
def test_the_rank_that_the_other_waits_for_is_named(tmp_path: Path, options: dict[str, Any], slow: int) -> None:
    first, second = results(on_ranks(2, waits, options, slow, tmp_path))
    assert len(first) == len(second) == 2
    for line in (*first, *second):
        shares = [line["wait/rank0"], line["wait/rank1"]]
        assert 0 < shares[slow] < shares[1 - slow] <= 1
        assert line == {
            "wait/rank0": shares[0],
            "wait/rank1": shares[1],
            "wait/slowest_rank": slow,
            "wait/mean": pytest.approx(sum(shares) / 2),
            "wait/lag": pytest.approx(shares[1 - slow] - shares[slow]),
        }
    advice = judge(facts(metrics=first[-1], gpus=[{}, {}]))
    assert advice.headline.startswith(f"rank {slow} is the slowest: another rank waits for it for ")


@pytest.mark.parametrize(
    ("ranks", "options"), [(1, {}), pytest.param(2, {"distributed": {"strategy": "fsdp"}}, marks=pytest.mark.thorough)]
)
def test_nothing_is_told_where_ranks_do_not_meet_once_a_step(
    tmp_path: Path, ranks: int, options: dict[str, Any]
) -> None:
    for found in results(on_ranks(ranks, waits, options, None, tmp_path)):
        assert found
        assert not any(found)


class Stream:
    """A stream of a device. `now` is the time; work that was enqueued up to `done` is finished."""

    now, done, events = 0.0, 0.0, 0


class Recorded:
    """An event on it. It refuses what would have to wait."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self.at = stream, math.nan
        stream.events += 1

    def record(self) -> None:
        self.at = self._stream.now

    def query(self) -> bool:
        return self.at <= self._stream.done

    def elapsed_time(self, end: "Recorded") -> float:
        assert self.query()
        assert end.query()
        return end.at - self.at


def exchange(timer: EventTimer, stream: Stream, milliseconds: float, *, micro_batches: int = 1) -> None:
    for _ in range(micro_batches):
        stream.now += 100
        timer.arrive()
    stream.now += milliseconds
    timer.leave()


def test_events_are_read_only_when_they_are_done_and_are_used_again() -> None:
    stream = Stream()
    timer = EventTimer(lambda: Recorded(stream))
    assert math.isnan(timer.take())
    exchange(timer, stream, 20, micro_batches=3)
    stream.done = stream.now
    exchange(timer, stream, 60)
    assert timer.take() == pytest.approx(0.02 * 2)  # the second exchange counts as long as the first
    stream.done = stream.now
    exchange(timer, stream, 100)
    assert timer.take() == pytest.approx(0.06)
    stream.done = stream.now
    for _ in range(3 * KEPT_PAIRS):
        exchange(timer, stream, 5)
    stream.done = stream.now
    assert timer.take() == pytest.approx((0.1 + 0.005 * (KEPT_PAIRS - 1)) / KEPT_PAIRS * 3 * KEPT_PAIRS)
    assert stream.events == 2 * KEPT_PAIRS
