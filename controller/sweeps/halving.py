"""Which trials of `asha` go on: asynchronous successive halving, where trials pause at their rungs and wait."""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
import math

from store.sweeps.facts import TrialFacts
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.spec import Halving


def promotions(halving: Halving, trials: Sequence[TrialFacts], *, mode: str | None, total: int) -> dict[int, int]:
    """Returns the trials that go on, by number, and for each the rung at which it stops next: the highest rung first.

    Of those that have come to a rung, the best `1 / factor` may leave it, rounded down. Once nothing else can happen,
    the best of each rung may in any case, so that one trial comes to the end. `total`: how many trials there will be.
    """
    values, waiting = _values_at(halving, trials), _waiting_at(trials)
    wanted = _promotable(halving, values, waiting, mode=mode, least=0)
    if wanted or len(trials) < total or any(trial.is_active for trial in trials):
        return wanted
    return _promotable(halving, values, waiting, mode=mode, least=1)


def _promotable(
    halving: Halving,
    values: Mapping[int, Mapping[int, float]],
    waiting: Mapping[int, Set[int]],
    *,
    mode: str | None,
    least: int,
) -> dict[int, int]:
    wanted: dict[int, int] = {}
    for rung, following in reversed([*pairwise(halving.rungs)]):
        its = values[rung]
        if not waiting[rung]:
            continue
        ranked = sorted(its, key=lambda number: (_badness(its[number], mode), number))
        best = ranked[: max(least, len(ranked) // halving.factor)]
        wanted |= {number: following for number in best if number in waiting[rung] and not math.isnan(its[number])}
    return wanted


def _values_at(halving: Halving, trials: Sequence[TrialFacts]) -> Mapping[int, Mapping[int, float]]:
    """Returns for each rung what the trials that count there had measured; NaN for nothing.

    A trial counts at a rung if it has paused there, or has done all its work before.
    """
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for trial in trials:
        for each in trial.rungs:
            values[each.at].setdefault(trial.number, _number(each.value))
        if trial.state is JobState.SUCCEEDED:
            for rung in halving.rungs:
                values[rung].setdefault(trial.number, _number(trial.value))
    return values


def _waiting_at(trials: Sequence[TrialFacts]) -> Mapping[int, Set[int]]:
    """Returns for each rung the trials that wait there."""
    waiting: dict[int, set[int]] = defaultdict(set)
    for trial in trials:
        if trial.at_rung:
            waiting[trial.rungs[-1].at].add(trial.number)
    return waiting


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _badness(value: float, mode: str | None) -> float:
    if math.isnan(value):
        return math.inf
    return -value if mode == "max" else value
