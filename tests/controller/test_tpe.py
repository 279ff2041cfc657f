"""A sweep by `tpe` in the controller: each trial is proposed by the results so far, once, and the same again."""

import pytest

from controller.sweeps.duty import Sweeps
from store.store import Store
from tests.controller.test_sweeps import Yard
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together
from torchyard.contract.sweeps.spec import SweepState


@pytest.fixture
def yard(db: StoreFixture, store: Store) -> Yard:
    return Yard(db, store)


def _start(yard: Yard, *, seed: int = 0) -> str:
    parameters = {"args.x": {"min": 0.0, "max": 1.0}, "args.kind": ["a", "b"]}
    return yard.sweep(method="tpe", trials=12, max_parallel=4, seed=seed, parameters=parameters)


def _points(yard: Yard, sweep: str) -> list[object]:
    return [trial.point for trial in yard.trials(sweep)]


def _train(yard: Yard, sweep: str) -> None:
    """Has all trials of the sweep end, each with a loss that is least at 0.3."""
    yard.run()
    while active := [trial for trial in yard.trials(sweep) if trial.is_active]:
        assert len(active) <= 4
        for trial in active:
            yard.end(str(trial.job_id), loss=(float(str(trial.point["args.x"])) - 0.3) ** 2)
        yard.run()


@quick_on_sqlite
def test_the_same_sweep_with_the_same_results_tries_the_same_points(yard: Yard) -> None:
    first, second, other = _start(yard), _start(yard), _start(yard, seed=1)
    for sweep in (first, second):
        _train(yard, sweep)
        assert yard.state(sweep) is SweepState.FINISHED
    assert len(_points(yard, first)) == 12
    assert _points(yard, first) == _points(yard, second)
    assert _points(yard, first)[:4] != _points(yard, other)


@pytest.mark.thorough
def test_several_controllers_make_the_same_trials_as_one(yard: Yard) -> None:
    alone, together = _start(yard), _start(yard)
    run_together(*[Sweeps(yard.store).run for _ in range(4)])
    yard.run()
    assert len(_points(yard, alone)) == 4
    assert _points(yard, alone) == _points(yard, together)


@quick_on_sqlite
def test_one_pass_proposes_few_points_so_that_others_have_their_turn(yard: Yard) -> None:
    parameters = {"args.x": {"min": 0.0, "max": 1.0}}
    sweep = yard.sweep(method="tpe", trials=12, max_parallel=12, parameters=parameters)
    while not _points(yard, sweep):
        assert yard.duty.run()
    assert len(_points(yard, sweep)) < 12
    yard.run()
    assert len(_points(yard, sweep)) == 12
