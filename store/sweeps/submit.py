"""Submits sweeps, and adds trials to them."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.db.upsert import upsert
from store.ids import new_id
from store.jobs import submit as submissions
from store.jobs.idempotency import made_by
from store.jobs.submission import Submission
from store.store import Store
from store.sweeps import listing, sweeps
from store.sweeps.facts import NewSweep
from store.tables import Sweep
from store.team import audit, quotas
from store.team.callers import Caller
from torchyard.contract.errors import Conflict
from torchyard.contract.spec.spec import Spec
from torchyard.contract.sweeps.points import extended
from torchyard.contract.sweeps.spec import SweepExtension, SweepSpec, SweepState
from torchyard.contract.sweeps.views import SweepView

MOST_OPEN = 100
"""Sweeps of one owner that have not ended: a controller looks at each of them in each pass."""
_NAMES = frozenset({"after", "init_from"})
"""Keys of a job spec whose names mean what they do now, for all trials."""
_EXTENDABLE = (SweepState.RUNNING, SweepState.PAUSED, SweepState.FINISHED)


def submit(session: Session, new: NewSweep, first: Spec) -> tuple[SweepView, bool]:
    """Stores a sweep, of which `first` is the job spec of trial 0. Returns it, and whether it was there before.

    It was, if an earlier request with the same key has made it. The weights and jobs that its job spec names in
    `init_from` and `after` are those of this moment for all trials. Raises IdempotencyMismatch, what
    `store.jobs.submit.check` does, Conflict if the owner has as many sweeps that have not ended as one may have,
    and QuotaExceeded if the owner has stored as much as they may.
    """
    if new.keyed is not None and (known := made_by(session, Sweep, new.keyed)) is not None:
        return listing.describe(session, known), True
    checked = submissions.check(session, Submission(first, new.caller, new.visibility))
    named = checked.spec.model_dump(mode="json", include={*_NAMES.intersection(new.spec.job)})
    spec = new.spec.model_copy(update={"job": {**new.spec.job, **named}})
    while (sweep := add(session, new, spec)) is None:  # another request with the same key was faster
        assert new.keyed is not None
        if (known := made_by(session, Sweep, new.keyed)) is not None:
            return listing.describe(session, known), True
    audit.add(session, new.caller, "sweep.submit", sweep.id)
    return listing.describe(session, sweep), False


def extend(store: Store, sweep_id: str, more: SweepExtension, *, caller: Caller) -> SweepView:
    """Adds trials to a sweep, or changes how many run at once. One that has finished begins again.

    The job specs of points are not looked at: one that is wrong is a failed trial. What the sweep becomes is worked
    out between two transactions, as a long one takes a while: if the sweep has changed meanwhile, once more.

    Raises Conflict for one that was cancelled or has failed, or if the owner has as many sweeps that have not ended as
    one may have; InvalidSpec for what cannot be added; QuotaExceeded, Unavailable, NotFound and Forbidden.
    """
    while True:
        with store.read() as session:
            sweep = sweeps.find(session, sweep_id, caller)
            spec, version = sweeps.read_spec(sweep), sweep.version
        wider = extended(spec, more)
        with store.write("sweeps") as session:
            sweep = sweeps.lock(session, sweep_id, caller)
            if sweep.version == version:
                return _widen(session, sweep, wider, caller)


def add(session: Session, new: NewSweep, spec: SweepSpec) -> Sweep | None:
    """Stores a sweep, of which `monitor` and `mode` are known; None if there is one with the same key.

    Raises Conflict and QuotaExceeded as `submit` does.
    """
    _check_room(session, new.caller.name)
    keyed, sweep_id = new.keyed, new_id("swp")
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
        "reason_code": sweeps.STARTED.code,
        "reason_message": sweeps.STARTED.message,
        "total": spec.size,
        "asked_to": 0,
        "next_number": 0,
        "idempotency_key": None if keyed is None else keyed.key,
        "fingerprint": None if keyed is None else keyed.fingerprint,
    }
    statement = upsert(session, Sweep).on_conflict_do_nothing(index_elements=["owner", "idempotency_key"])
    if session.execute(statement.returning(Sweep.id), values).first() is None:
        return None
    sweeps.wake(session)
    return session.get_one(Sweep, sweep_id)


def document_of(spec: SweepSpec) -> dict[str, Any]:
    """Returns the sweep as JSON. Its points are JSON already: to copy 50,000 values takes 20 ms in one step."""
    document = spec.model_copy(update={"points": []}).model_dump(mode="json")
    return document | {"points": spec.points} if spec.points else document


def _widen(session: Session, sweep: Sweep, wider: SweepSpec, caller: Caller) -> SweepView:
    if sweep.state not in _EXTENDABLE:
        raise Conflict(f"sweep {sweep.id} is {sweep.state}: it cannot be extended; submit another one")
    sweeps.change(session, sweep, spec=document_of(wider), total=wider.size)
    if sweep.total > sweep.next_number:
        quotas.check_written(session, sweep.owner)
    if sweep.state == SweepState.FINISHED and sweep.total > sweep.next_number:
        _check_room(session, sweep.owner)
        sweeps.move(session, sweep, SweepState.RUNNING, reason=sweeps.STARTED)
    sweeps.wake(session)
    audit.add(session, caller, "sweep.extend", sweep.id)
    return listing.describe(session, sweep)


def _check_room(session: Session, owner: str) -> None:
    """Raises Conflict if the owner has as many sweeps that have not ended as one may have, and QuotaExceeded if the
    owner has stored as much as they may.

    Requests at the same moment may pass it together: a few more do no harm, and nobody has to wait.
    """
    query = select(func.count()).select_from(Sweep).where(sweeps.is_open(), Sweep.owner == owner)
    if (count := session.scalar(query) or 0) >= MOST_OPEN:
        raise Conflict(f"{owner} has {count} unfinished sweeps; the maximum is {MOST_OPEN}: wait, or cancel some")
    quotas.check_written(session, owner)
