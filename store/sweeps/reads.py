"""What is told of sweeps: each function reads one snapshot. All of them raise Unavailable.

What a caller may not read is not found: NotFound is raised, also for what is no sweep's id.
"""

from typing import Literal

from store.db.database import Snapshots
from store.output import pages_facts as pages
from store.output.pages_facts import FactPage
from store.sweeps import due_sweeps, trials
from store.sweeps import rows as sweeps
from store.sweeps.facts import (
    DueSweep,
    KnownTrials,
    RankedTrials,
    SweepFacts,
    SweepFilter,
    SweepTerms,
    TrialFacts,
    WholeSweep,
)
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.sweeps import SweepSpec

TrialSort = Literal["value", "number"]


def listed(
    store: Snapshots, where: SweepFilter, *, caller: Caller, limit: int, after: str | None = None
) -> FactPage[SweepFacts]:
    """Returns sweeps, newest first; with `after` (an id), only older ones."""
    with store.read() as session:
        return pages.first(sweeps.listed(session, where, caller, limit=limit + 1, after=after), limit)


def get(store: Snapshots, sweep_id: str, *, caller: Caller) -> WholeSweep:
    """Returns a sweep."""
    with store.read() as session:
        return sweeps.whole(session, sweeps.get(session, sweep_id, caller))


def trials_of(
    store: Snapshots, sweep_id: str, *, caller: Caller, sort: TrialSort, limit: int, after: int = 0
) -> RankedTrials:
    """Returns the trials of a sweep in an order, without the first `after` of them."""
    with store.read() as session:
        sweep = sweeps.get(session, sweep_id, caller)
        found = trials.standings(session, sweep)
        ranked = trials.ranked(found, mode=sweep.mode)
        ranks = {trial.number: rank for rank, trial in enumerate(ranked, start=1) if trial.has_value}
        some = [trial.number for trial in (ranked if sort == "value" else found)[after : after + limit]]
        told = {trial.number: trial for trial in trials.of_sweep(session, sweep, numbers=some, shown=True)}
    return RankedTrials([(told[number], ranks.get(number)) for number in some], len(found) > after + limit)


def trial(store: Snapshots, sweep_id: str, number: int, *, caller: Caller) -> tuple[TrialFacts, int | None]:
    """Returns a trial of a sweep, and its rank."""
    found = trials_of(store, sweep_id, caller=caller, sort="number", limit=1, after=number)
    if not found.items:
        raise NotFound(f"sweep {sweep_id} has no trial {number}")
    return found.items[0]


def due(store: Snapshots) -> list[DueSweep]:
    """Returns the sweeps with which there may be something to do, oldest first, for a controller."""
    with store.read() as session:
        return due_sweeps.due(session)


def terms(store: Snapshots, sweep_id: str) -> SweepTerms:
    """Returns what of its spec says when a sweep goes on, for a controller."""
    with store.read() as session:
        return due_sweeps.terms(session, sweep_id)


def spec(store: Snapshots, sweep_id: str) -> SweepSpec:
    """Returns the spec of a sweep, for a controller."""
    with store.read() as session:
        return sweeps.spec_of(sweeps.get(session, sweep_id, SERVICE))


def trials_at_rungs(store: Snapshots, sweep_id: str) -> list[TrialFacts]:
    """Returns what of the trials of a sweep says which go on, by number, for a controller.

    Those are their states, their rungs, and the values of the ended.
    """
    with store.read() as session:
        return trials.at_rungs(session, sweeps.get(session, sweep_id, SERVICE))


def known_trials(store: Snapshots, sweep_id: str) -> KnownTrials:
    """Returns the trials of a sweep that are made, for a controller: to be made of what was read, by who needs them."""
    with store.read() as session:
        return trials.known(session, sweeps.get(session, sweep_id, SERVICE))
