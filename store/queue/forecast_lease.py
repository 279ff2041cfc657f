"""Who makes the estimates: one row. Only the database's clock decides about it."""

from sqlalchemy import ColumnElement, and_, bindparam, case, or_, select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.prepared import Prepared
from store.db.upsert import upsert
from store.queue.estimates_facts import Lease
from store.tables import ForecastLease

_FAR_AHEAD = 2
"""A lease of more than so many times its length was taken before the clock jumped back: it has expired."""
_READ = Prepared(
    select(ForecastLease.holder, ForecastLease.token, ForecastLease.until, now_us().label("now")).where(
        ForecastLease.id == bindparam("id")
    )
)


def look(session: Session, worker_id: str, *, lease_us: int) -> tuple[Lease | None, bool]:
    """Returns the worker's lease if at least half of its time is left, and whether `take` would return one."""
    row = _READ.first(session, {"id": 1})
    if row is None:
        return None, True
    left = row.until - row.now
    if row.holder != worker_id:
        return None, not 0 < left <= _FAR_AHEAD * lease_us
    is_fresh = lease_us // 2 <= left <= _FAR_AHEAD * lease_us
    return (Lease(worker_id, row.token) if is_fresh else None), True


def take(session: Session, worker_id: str, *, lease_us: int) -> Lease | None:
    """Renews the worker's lease, or takes a free or expired one; None if another worker holds it."""
    new = upsert(session, ForecastLease).values(id=1, holder=worker_id, token=1, until=now_us() + lease_us)
    is_own = ForecastLease.holder == worker_id
    is_free = or_(ForecastLease.until <= now_us(), ForecastLease.until > now_us() + _FAR_AHEAD * lease_us)
    statement = new.on_conflict_do_update(
        index_elements=["id"],
        set_={
            "holder": worker_id,
            "token": ForecastLease.token + case((is_own, 0), else_=1),
            "until": now_us() + lease_us,
        },
        where=or_(is_own, is_free),
    )
    token = session.scalar(statement.returning(ForecastLease.token))
    return None if token is None else Lease(worker_id, token)


def release(session: Session, lease: Lease) -> None:
    """Lets others take the lease at once, if it is still held."""
    session.execute(update(ForecastLease).where(_is(lease)).values(until=0))


def guard(session: Session, lease: Lease) -> int | None:
    """Locks the lease until the transaction ends. Returns the time by the database's clock; None if it is lost."""
    held = update(ForecastLease).where(_is(lease), ForecastLease.until > now_us())
    return session.scalar(held.values(token=lease.token).returning(now_us()))


def note_made(session: Session, *, made_at: int, after: int | None) -> None:
    """Stores when the newest estimates were made, and when the jobs further behind start at the earliest."""
    session.execute(update(ForecastLease).where(ForecastLease.id == 1).values(made_at=made_at, after=after))


def _is(lease: Lease) -> ColumnElement[bool]:
    return and_(ForecastLease.id == 1, ForecastLease.holder == lease.holder, ForecastLease.token == lease.token)
