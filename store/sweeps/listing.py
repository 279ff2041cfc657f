"""What users read of sweeps and their trials. What a caller may not read is not found: NotFound, as for no id."""

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from store import pages
from store.db.columns import to_time
from store.pages import FactPage
from store.sweeps import sweeps, trials
from store.sweeps.facts import SweepFilter, TrialFacts
from store.tables import Sweep
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.states import DatedReason, JobState
from torchyard.contract.sweeps.spec import SweepState
from torchyard.contract.sweeps.views import SweepSummary, SweepView, TrialCounts

TrialSort = Literal["value", "number"]
_LISTED = (
    *(Sweep.id, Sweep.owner, Sweep.name, Sweep.visibility, Sweep.method, Sweep.monitor, Sweep.mode, Sweep.state),
    *(Sweep.version, Sweep.reason_code, Sweep.reason_message, Sweep.reason_since, Sweep.total, Sweep.created_at),
    Sweep.finished_at,
)
"""What lists read of a sweep: its spec may take a megabyte."""
_MOST_AT_ONCE = Sweep.spec["max_parallel"].as_integer()


def list_sweeps(
    session: Session, where: SweepFilter, *, caller: Caller, limit: int, after: str | None = None
) -> FactPage[SweepSummary]:
    """Returns sweeps that the caller may read, newest first; with `after` (an id), only older ones."""
    query = select(Sweep, _MOST_AT_ONCE).options(load_only(*_LISTED)).where(access.match_readable(caller, Sweep))
    query = query.order_by(Sweep.id.desc()).limit(limit + 1)
    equal = {Sweep.name: where.name, Sweep.owner: where.owner}
    query = query.where(*(column == value for column, value in equal.items() if value is not None))
    if where.states:
        query = query.where(Sweep.state.in_(where.states))
    rows = session.execute(query if after is None else query.where(Sweep.id < after)).all()
    counted = trials.count_by_state(session, [sweep.id for sweep, _ in rows])
    views = [SweepSummary(**_values_of(sweep, counted[sweep.id], most_at_once)) for sweep, most_at_once in rows]
    return pages.first(views, limit)


def find_sweep(session: Session, sweep_id: str, *, caller: Caller) -> SweepView:
    """Returns a sweep with its best trial."""
    return describe(session, sweeps.find(session, sweep_id, caller))


def describe(session: Session, sweep: Sweep) -> SweepView:
    """Returns a sweep with its best trial."""
    values = _values_of(sweep, trials.count_by_state(session, [sweep.id])[sweep.id], sweep.spec.get("max_parallel"))
    return SweepView(**values, spec=sweeps.read_spec(sweep), best=trials.find_best(session, sweep))


def list_trials(
    session: Session, sweep_id: str, *, caller: Caller, sort: TrialSort, limit: int, after: int = 0
) -> FactPage[tuple[TrialFacts, int | None]]:
    """Returns the trials of a sweep in an order, without the first `after` of them: each with its rank, or None."""
    sweep = sweeps.find(session, sweep_id, caller)
    standings = trials.read_standings(session, sweep)
    ranked = trials.rank(standings, mode=sweep.mode)
    ranks = {trial.number: rank for rank, trial in enumerate(ranked, start=1) if trial.has_value}
    numbers = [trial.number for trial in (ranked if sort == "value" else standings)[after : after + limit]]
    shown = {trial.number: trial for trial in trials.read_trials(session, sweep, numbers=numbers, shown=True)}
    items = [(shown[number], ranks.get(number)) for number in numbers]
    return FactPage(items, has_more=len(standings) > after + limit)


def find_trial(session: Session, sweep_id: str, number: int, *, caller: Caller) -> tuple[TrialFacts, int | None]:
    """Returns a trial of a sweep, and its rank."""
    its = list_trials(session, sweep_id, caller=caller, sort="number", limit=1, after=number).items
    if not its:
        raise NotFound(f"sweep {sweep_id} has no trial {number}")
    return its[0]


def _values_of(sweep: Sweep, counted: Mapping[JobState, int], most_at_once: int | None) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "state": SweepState(sweep.state),
        "status_reason": DatedReason(
            code=sweep.reason_code, message=sweep.reason_message, since=to_time(sweep.reason_since)
        ),
        "owner": sweep.owner,
        "visibility": sweep.visibility,
        "method": sweep.method,
        "monitor": sweep.monitor,
        "mode": sweep.mode,
        "max_parallel": most_at_once,
        "trials": _count_trials(counted, total=sweep.total),
        "created_at": to_time(sweep.created_at),
        "finished_at": None if sweep.finished_at is None else to_time(sweep.finished_at),
        "version": sweep.version,
    }


def _count_trials(counted: Mapping[JobState, int], *, total: int) -> TrialCounts:
    counts = {state.value: count for state, count in counted.items() if state is not JobState.STARTING}
    counts["running"] = counts.get("running", 0) + counted.get(JobState.STARTING, 0)
    return TrialCounts(total=total, waiting=total - sum(counted.values()), **counts)
