"""What a controller reads of sweeps: which have something to do, and which of their trials.

What reads one sweep raises NotFound if it is gone.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from store.db.documents import values_at
from store.sweeps import sweeps, trials
from store.sweeps.facts import ACTIVE, DueSweep, KnownTrials, SweepTerms, TrialFacts
from store.tables import Base, Job, Sweep, SweepTrial
from store.team.callers import SERVICE
from torchyard.contract.errors import NotFound
from torchyard.contract.states import AT_RUNG, JobState
from torchyard.contract.sweeps.spec import Halving, SweepSpec, SweepState, parallel_of

_READ = (
    *(Sweep.id, Sweep.owner, Sweep.method, Sweep.mode, Sweep.state, Sweep.version, Sweep.asked),
    *(Sweep.total, Sweep.next_number),
)
"""What each pass reads of each sweep: not its spec."""
_SPEC = Base.metadata.tables["sweeps"].c.spec


def list_due(session: Session) -> list[DueSweep]:
    """Returns the sweeps with which there may be something to do, oldest first."""
    is_due = or_(Sweep.state != SweepState.PAUSED, Sweep.asked.is_not(None))
    rows = session.execute(select(*_READ).where(sweeps.is_open(), is_due).order_by(Sweep.id)).all()
    counted = trials.count_by_state(session, [row.id for row in rows]) if rows else {}
    return [_due_sweep(row, counted[row.id]) for row in rows]


def read_terms(session: Session, sweep_id: str) -> SweepTerms:
    """Returns what of its spec says when a sweep goes on."""
    paths = [("max_parallel",), ("max_failed",), ("halving",)]
    read = values_at(_SPEC, paths, dialect=session.get_bind().dialect.name)
    row = session.execute(select(Sweep.method, read).where(Sweep.id == sweep_id)).first()
    if row is None:
        raise NotFound(f"there is no sweep {sweep_id}")
    max_parallel, max_failed, halving, _ = row[1]
    parsed = None if halving is None else Halving.model_validate(halving)
    return SweepTerms(parallel_of(row.method, max_parallel), max_failed, parsed)


def read_spec(session: Session, sweep_id: str) -> SweepSpec:
    """Returns the spec of a sweep."""
    return sweeps.read_spec(sweeps.find(session, sweep_id, SERVICE))


def read_trials_at_rungs(session: Session, sweep_id: str) -> list[TrialFacts]:
    """Returns what of the trials of a sweep says which go on, by number.

    Those are their states, their rungs, and the values of the ended.
    """
    return trials.read_at_rungs(session, sweeps.find(session, sweep_id, SERVICE))


def read_known_trials(session: Session, sweep_id: str) -> KnownTrials:
    """Returns the trials of a sweep that are made: to be made of what was read, by who needs them."""
    return trials.read_known(session, sweeps.find(session, sweep_id, SERVICE))


def list_to_ask(session: Session, sweep: Sweep, *, limit: int) -> Sequence[tuple[int, str]]:
    """Returns the numbers and jobs of the next trials that have not ended."""
    query = select(SweepTrial.number, SweepTrial.job_id).where(
        SweepTrial.sweep_id == sweep.id, SweepTrial.outcome.is_(None), SweepTrial.number >= sweep.asked_to
    )
    return [(row.number, row.job_id) for row in session.execute(query.order_by(SweepTrial.number).limit(limit))]


def list_waiting(session: Session, sweep_id: str) -> Sequence[tuple[int, str]]:
    """Returns the numbers and jobs of the trials that wait at a rung, in the order in which jobs are locked."""
    query = select(SweepTrial.number, Job.id).join(Job, Job.id == SweepTrial.job_id)
    waits = (SweepTrial.sweep_id == sweep_id, Job.state == JobState.PAUSED, Job.reason_code == AT_RUNG)
    return [(row.number, row.id) for row in session.execute(query.where(*waits).order_by(Job.id))]


def count_running(session: Session, sweep_id: str) -> int:
    """Returns how many trials wait for a worker, or run."""
    query = select(func.count(Job.id)).join(SweepTrial, Job.id == SweepTrial.job_id)
    return session.execute(query.where(SweepTrial.sweep_id == sweep_id, Job.state.in_(ACTIVE))).scalar_one()


def count_failed(session: Session, sweep_id: str) -> int:
    """Returns how many trials have failed."""
    query = select(func.count()).where(SweepTrial.sweep_id == sweep_id, SweepTrial.outcome == JobState.FAILED)
    return session.execute(query).scalar_one()


def _due_sweep(row: Any, counted: dict[JobState, int]) -> DueSweep:
    return DueSweep(
        id=row.id,
        owner=row.owner,
        method=row.method,
        mode=row.mode,
        state=SweepState(row.state),
        version=row.version,
        asked=row.asked,
        total=row.total,
        made=row.next_number,
        active=sum(counted.get(state, 0) for state in ACTIVE),
        open=sum(count for state, count in counted.items() if not state.terminal),
        failed=counted.get(JobState.FAILED, 0),
    )
