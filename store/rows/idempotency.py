"""Idempotency keys: a request that is sent twice creates one job and gets the same answer twice."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.tables import IdempotencyKey
from store.db.upsert import upsert
from store.facts.submission import KeyedRequest
from torchyard.contract.errors import Conflict, IdempotencyMismatch

KEPT_FOR = timedelta(hours=24)
_KEPT_US = KEPT_FOR // timedelta(microseconds=1)
_DELETED_PER_CALL = 100


@dataclass(frozen=True)
class Answer:
    """The answer to a request that created a job. Its body is the job as it is now."""

    job_id: str
    status: int
    location: str


class KeyTaken(Conflict):
    """Another transaction has stored an answer for the key. Roll back, and return that answer."""


def find_answer(session: Session, request: KeyedRequest) -> Answer | None:
    """Returns the answer stored within 24 hours, by the database's clock. Raises IdempotencyMismatch."""
    query = select(IdempotencyKey).where(
        IdempotencyKey.owner == request.owner,
        IdempotencyKey.key == request.key,
        IdempotencyKey.created_at > now_us() - _KEPT_US,
    )
    row = session.scalars(query).first()
    if row is None:
        return None
    if row.fingerprint != request.fingerprint:
        raise IdempotencyMismatch(
            f"the key {request.key!r} came with another request before, which made job {row.job_id}: "
            "send a new key with a new request"
        )
    return Answer(job_id=row.job_id, status=row.status, location=row.location)


def store_answer(session: Session, request: KeyedRequest, answer: Answer) -> None:
    """Stores the answer in the transaction that creates its job. Raises KeyTaken.

    Several are stored in the order of their owners and keys, as two transactions would deadlock otherwise.
    """
    values = {
        "fingerprint": request.fingerprint,
        "status": answer.status,
        "location": answer.location,
        "job_id": answer.job_id,
        "created_at": now_us(),
    }
    stored = session.execute(
        upsert(session, IdempotencyKey)
        .values(owner=request.owner, key=request.key, **values)
        .on_conflict_do_update(
            index_elements=["owner", "key"],
            set_=values,
            where=IdempotencyKey.created_at <= now_us() - _KEPT_US,
        )
        .returning(IdempotencyKey.key)
    ).first()
    if stored is None:
        raise KeyTaken(f"the key {request.key!r} was used at the same moment")


def delete_old(session: Session) -> None:
    """Deletes some old answers. Call it last: a transaction that waited with them deleted could deadlock."""
    # Rows that another transaction is deleting are skipped: two that wait for each other's rows would deadlock.
    old = (
        select(IdempotencyKey.owner, IdempotencyKey.key)
        .where(IdempotencyKey.created_at <= now_us() - _KEPT_US)
        .order_by(IdempotencyKey.created_at)
        .limit(_DELETED_PER_CALL)
        .with_for_update(skip_locked=True)
    )
    session.execute(
        delete(IdempotencyKey)
        .where(tuple_(IdempotencyKey.owner, IdempotencyKey.key).in_(old))
        .execution_options(synchronize_session=False)
    )
