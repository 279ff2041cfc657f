"""Signals: what happened, written in the transaction in which it does, so that none is lost and none is invented."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, String, and_, bindparam, delete, func, insert, or_, select
from sqlalchemy.orm import Session

from store.db.database import Document, document, now_us
from store.db.prepared import Prepared
from store.tables import Base, Job, Signal
from torchyard.contract.notifications.kinds import LONGEST_TEXT, EventKind
from torchyard.contract.wire.text import printable

MOST_WAITING = 10_000
"""Signals of one user that wait at once. More are dropped: nobody makes messages of them."""

_TARGETS = Base.metadata.tables["notification_targets"]
_SIGNALS = Base.metadata.tables["signals"]
_TEXTS, _DOCUMENTS = ("kind", "owner", "visibility", "subject"), ("notify", "data")
_OF_TEAM = bindparam("visibility", type_=String()) == "team"
_OWN = _TARGETS.c.owner == bindparam("owner", type_=String())
_WANTED = (
    select(1)
    .where(or_(_OWN, and_(_TARGETS.c.scope == "all", _OF_TEAM)))
    .where(or_(_TARGETS.c.kinds.like(bindparam("like", type_=String())), bindparam("asked", type_=BigInteger()) == 1))
)
HAS_LISTENER = (
    select(1)
    .where(
        or_(
            _TARGETS.c.owner == bindparam("of_owner", type_=String()),
            and_(_TARGETS.c.scope == "all", bindparam("seen_by", type_=String()) == "team"),
        )
    )
    .exists()
)
"""The condition that somebody may be notified of a job at all: a column of what a change of its state returns.

Its parameters are `listener_values`: SQLite would take the job's columns for those of the target.
"""
_WAITING = select(_SIGNALS.c.id).where(_SIGNALS.c.owner == bindparam("owner", type_=String())).limit(MOST_WAITING)
_FEW = select(func.count()).select_from(_WAITING.subquery()).scalar_subquery() < MOST_WAITING
# One step of an index for each owner, however many signals they have.
_STEP = select(func.min(_SIGNALS.c.owner).label("owner")).cte("owners", recursive=True)
_NEXT = select(func.min(_SIGNALS.c.owner)).where(_SIGNALS.c.owner > _STEP.c.owner).scalar_subquery()
_EACH = _STEP.union_all(select(_NEXT).where(_STEP.c.owner.is_not(None)))
_OWNERS = select(_EACH.c.owner).where(_EACH.c.owner.is_not(None))
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# Built once: building a statement costs more than executing it, and every change of a job's state executes this.
_NEW = Prepared(
    insert(_SIGNALS).from_select(
        ["time", *_TEXTS, *_DOCUMENTS],
        select(
            now_us(),
            *(bindparam(name, type_=String()) for name in _TEXTS),
            *(bindparam(name, type_=Document()) for name in _DOCUMENTS),
        ).where(_WANTED.exists(), _FEW),
    )
)
_ANY = Prepared(select(_WANTED.exists()))


class SweepSubject(NamedTuple):
    """The sweep that something happened to."""

    id: str
    name: str
    owner: str
    visibility: str


def add(
    session: Session,
    kind: EventKind,
    *,
    job: Job | None = None,
    sweep: SweepSubject | None = None,
    worker: tuple[str, str] | None = None,
    data: Mapping[str, Any] = _NOTHING,
) -> None:
    """Stores that something happened to a job, a sweep or a worker, given by id and name.

    Stores nothing if no target can want it. `data` is JSON that goes into the messages: its texts are `brief`.
    """
    if _is_silent(job):
        return
    whose = _parameters(kind, job=job, sweep=sweep)
    subject, description = _describe(job, sweep, worker)
    notify = None if job is None else job.spec.get("notify")
    written = {"notify": None if notify is None else document(notify), "data": document({**description, **data})}
    _NEW.write(session, [{**whose, "kind": kind, "subject": subject, **written}])


def listener_values(job: Job) -> dict[str, str]:
    """Returns the parameters of `HAS_LISTENER`."""
    return {"of_owner": job.owner, "seen_by": job.visibility}


def add_state(session: Session, job: Job, kind: EventKind) -> None:
    """Stores that the job has entered the state that `kind` says, and why."""
    reason = {"code": job.reason_code, "message": brief(job.reason_message)}
    add(session, kind, job=job, data={"reason": reason})


def add_warnings(session: Session, job: Job, texts: Sequence[str]) -> None:
    """Stores that the job has warnings: one signal for all that come together, as a script may write thousands."""
    add(session, EventKind.JOB_WARNING, job=job, data={"text": brief(texts[0]), "more": len(texts) - 1})


def is_wanted(session: Session, kind: EventKind, *, job: Job | None = None, sweep: SweepSubject | None = None) -> bool:
    """Returns whether a target may want to know it. For what takes work to find out."""
    return not _is_silent(job) and bool(_ANY.read(session, _parameters(kind, job=job, sweep=sweep))[0][0])


def waiting_owners(session: Session) -> Sequence[str]:
    """Returns whose signals wait, `""` for those of workers. Reads as many rows as there are users with signals."""
    return session.scalars(_OWNERS).all()


def take(session: Session, owner: str, *, most: int) -> Sequence[Signal]:
    """Removes the oldest of the owner's signals that no other transaction takes, and returns them."""
    first = select(Signal).where(Signal.owner == owner).order_by(Signal.id).limit(most)
    signals = session.scalars(first.with_for_update(skip_locked=True)).all()
    if signals:
        gone = delete(Signal).where(Signal.id.in_([row.id for row in signals]))
        session.execute(gone, execution_options={"synchronize_session": False})
    return signals


def forget_all(session: Session) -> None:
    """Removes all signals: nobody is notified of them."""
    session.execute(delete(Signal), execution_options={"synchronize_session": False})


def brief(text: str) -> str:
    """Returns a text of a job as messages have it: one line, cut, without control characters."""
    line = printable(" ".join(text.split())).replace("\ufffd", "")
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"


def _is_silent(job: Job | None) -> bool:
    """Returns whether nobody is notified of the job: of a trial, only who is named.

    The end of its sweep says the rest.
    """
    return job is not None and job.sweep_id is not None and not job.spec.get("notify")


def _parameters(kind: EventKind, *, job: Job | None, sweep: SweepSubject | None = None) -> dict[str, Any]:
    """Returns what the condition reads: whose it is, and whether the job names targets that want this kind."""
    of = job or sweep
    on = ((job and job.spec.get("notify")) or {}).get("on")
    return {
        "owner": "" if of is None else of.owner,
        "visibility": "team" if of is None else of.visibility,
        "like": f"% {kind} %",
        "asked": int(on is not None and kind in on),
    }


def _describe(
    job: Job | None, sweep: SweepSubject | None, worker: tuple[str, str] | None
) -> tuple[str, dict[str, Any]]:
    """Returns the id of what it happened to, and what messages say of it."""
    if job is not None:
        of_job = {"trainer": job.trainer, "state": job.state, "attempt": job.attempt}
        of_job |= {} if job.sweep_id is None else {"sweep_id": job.sweep_id, "trial": job.trial}
        return job.id, {"job": {"id": job.id, "name": job.name, "owner": job.owner, **of_job}}
    if sweep is not None:
        return sweep.id, {"sweep": {"id": sweep.id, "name": sweep.name, "owner": sweep.owner}}
    assert worker is not None
    return worker[0], {"worker": {"id": worker[0], "name": brief(worker[1])}}
