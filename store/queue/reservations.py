"""Kept places. Each is a worker's devices of one kind, and is kept for at most one waiting job, and a job has one.

A place is given to a job under the lock on its worker's row, so that a claim under this lock knows for whom the place
is kept. It may be taken from a job without: that forbids no claim.
"""

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select, tuple_, update
from sqlalchemy.orm import Session

from scheduling import snapshot
from scheduling.snapshot import Kind, Place
from store.announcement import QUEUE, announcement_of
from store.db.prepared import Prepared
from store.db.upsert import upsert
from store.tables import Attempt, Job, Reservation, Worker
from torchyard.contract.states import JobState

Runs = tuple[str, str]
"""The id of a job, and that of the worker on which it runs."""


@dataclass(frozen=True)
class Change:
    """For whom a place is kept from now on, if it is still as it was `seen`."""

    worker_id: str
    kind: Kind
    seen: int | None
    """The version of its reservation; None: it was kept for nobody."""
    job_id: str | None
    """None: for nobody."""
    due: int = 0
    bound: int = 0
    since: int = 0

    @property
    def place(self) -> Place:
        return self.worker_id, self.kind


_KEPT = Prepared(
    select(
        Reservation.worker_id,
        Reservation.kind,
        Reservation.job_id,
        Job.owner,
        Reservation.due,
        Reservation.bound,
        Reservation.since,
        Reservation.version,
    )
    .join(Job, Job.id == Reservation.job_id)
    .order_by(Reservation.worker_id, Reservation.kind)
)
_OF_PLACE = Prepared(
    select(Reservation.job_id, Reservation.version).where(
        Reservation.worker_id == bindparam("worker"), Reservation.kind == bindparam("of_kind")
    )
)


def kept_places(session: Session) -> list[snapshot.Reservation]:
    """Returns the places that are kept for jobs, by worker and kind."""
    return [snapshot.Reservation(*row) for row in _KEPT.rows(session)]


def changes(seen: Iterable[snapshot.Reservation], wanted: Iterable[snapshot.Reservation]) -> list[Change]:
    """Returns what turns the reservations that were `seen` into the `wanted` ones, by place."""
    before = {kept.place: kept for kept in seen}
    after = {kept.place: kept for kept in wanted}
    changed: list[Change] = []
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place), after.get(place)
        version = None if old is None else old.version
        if new is None:
            changed.append(Change(*place, version, None))
        elif old is None or (old.job_id, old.due, old.bound) != (new.job_id, new.due, new.bound):
            changed.append(Change(*place, version, new.job_id, new.due, new.bound, new.since))
    return changed


def reserve(session: Session, changes: Sequence[Change], *, known: Set[Runs]) -> dict[Place, int] | None:
    """Makes all `changes`, at most one of a place, or none and returns None if anything is not as it was.

    Returns the versions of the reservations that were given to jobs, by their places.

    Each place is as it was seen. Who gets one waits and has no other, on a worker that does not drain, and on which no
    job runs but the `known` ones: another would make the times wrong.
    """
    given = [change for change in changes if change.job_id is not None]
    job_ids = sorted({str(change.job_id) for change in given})
    offering = {change.worker_id for change in given}
    if not _lock_offering(session, changes) >= offering or not _running_on(session, offering) <= known:
        return None
    if len(job_ids) < len(given) or _lock_waiting(session, job_ids) != len(job_ids):
        return None
    among = tuple_(Reservation.worker_id, Reservation.kind).in_([change.place for change in changes])
    locked = _lock_rows(session, among)
    if any(_version(locked.get(change.place)) != change.seen for change in changes):
        return None
    if session.scalar(select(Reservation.job_id).where(Reservation.job_id.in_(job_ids), ~among).limit(1)) is not None:
        return None
    _free(session, among)  # all of them first: those who have one may be given another
    versions = {change.place: _give(session, change) for change in given}
    announcement_of(session).mark_changed(QUEUE)
    return versions


def version_of(session: Session, worker_id: str, kind: str) -> int | None:
    """Returns the version of the place's reservation; None if it is kept for nobody.

    Under a lock on the worker's row, nobody else gets the place until the end of the transaction.
    """
    return _version(_OF_PLACE.first(session, {"worker": worker_id, "of_kind": kind}))


def free_place_of(session: Session, job_id: str, *, starts_on: str | None = None) -> None:
    """Keeps no place for the job any more: it does not wait. `starts_on`: the worker that has just claimed it."""
    _free(session, Reservation.job_id == job_id, claimed_by=starts_on)


def free_places_on(session: Session, worker_ids: Collection[str]) -> None:
    """Keeps no place on these workers any more."""
    _free(session, Reservation.worker_id.in_(worker_ids))


def _lock_offering(session: Session, changes: Iterable[Change]) -> set[str]:
    """Locks the workers, and returns those that do not drain."""
    ids = {change.worker_id for change in changes}
    query = select(Worker.id, Worker.drain_requested_at).where(Worker.id.in_(ids))
    rows = session.execute(query.order_by(Worker.id).with_for_update(key_share=True))
    return {row.id for row in rows if row.drain_requested_at is None}


def _running_on(session: Session, worker_ids: Collection[str]) -> set[Runs]:
    """Returns the jobs that run on these workers."""
    query = select(Attempt.job_id, Attempt.worker_id).where(Attempt.ended_at.is_(None))
    return {(row.job_id, row.worker_id) for row in session.execute(query.where(Attempt.worker_id.in_(worker_ids)))}


def _lock_waiting(session: Session, job_ids: Sequence[str]) -> int:
    """Locks the jobs, and returns how many of them wait."""
    query = select(Job.state, Job.not_before).where(Job.id.in_(job_ids)).order_by(Job.id).with_for_update()
    return sum(row.state == JobState.QUEUED and row.not_before is None for row in session.execute(query))


def _lock_rows(session: Session, which: ColumnElement[bool]) -> dict[tuple[str, str], Reservation]:
    query = select(Reservation).where(which).order_by(Reservation.worker_id, Reservation.kind).with_for_update()
    rows = session.scalars(query.execution_options(populate_existing=True))
    return {(row.worker_id, row.kind): row for row in rows}


def _version(row: Any) -> int | None:
    return None if row is None or row.job_id is None else row.version


def _free(session: Session, which: ColumnElement[bool], *, claimed_by: str | None = None) -> None:
    freed = session.execute(
        update(Reservation)
        .where(which, Reservation.job_id.is_not(None))
        .values(job_id=None, version=Reservation.version + 1)
        .returning(Reservation.worker_id),
        execution_options={"synchronize_session": False},
    ).all()
    if any(row.worker_id != claimed_by for row in freed):  # who has claimed plans again anyway
        announcement_of(session).wake_workers()  # others may start there


def _give(session: Session, change: Change) -> int:
    """Gives the place to the job, and returns the version of its reservation."""
    new = upsert(session, Reservation).values(
        worker_id=change.worker_id,
        kind=change.kind,
        job_id=change.job_id,
        due=change.due,
        bound=change.bound,
        since=change.since,
        version=1,
    )
    given = {
        "job_id": change.job_id,
        "due": change.due,
        "bound": change.bound,
        "since": change.since,
        "version": Reservation.version + 1,
    }
    statement = new.on_conflict_do_update(index_elements=["worker_id", "kind"], set_=given)
    return session.execute(statement.returning(Reservation.version)).scalar_one()
