"""Which trials of `asha` go on: asynchronous successive halving, where trials pause at their rungs and wait."""

from collections.abc import Sequence
from itertools import pairwise
import math

from store.facts.sweeps import TrialFacts
from torchyard.contract.job import JobState
from torchyard.contract.sweeps import Halving


def promotions(halving: Halving, trials: Sequence[TrialFacts], *, mode: str | None, total: int) -> dict[int, int]:
    """Returns the trials that go on, by number, and for each the rung at which it stops next: the highest rung first.

    Of those that have come to a rung, the best `1 / factor` may leave it, rounded down. Once nothing else can happen,
    the best of each rung may in any case, so that one trial comes to the end. `total`: how many trials there will be.
    """
    found = _promotable(halving, trials, mode=mode, least=0)
    if found or len(trials) < total or any(trial.is_active for trial in trials):
        return found
    return _promotable(halving, trials, mode=mode, least=1)


def _promotable(halving: Halving, trials: Sequence[TrialFacts], *, mode: str | None, least: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for rung, following in reversed([*pairwise(halving.rungs)]):
        values = {trial.number: _value_at(trial, rung) for trial in trials if _has_come_to(trial, rung)}
        ranked = sorted(values, key=lambda number: (_badness(values[number], mode), number))
        best = ranked[: max(least, len(ranked) // halving.factor)]
        waiting = {trial.number for trial in trials if trial.at_rung and trial.rungs[-1].at == rung}
        found |= {number: following for number in best if number in waiting and not math.isnan(values[number])}
    return found


def _has_come_to(trial: TrialFacts, rung: int) -> bool:
    """Whether a trial counts at a rung: it has paused there, or has done all its work before."""
    return trial.state is JobState.SUCCEEDED or any(each.at == rung for each in trial.rungs)


def _value_at(trial: TrialFacts, rung: int) -> float:
    """Returns what it had measured there; NaN for nothing."""
    found = next((each.value for each in trial.rungs if each.at == rung), trial.value)
    return math.nan if found is None else found


def _badness(value: float, mode: str | None) -> float:
    if math.isnan(value):
        return math.inf
    return -value if mode == "max" else value
