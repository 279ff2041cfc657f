"""Sweeps: the only function that changes a state, and what is told of them."""

from collections.abc import Sequence
from functools import lru_cache
import json
from typing import Any, cast

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session, load_only

from store.announcement import announcement_of
from store.db.database import now_us
from store.db.upsert import upsert
from store.ids import is_id, new_id
from store.jobs.idempotency import KeyTaken, made_by
from store.sweeps import ends as sweep_ends
from store.sweeps import trials
from store.sweeps.facts import NewSweep, SweepFacts, SweepFilter, TrialFacts, WholeSweep
from store.tables import Job, Sweep, SweepTrial
from store.team import access, quotas
from store.team.callers import SERVICE, Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.job import JobState, Reason
from torchyard.contract.sweeps import SweepSpec, SweepState
from torchyard.contract.team import Visibility

MOST_OPEN = 100
"""Sweeps of one owner that have not ended: a controller looks at each of them in each pass."""
_LISTED = (
    *(Sweep.id, Sweep.owner, Sweep.name, Sweep.visibility, Sweep.method, Sweep.monitor, Sweep.mode, Sweep.state),
    *(Sweep.version, Sweep.reason_code, Sweep.reason_message, Sweep.reason_since, Sweep.total, Sweep.created_at),
    Sweep.finished_at,
)
"""What lists read of a sweep: its spec may take a megabyte."""
_MOST_AT_ONCE = Sweep.spec["max_parallel"].as_integer()
STARTED = Reason("running", "makes its trials as there is room for them")
_FROM: dict[SweepState, frozenset[SweepState]] = {
    SweepState.RUNNING: frozenset({SweepState.PAUSED, SweepState.FINISHED}),
    SweepState.PAUSED: frozenset({SweepState.RUNNING}),
    SweepState.CANCELLING: frozenset({SweepState.RUNNING, SweepState.PAUSED}),
    SweepState.FINISHED: frozenset({SweepState.RUNNING}),
    SweepState.CANCELLED: frozenset({SweepState.CANCELLING}),
    SweepState.FAILED: frozenset({SweepState.CANCELLING}),
}
"""From which states each may be entered."""


def document_of(spec: SweepSpec) -> dict[str, Any]:
    """Returns the sweep as JSON. Its points are JSON already: to copy 50,000 values takes 20 ms in one step."""
    document = spec.model_copy(update={"points": []}).model_dump(mode="json")
    return document | {"points": spec.points} if spec.points else document


def add(session: Session, new: NewSweep) -> Sweep:
    """Stores a sweep, of which `monitor` and `mode` are known. Raises KeyTaken, and as `check_room` does."""
    check_room(session, new.caller.name)
    spec, keyed = new.spec, new.keyed
    sweep_id = new_id("swp")
    values = {
        "id": sweep_id,
        "owner": new.caller.name,
        "name": spec.name,
        "visibility": spec.visibility or new.visibility,
        "spec": document_of(spec),
        "method": spec.method,
        "monitor": spec.monitor,
        "mode": spec.mode,
        "state": SweepState.RUNNING,
        "version": 1,
        "reason_code": STARTED.code,
        "reason_message": STARTED.message,
        "total": spec.size,
        "asked_to": 0,
        "next_number": 0,
        "idempotency_key": None if keyed is None else keyed.key,
        "fingerprint": None if keyed is None else keyed.fingerprint,
    }
    made = upsert(session, Sweep).on_conflict_do_nothing(index_elements=["owner", "idempotency_key"])
    if session.execute(made.returning(Sweep.id), values).first() is None:
        raise KeyTaken("a key was used at the same moment")
    wake(session)
    return session.get_one(Sweep, sweep_id)


def check_room(session: Session, owner: str) -> None:
    """Raises Conflict if the owner has as many sweeps that have not ended as one may have, and QuotaExceeded if the
    owner has stored as much as they may.

    Requests at the same moment may pass it together: a few more do no harm, and nobody has to wait.
    """
    query = select(func.count()).select_from(Sweep).where(is_open(), Sweep.owner == owner)
    if (count := session.scalar(query) or 0) >= MOST_OPEN:
        raise Conflict(
            f"{owner} has {count} sweeps that have not ended, and may have {MOST_OPEN}: wait for some, or cancel them"
        )
    quotas.check_written(session, owner)


def answered(session: Session, new: NewSweep) -> Sweep | None:
    """Returns the sweep that an earlier request with the same key has made. Raises IdempotencyMismatch."""
    return None if new.keyed is None else made_by(session, Sweep, new.keyed)


def get(session: Session, sweep_id: str, caller: Caller) -> Sweep:
    """Returns a sweep that the caller may read. Raises NotFound, also for what is no sweep's id."""
    if not is_id(sweep_id, "swp"):
        raise NotFound(f"there is no sweep {sweep_id[:100]!r}")
    found = session.scalars(select(Sweep).where(Sweep.id == sweep_id, access.readable(caller, Sweep))).first()
    if found is None:
        raise NotFound(f"there is no sweep {sweep_id}")
    return found


def job_named(session: Session, caller: Caller, name: str, ref: str) -> str:
    """Returns the job whose checkpoint `name`/`ref` is: `name` itself or, of a sweep's id and `best`, its best job.

    Raises NotFound.
    """
    if not is_id(name, "swp"):
        return name
    sweep = get(session, name, caller)
    found = trials.best_job(session, sweep) if ref == "best" else None
    if ref != "best":
        raise NotFound(f"sweep {name} has no checkpoint {ref[:100]!r}, only `best`")
    if found is None:
        raise NotFound(f"sweep {name} has no checkpoint with a value yet")
    return found


