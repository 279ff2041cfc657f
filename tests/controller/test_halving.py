"""Which trials of `asha` go on."""

from collections.abc import Sequence
import math

from hypothesis import given
from hypothesis import strategies as st
import optuna
from optuna.trial import TrialState
import pytest

from controller.sweeps.halving import promotions
from store.sweeps.facts import RungFacts, TrialFacts
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.spec import Halving

HALVING = Halving(min=1, max=9, factor=3)


def trial(
    number: int, *values: float | None, state: JobState = JobState.PAUSED, value: float | None = None
) -> TrialFacts:
    """A trial that has measured these values at its rungs, and waits at the last one."""
    rungs = [RungFacts(at, each) for at, each in zip(HALVING.rungs, values, strict=False)]
    return TrialFacts(
        number=number,
        point={},
        job_id="job",
        state=state,
        value=value if value is not None or not values else values[-1],
        rungs=rungs,
        at_rung=state is JobState.PAUSED and bool(rungs),
    )


def promoted(trials: Sequence[TrialFacts], *, mode: str = "min", total: int = 100) -> dict[int, int]:
    return promotions(HALVING, trials, mode=mode, total=total)


def test_of_each_rung_the_best_third_goes_on() -> None:
    waiting = [trial(number, value) for number, value in enumerate([0.5, 0.1, 0.4, 0.2, 0.3])]
    assert promoted(waiting[:2]) == {}
    assert promoted(waiting[:3]) == {1: 3}
    assert promoted(waiting[:5]) == {1: 3}
    assert promoted([*waiting, trial(5, 0.6)]) == {1: 3, 3: 3}
    assert promoted(waiting[:3], mode="max") == {0: 3}


def test_who_has_gone_on_counts_where_it_was() -> None:
    gone = trial(0, 0.1, state=JobState.RUNNING)
    assert promoted([gone, trial(1, 0.2), trial(2, 0.3)]) == {}
    later = [trial(number, 0.1, 0.1 + number / 100) for number in range(3)]
    assert promoted([*later, *[trial(number, 0.9) for number in range(3, 9)]]) == {0: 9}


def test_equal_values_are_no_reason_to_promote_all_of_them() -> None:
    assert promoted([trial(number, 0.25) for number in range(6)]) == {0: 3, 1: 3}


@pytest.mark.parametrize("nothing", [None, math.nan])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_trial_that_has_measured_nothing_counts_and_stays(nothing: float | None, mode: str) -> None:
    some = [trial(0, nothing), trial(1, nothing), trial(2, 0.5)]
    assert promoted(some, mode=mode) == {2: 3}
    assert promoted([trial(number, nothing) for number in range(6)], mode=mode, total=6) == {}


def test_who_has_failed_or_is_paused_by_its_owner_is_not_promoted() -> None:
    some = [trial(0, 0.1, state=JobState.FAILED), trial(1, 0.2), trial(2, 0.3)]
    assert promoted(some) == {}
    held = TrialFacts(
        number=0, point={}, job_id="job", state=JobState.PAUSED, value=0.1, rungs=[RungFacts(1, 0.1)], at_rung=False
    )
    assert promoted([held, *some[1:]]) == {}


def test_who_has_ended_early_by_itself_counts_at_later_rungs_too() -> None:
    ended = [trial(number, 0.3, state=JobState.SUCCEEDED, value=0.3) for number in range(2)]
    assert promoted([*ended, trial(2, 0.2, 0.1)]) == {2: 9}


def test_in_the_end_the_best_comes_to_the_end_though_there_are_few() -> None:
    two = [trial(0, 0.2), trial(1, 0.1)]
    assert promoted(two, total=3) == {}
    assert promoted([trial(0, 0.2), trial(1, state=JobState.RUNNING)], total=2) == {}
    assert promoted(two, total=2) == {1: 3}
    assert promoted([two[0], trial(1, 0.1, 0.1)], total=2) == {1: 9}
    assert promoted([two[0], trial(1, 0.1, 0.1, 0.1)], total=2) == {}


@given(
    values=st.lists(st.integers(0, 10_000), min_size=1, max_size=40, unique=True), mode=st.sampled_from(["min", "max"])
)
def test_the_first_rung_is_that_of_optuna(values: list[int], mode: str) -> None:
    """Whether the last of the trials is promoted, where those before it wait: as Optuna's pruner decides."""
    study = optuna.create_study(
        direction="minimize" if mode == "min" else "maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3, bootstrap_count=2),
    )
    pruned = False
    for value in values:
        asked = study.ask()
        asked.report(float(value), 1)
        pruned = asked.should_prune()
        study.tell(asked, state=TrialState.PRUNED)
    waiting = [trial(number, float(value)) for number, value in enumerate(values)]
    assert (len(values) - 1 in promoted(waiting, mode=mode)) is not pruned
