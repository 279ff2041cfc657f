"""The points that `tpe` proposes: by what was measured, the same each time, and of the values that were given."""

from collections.abc import Callable, Sequence
import math
from typing import Any

import optuna
import pytest

from controller.sweeps import sampling
from store.sweeps.facts import RungFacts, TrialFacts
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.spec import Point, SweepSpec, parse_sweep

LR, UNITS = "config.optimizer.lr", "args.units"
MIXED: list[Any] = [1, 1.0, True, "1", None, [1, 2], {"a": 1}]


def spec(*, seed: int = 0, mode: str = "min", trials: int = 200, **parameters: Any) -> SweepSpec:
    found = {key.replace("__", "."): values for key, values in parameters.items()}
    return parse_sweep({"method": "tpe", "trials": trials, "seed": seed, "mode": mode, "parameters": found, "job": {}})


def done(number: int, point: Point, value: float | None, state: JobState = JobState.SUCCEEDED) -> TrialFacts:
    return TrialFacts(number=number, point=point, job_id="job", state=state, value=value, step=10)


def sample(asked: SweepSpec, trials: Sequence[TrialFacts], *, count: int) -> list[Point]:
    return [*sampling.sample(asked, trials, count=count)]


def history(asked: SweepSpec, measure: Callable[[Point], float | None], *, count: int) -> list[TrialFacts]:
    """Runs `count` trials, one after another."""
    trials: list[TrialFacts] = []
    while len(trials) < count:
        (point,) = sample(asked, trials, count=1)
        trials.append(done(len(trials), point, measure(point)))
    return trials


def bowl(point: Point) -> float:
    """A function of two variables, whose least value is 0, at lr 0.003 and 96 units."""
    lr, units = point["lr"], point["units"]
    assert isinstance(lr, float)
    assert isinstance(units, int)
    return (math.log10(lr) - math.log10(0.003)) ** 2 + ((units - 96) / 64) ** 2


BOWL: dict[str, Any] = {"lr": {"min": 1e-6, "max": 1.0, "log": True}, "units": {"min": 8, "max": 512, "integer": True}}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_it_comes_nearer_to_the_best_than_chance(seed: int) -> None:
    asked = spec(seed=seed, **BOWL)
    ours = history(asked, bowl, count=40)
    by_chance = sample(asked, [], count=40)  # nothing is known of any of them
    assert min(trial.value or 0 for trial in ours) < min(map(bowl, by_chance))
    late = sorted(trial.value or 0 for trial in ours[20:])
    assert late[10] < sorted(map(bowl, by_chance))[20] / 4


def test_it_comes_nearer_to_the_largest_value_too() -> None:
    asked = spec(mode="max", **BOWL)
    late = sorted(trial.value or 0 for trial in history(asked, lambda point: -bowl(point), count=30)[15:])
    assert late[7] > sorted(-bowl(point) for point in sample(asked, [], count=30))[15] / 2


def test_the_same_history_gives_the_same_points_together_or_in_turn() -> None:
    asked = spec(**BOWL, optimizer=["adamw", "sgd"])
    known = [done(number, point, float(number % 7)) for number, point in enumerate(sample(asked, [], count=15))]
    together = sample(asked, known, count=4)
    assert together == sample(asked, known, count=4)
    for point in together:
        assert sample(asked, known, count=1) == [point]
        known.append(done(len(known), point, None, JobState.RUNNING))
    assert sample(spec(seed=1, **BOWL, optimizer=["adamw", "sgd"]), known, count=1) != sample(asked, known, count=1)


def test_values_of_a_list_keep_their_kinds() -> None:
    asked = spec(value=MIXED)
    trials = history(asked, lambda point: 0.0 if point["value"] is True else 1.0, count=len(MIXED))
    found = [trial.point["value"] for trial in trials]
    assert sorted(map(repr, found)) == sorted(map(repr, MIXED))


