"""Sweeps: the only function that changes a state, and what one transaction reads of a sweep."""

from collections.abc import Sequence
from functools import lru_cache
import json
from typing import Any, cast

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.database import now_us
from store.ids import is_id
from store.notifications import signals
from store.notifications.signals import SweepSubject
from store.sweeps import trials
from store.tables import Job, Sweep, SweepTrial
from store.team import access
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.states import Reason
from torchyard.contract.sweeps.spec import SweepSpec, SweepState
from torchyard.contract.team.roles import Visibility

STARTED = Reason("running", "makes trials as there is room")
_FROM: dict[SweepState, frozenset[SweepState]] = {
    SweepState.RUNNING: frozenset({SweepState.PAUSED, SweepState.FINISHED}),
    SweepState.PAUSED: frozenset({SweepState.RUNNING}),
    SweepState.CANCELLING: frozenset({SweepState.RUNNING, SweepState.PAUSED}),
    SweepState.FINISHED: frozenset({SweepState.RUNNING}),
    SweepState.CANCELLED: frozenset({SweepState.CANCELLING}),
    SweepState.FAILED: frozenset({SweepState.CANCELLING}),
}
"""From which states each may be entered."""


def find(session: Session, sweep_id: str, caller: Caller) -> Sweep:
    """Returns a sweep that the caller may read. Raises NotFound, also for what is no sweep's id."""
    if not is_id(sweep_id, "swp"):
        raise NotFound(f"there is no sweep {sweep_id[:100]!r}")
    row = session.scalars(select(Sweep).where(Sweep.id == sweep_id, access.match_readable(caller, Sweep))).first()
    if row is None:
        raise NotFound(f"there is no sweep {sweep_id}")
    return row


def resolve_job(session: Session, caller: Caller, name: str, ref: str) -> str:
    """Returns the job whose checkpoint `name`/`ref` is: `name` itself or, of a sweep's id and `best`, its best job.

    Raises NotFound.
    """
    if not is_id(name, "swp"):
        return name
    sweep = find(session, name, caller)
    job_id = trials.find_best_job(session, sweep) if ref == "best" else None
    if ref != "best":
        raise NotFound(f"sweep {name} has no checkpoint {ref[:100]!r}, only `best`")
    if job_id is None:
        raise NotFound(f"sweep {name} has no checkpoint with a value yet")
    return job_id


def lock(session: Session, sweep_id: str, caller: Caller = SERVICE) -> Sweep:
    """Returns a sweep that the caller may change, locked until the transaction ends: before any of its jobs.

    Raises Forbidden if the caller may only read it, and NotFound otherwise.
    """
    readable = find(session, sweep_id, caller)
    query = select(Sweep).where(Sweep.id == sweep_id, access.changeable(caller, Sweep)).with_for_update()
    row = session.scalars(query.execution_options(populate_existing=True)).first()
    if row is None:
        raise Forbidden(f"sweep {sweep_id} belongs to {readable.owner}: only its owner and administrators may do this")
    return row


def move(session: Session, sweep: Sweep, state: SweepState, *, reason: Reason, **values: Any) -> None:
    """Changes the state of a locked sweep. Raises Conflict if its state does not allow that."""
    if SweepState(sweep.state) not in _FROM[state]:
        raise Conflict(f"sweep {sweep.id} is {sweep.state}: it cannot become {state}")
    ended = now_us() if state.ended else None
    change(session, sweep, state=state, finished_at=ended, **_reason_columns(reason), **values)
    if state.ended:
        _signal_end(session, sweep)
    wake(session)


def set_reason(session: Session, sweep: Sweep, reason: Reason) -> None:
    """Stores another reason for the state of a locked sweep, if it is another one."""
    if sweep.reason_message != reason.message:
        change(session, sweep, **_reason_columns(reason))


def change(session: Session, sweep: Sweep, **values: Any) -> None:
    """Sets columns of a locked sweep."""
    session.execute(
        update(Sweep).where(Sweep.id == sweep.id).values(version=Sweep.version + 1, **values),
        execution_options={"synchronize_session": False},
    )
    session.refresh(sweep)


def remove(session: Session, sweep: Sweep) -> None:
    """Removes a locked sweep and its trials. Its jobs stay, as jobs of no sweep."""
    quietly = {"synchronize_session": False}
    # Always in one order: others that lock several jobs would wait for this, and this for them.
    session.execute(select(Job.id).where(Job.sweep_id == sweep.id).order_by(Job.id).with_for_update())
    jobs = update(Job).where(Job.sweep_id == sweep.id).values(sweep_id=None, trial=None, version=Job.version + 1)
    session.execute(jobs, execution_options=quietly)
    session.execute(delete(SweepTrial).where(SweepTrial.sweep_id == sweep.id), execution_options=quietly)
    session.execute(delete(Sweep).where(Sweep.id == sweep.id), execution_options=quietly)


def wake(session: Session) -> None:
    """Has a controller look at the sweeps after the commit."""
    announcement_of(session).wake_controller()


def read_reason(sweep: Sweep) -> Reason:
    """Returns why a sweep is in its state."""
    return Reason(sweep.reason_code, sweep.reason_message)


def read_visibility(sweep: Sweep) -> Visibility:
    """Returns who may read a sweep and its jobs."""
    return cast("Visibility", sweep.visibility)


def read_spec(sweep: Sweep) -> SweepSpec:
    """Returns the spec of a sweep."""
    return _parsed(json.dumps(sweep.spec))


def list_jobs(session: Session, sweep_id: str) -> Sequence[str]:
    """Returns the ids of all jobs of a sweep, also of those that another one has gone on with."""
    return session.scalars(select(Job.id).where(Job.sweep_id == sweep_id).order_by(Job.id)).all()


def is_open() -> ColumnElement[bool]:
    """Returns the condition that a sweep has not ended."""
    return Sweep.state.in_([state for state in SweepState if not state.ended])


def count_open_trials(session: Session, sweep_id: str) -> int:
    """Returns how many trials have not ended."""
    query = select(func.count()).where(SweepTrial.sweep_id == sweep_id, SweepTrial.outcome.is_(None))
    return session.execute(query).scalar_one()


@lru_cache(maxsize=8)  # a spec of a mebibyte takes ten of memory
def _parsed(written: str) -> SweepSpec:
    return SweepSpec.model_validate_json(written)


def _reason_columns(reason: Reason) -> dict[str, Any]:
    return {"reason_code": reason.code, "reason_message": reason.message, "reason_since": now_us()}


def _signal_end(session: Session, sweep: Sweep) -> None:
    """Adds the signal that the sweep has ended, with its state and its best trial."""
    subject = SweepSubject(sweep.id, sweep.name, sweep.owner, sweep.visibility)
    if not signals.is_wanted(session, EventKind.SWEEP_FINISHED, sweep=subject):
        return
    counts = {
        str(state): count for state, count in trials.count_by_state(session, [sweep.id])[sweep.id].items() if count
    }
    parts = [f"{count} {state}" for state, count in counts.items()]
    best, its = trials.find_best(session, sweep), None
    if best is not None:
        its = {"number": best.trial, "job_id": best.job_id, "value": best.value}
        parts.append(f"the best is trial {best.trial} with {sweep.monitor} {best.value:.6g}")
    text = signals.brief(f"{sweep.state}: {sweep.reason_message}; {', '.join(parts)}")
    data = {"state": sweep.state, "trials": counts, "best": its, "text": text}
    signals.add(session, EventKind.SWEEP_FINISHED, sweep=subject, data=data)