def lock(session: Session, sweep_id: str, caller: Caller = SERVICE) -> Sweep:
    """Returns a sweep that the caller may change, locked until the transaction ends: before any of its jobs.

    Raises Forbidden if the caller may only read it, and NotFound otherwise.
    """
    readable = get(session, sweep_id, caller)
    query = select(Sweep).where(Sweep.id == sweep_id, access.changeable(caller, Sweep)).with_for_update()
    found = session.scalars(query.execution_options(populate_existing=True)).first()
    if found is None:
        raise Forbidden(f"sweep {sweep_id} belongs to {readable.owner}: only its owner and administrators may do this")
    return found


def move(session: Session, sweep: Sweep, state: SweepState, *, reason: Reason, **values: Any) -> None:
    """Changes the state of a locked sweep. Raises Conflict if its state does not allow that."""
    if SweepState(sweep.state) not in _FROM[state]:
        raise Conflict(f"sweep {sweep.id} is {sweep.state}: it cannot become {state}")
    ended = now_us() if state.ended else None
    change(session, sweep, state=state, finished_at=ended, **_reason(reason), **values)
    if state.ended:
        sweep_ends.signal(session, sweep)
    wake(session)


def say(session: Session, sweep: Sweep, reason: Reason) -> None:
    """Stores another reason for the state of a locked sweep, if it is another one."""
    if sweep.reason_message != reason.message:
        change(session, sweep, **_reason(reason))


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


def listed(
    session: Session, where: SweepFilter, caller: Caller, *, limit: int, after: str | None = None
) -> list[SweepFacts]:
    """Returns sweeps that the caller may read, newest first; with `after` (an id), only older ones."""
    query = select(Sweep, _MOST_AT_ONCE).options(load_only(*_LISTED)).where(access.readable(caller, Sweep))
    query = query.order_by(Sweep.id.desc()).limit(limit)
    equal = {Sweep.name: where.name, Sweep.owner: where.owner}
    query = query.where(*(column == value for column, value in equal.items() if value is not None))
    if where.states:
        query = query.where(Sweep.state.in_(where.states))
    found = session.execute(query if after is None else query.where(Sweep.id < after)).all()
    counted = trials.counts(session, [sweep.id for sweep, _ in found])
    return [_facts(sweep, counted[sweep.id], most_at_once) for sweep, most_at_once in found]


def whole(session: Session, sweep: Sweep) -> WholeSweep:
    """Returns a sweep with its best trial."""
    facts = _facts(sweep, trials.counts(session, [sweep.id])[sweep.id], sweep.spec.get("max_parallel"))
    return WholeSweep(facts, spec_of(sweep), trials.best(session, sweep))


def wake(session: Session) -> None:
    """Has a controller look at the sweeps after the commit."""
    announcement_of(session).wake_controller()


def reason_of(sweep: Sweep) -> Reason:
    """Returns why a sweep is in its state."""
    return Reason(sweep.reason_code, sweep.reason_message)


def visibility_of(sweep: Sweep) -> Visibility:
    """Returns who may read a sweep and its jobs."""
    return cast("Visibility", sweep.visibility)


def spec_of(sweep: Sweep) -> SweepSpec:
    """Returns the spec of a sweep."""
    return _parsed(json.dumps(sweep.spec))


def jobs_of(session: Session, sweep_id: str) -> Sequence[str]:
    """Returns the ids of all jobs of a sweep, also of those that another one has gone on with."""
    return session.scalars(select(Job.id).where(Job.sweep_id == sweep_id).order_by(Job.id)).all()


def is_open() -> ColumnElement[bool]:
    """Returns the condition that a sweep has not ended."""
    return Sweep.state.in_([state for state in SweepState if not state.ended])


def trial_of(session: Session, sweep: Sweep, number: int) -> TrialFacts:
    """Returns a trial that is made. Raises NotFound."""
    found = trials.of_sweep(session, sweep, numbers=[number]) if 0 <= number < sweep.total else []
    if not found:
        raise NotFound(f"sweep {sweep.id} has no trial {number}" + (" yet" if 0 <= number < sweep.total else ""))
    return found[0]


def open_trials(session: Session, sweep_id: str) -> int:
    """Returns how many trials have not ended."""
    query = select(func.count()).where(SweepTrial.sweep_id == sweep_id, SweepTrial.outcome.is_(None))
    return session.execute(query).scalar_one()


@lru_cache(maxsize=8)  # a spec of a mebibyte takes ten of memory
def _parsed(written: str) -> SweepSpec:
    return SweepSpec.model_validate_json(written)


def _reason(reason: Reason) -> dict[str, Any]:
    return {"reason_code": reason.code, "reason_message": reason.message, "reason_since": now_us()}


def _facts(sweep: Sweep, counted: dict[JobState, int], most_at_once: int | None) -> SweepFacts:
    return SweepFacts(
        id=sweep.id,
        owner=sweep.owner,
        name=sweep.name,
        visibility=sweep.visibility,
        method=sweep.method,
        monitor=sweep.monitor,
        mode=sweep.mode,
        max_parallel=most_at_once,
        state=SweepState(sweep.state),
        version=sweep.version,
        reason_code=sweep.reason_code,
        reason_message=sweep.reason_message,
        reason_since=sweep.reason_since,
        total=sweep.total,
        created_at=sweep.created_at,
        finished_at=sweep.finished_at,
        counts=counted,
    )