def test_ranges_keep_their_steps_their_ends_and_their_kinds() -> None:
    asked = spec(
        a={"min": 0.0, "max": 1.0, "step": 0.3},
        b={"min": 2, "max": 9, "step": 3, "integer": True},
        c={"min": 1, "max": 1000, "integer": True, "log": True},
        d="3..3",
    )
    points = [trial.point for trial in history(asked, lambda point: 1.0, count=30)]
    assert all(point["a"] in (0.0, 0.3, 0.6, 0.9) and point["b"] in (2, 5, 8) for point in points)
    assert all(type(point["c"]) is int and 1 <= point["c"] <= 1000 for point in points)
    assert all(type(point["b"]) is type(point["d"]) is int and point["d"] == 3 for point in points)


def test_no_point_is_tried_again_while_there_are_others() -> None:
    asked = spec(x=[1, 2, 3, 4], y=[1, 2, 3])
    points = [trial.point for trial in history(asked, lambda point: float(str(point["x"])), count=10)]
    assert len({(point["x"], point["y"]) for point in points}) == 10
    assert len(history(asked, lambda point: 0.0, count=14)) == 14


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_it_avoids_where_nothing_could_be_measured(state: JobState, value: float | None) -> None:
    asked = spec(x={"min": 0.0, "max": 1.0})
    bad = [done(number, {"x": 0.8 + number / 100}, value, state) for number in range(10)]
    good = [done(10 + number, {"x": 0.1 + number / 50}, 1.0) for number in range(10)]
    points = sample(asked, [*bad, *good], count=10)
    assert sum(float(str(point["x"])) < 0.5 for point in points) >= 8


def test_it_keeps_away_from_those_that_run() -> None:
    asked = spec(x={"min": 0.0, "max": 1.0})
    known = [done(number, {"x": number / 20}, abs(number / 20 - 0.5)) for number in range(20)]
    running = [done(20 + number, {"x": 0.5 + number / 1000}, None, JobState.RUNNING) for number in range(8)]

    def near(trials: list[TrialFacts]) -> int:
        return sum(abs(float(str(point["x"])) - 0.5) < 0.05 for point in sample(asked, trials, count=10))

    assert near([*known, *running]) < near(known)


def test_a_trial_at_a_rung_counts_by_how_far_it_came() -> None:
    """As of those that run further, not as one that runs."""
    asked = spec(x={"min": 0.0, "max": 1.0})

    def waiting(number: int, x: float, *values: float) -> TrialFacts:
        rungs = [RungFacts(3**place, value) for place, value in enumerate(values)]
        facts = {"number": number, "point": {"x": x}, "job_id": "job", "state": JobState.PAUSED, "value": values[-1]}
        return TrialFacts(**facts, rungs=rungs, at_rung=True)  # pyright: ignore[reportArgumentType]

    low = [waiting(number, 0.1 + number / 100, 0.1) for number in range(15)]
    high = [waiting(15 + number, 0.8 + number / 100, 0.1, 0.09) for number in range(5)]
    points = sample(asked, [*low, *high], count=10)
    assert sum(float(str(point["x"])) > 0.5 for point in points) >= 6


@pytest.mark.parametrize("mode", ["min", pytest.param("max", marks=pytest.mark.thorough)])
def test_of_very_many_trials_the_best_and_the_newest_count(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a point grows with trials × values: 400 trials of 60,000 values took 150 s."""
    monkeypatch.setattr(sampling, "_MOST_COST", 100_000)
    parameters: dict[str, Any] = {f"k{number}": [*range(100)] for number in range(10)}
    asked = spec(mode=mode, trials=10_000, **parameters)
    known = [done(number, dict.fromkeys(parameters, number), float((number - 3) ** 2)) for number in range(90)]
    if mode == "max":
        known = [done(trial.number, trial.point, -(trial.value or 0)) for trial in known]
    told: list[int] = []
    add = optuna.Study.add_trial

    def count(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        told.append(trial.params["k0"])
        add(study, trial)

    monkeypatch.setattr(optuna.Study, "add_trial", count)
    (point,) = sample(asked, known, count=1)
    assert len(told) * 1_500 < 110_000
    assert told[:7] == [*range(7)] and told[-2] == 89, "and last the new one"
    assert point.keys() == parameters.keys()
