"""How much of each step the ranks wait for their data loader."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
import time
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.trainer.ranks import job, on_ranks, recipe, results
from tests.trainer.regression import Regression
from tests.trainer.runs import points, small_pictures
import torchyard
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.recipes import ImageClassification
from torchyard.contract.recipes.entry import DATA_WAIT
from torchyard.contract.spec.spec import CheckpointPolicy
from trainer import pace
from trainer.data import loading
from trainer.data.batch import Batch
from trainer.data.loading import WAITED, load_batches
from trainer.metrics import Step, StepMetrics
from trainer.recipes import make_task
from trainer.task import Evaluation, Task
from trainer.train import Training
from trainer.world import World, joined

CPU = torch.device("cpu")
CONFIG = {"training": {"per_device_batch_size": 3, "epochs": 2}, "logging": {"every_steps": 5}}


class Clock:
    """What the trainer reads instead of the real time."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Loading(Regression):
    """Loads its batches as a recipe loads files. `load` and `compute` are called in each step."""

    def __init__(self, *, load: Callable[[], None], compute: Callable[[], None], workers: int = 0) -> None:
        super().__init__()
        self._wait, self._compute, self._workers = load, compute, workers

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        return load_batches(self._load, plan, workers=self._workers, device=CPU)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._compute()
        return super().loss(outputs, targets)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None], batch_size: int | None = None
    ) -> Evaluation:
        """Loads, too: an evaluation is no part of a step."""
        assert len([*load_batches(self._load, [torch.arange(2)], workers=0, device=CPU)]) == 1
        return Evaluation({})

    def _load(self, indices: Tensor) -> Batch:
        self._wait()
        return Batch(self.inputs[indices], self.targets[indices])


def shares(root: Path, function: Callable[..., None], *arguments: object, ranks: int = 1) -> list[float]:
    run = job(root, {})
    results(on_ranks(ranks, function, *arguments, env={Env.RUN_DIR: str(run.job)}))
    return [value for _, value in points(run, DATA_WAIT)]


def train(make: Callable[[World], Task], config: ImageClassification) -> None:
    run = torchyard.init()
    with joined(timedelta(minutes=1)) as world:
        policy, task = CheckpointPolicy(), make(world)
        Training(task, trainer="image-classification", config=config, policy=policy, run=run, world=world).train()
    run.close()


def in_fixed_time(loads: Sequence[float]) -> None:
    """A step loads for as many seconds as the rank has in `loads`, and computes for one."""
    clock = Clock()
    loading.__dict__["time"] = pace.__dict__["time"] = clock

    def make(world: World) -> Task:
        def load() -> None:
            clock.now += loads[world.rank]

        def compute() -> None:
            clock.now += 1

        return Loading(load=load, compute=compute)

    train(make, recipe(**CONFIG))


def with_a_slow_loader() -> None:
    # At the top of a module, as a loader process may unpickle them.
    train(lambda _: Loading(load=read_slowly, compute=do_nothing, workers=1), recipe(**CONFIG))


def read_slowly() -> None:
    time.sleep(0.02)


def do_nothing() -> None:
    pass


def in_memory(source: str) -> None:
    config = recipe(training={"max_steps": 4}, logging={"every_steps": 2})
    train(lambda world: make_task(config, source=source, weights="none", device=world.device), config)


@pytest.mark.parametrize(
    ("loads", "share"),
    [pytest.param([3.0], 0.75, marks=pytest.mark.thorough), ([0.25], 0.2), ([3.0, 0.0], 0.375)],
)
def test_the_share_is_the_mean_over_the_ranks(tmp_path: Path, loads: list[float], share: float) -> None:
    assert shares(tmp_path, in_fixed_time, loads, ranks=len(loads)) == pytest.approx([share] * (4 // len(loads)))


@pytest.mark.thorough
def test_slow_loader_processes_are_most_of_each_step(tmp_path: Path) -> None:
    found = shares(tmp_path, with_a_slow_loader)
    assert len(found) == 4
    # Not each of them: on a busy host a step may take long, too.
    assert 0.5 < max(found) <= 1


def test_a_recipe_with_its_data_in_memory_waits_for_no_loader(tmp_path: Path) -> None:
    assert shares(tmp_path, in_memory, small_pictures(tmp_path, val=20)) == [0.0, 0.0]


def test_the_clock_runs_only_while_a_batch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(loading, "time", SimpleNamespace(monotonic=clock.monotonic))

    def load(indices: Tensor) -> Tensor:
        clock.now += 3
        return indices

    begun = WAITED.seconds
    for number, _ in enumerate(load_batches(load, [torch.arange(2)] * 4, workers=0, device=CPU), start=1):
        assert WAITED.seconds - begun == pytest.approx(3 * number)
        clock.now += 50


def test_the_wait_is_reduced_with_the_losses() -> None:
    assert results(on_ranks(2, reduced)) == [([[1.0], [2.0]], [], 3.0, 2.5)] * 2


def reduced() -> tuple[object, ...]:
    with joined(timedelta(minutes=1)) as world:
        window = StepMetrics(world, 3)
        for loss in (2.0, 4.0):
            window.add(Step(torch.tensor(loss), torch.tensor(2.5)), samples=2, total=2)
        waits: list[list[list[float]]] = []
        for own in ([float(1 + world.rank)], [9.0]):
            window.begin(2, own=own)
            assert window.arrived
            waits.append(window.end())
        return (*waits, window.mean, window.mean_norm)
