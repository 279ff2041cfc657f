"""Idempotency keys: a request that is sent twice creates one job and gets the same answer twice."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sqlalchemy import delete, select, tuple_, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.upsert import upsert
from store.jobs.submission_facts import KeyedRequest
from store.tables import IdempotencyKey, Schedule, Sweep
from torchyard.contract.errors import Conflict, IdempotencyMismatch

Keeper = TypeVar("Keeper", Sweep, Schedule)
"""What keeps the key of its request in its own row."""

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
    found = find_answers(session, [request])
    return answer_of(request, found[request.owner, request.key]) if found else None


def find_answers(session: Session, requests: Collection[KeyedRequest]) -> dict[tuple[str, str], IdempotencyKey]:
    """Returns what is stored for the keys of requests, by owner and key, for `answer_of`."""
    keys = sorted({(request.owner, request.key) for request in requests})
    query = select(IdempotencyKey).where(IdempotencyKey.created_at > now_us() - _KEPT_US)
    if len(keys) == 1:
        query = query.where(IdempotencyKey.owner == keys[0][0], IdempotencyKey.key == keys[0][1])
    else:
        query = query.where(tuple_(IdempotencyKey.owner, IdempotencyKey.key).in_(keys))
    return {(row.owner, row.key): row for row in session.scalars(query)} if keys else {}


def answer_of(request: KeyedRequest, row: IdempotencyKey) -> Answer:
    """Returns the answer that is stored for the request's key. Raises IdempotencyMismatch if another one has it."""
    if row.fingerprint != request.fingerprint:
        raise mismatch(request, f"job {row.job_id}")
    return Answer(job_id=row.job_id, status=row.status, location=row.location)


def mismatch(request: KeyedRequest, made: str) -> IdempotencyMismatch:
    """Returns the error of a request whose key came with another one before, which made this."""
    return IdempotencyMismatch(
        f"the key {request.key!r} came with another request before, which made {made}: "
        "send a new key with a new request"
    )


def store_answer(session: Session, request: KeyedRequest, answer: Answer) -> None:
    """Stores the answer in the transaction that creates its job. Raises KeyTaken."""
    store_answers(session, [(request, answer)])


def store_answers(session: Session, made: Sequence[tuple[KeyedRequest, Answer]]) -> None:
    """Stores answers of different keys. Raises KeyTaken if another transaction has one of the keys."""
    new = upsert(session, IdempotencyKey)
    names = ("fingerprint", "status", "location", "job_id")
    statement = new.on_conflict_do_update(
        index_elements=["owner", "key"],
        set_={**{name: new.excluded[name] for name in names}, "created_at": now_us()},
        where=IdempotencyKey.created_at <= now_us() - _KEPT_US,
    ).returning(IdempotencyKey.key)
    rows = [
        {"owner": request.owner, "key": request.key, "fingerprint": request.fingerprint}
        | {"status": answer.status, "location": answer.location, "job_id": answer.job_id}
        for request, answer in made
    ]
    # In one order: two transactions that wait for each other's keys would deadlock.
    rows.sort(key=lambda row: (row["owner"], row["key"]))
    if len(session.execute(statement, rows if len(rows) > 1 else rows[0]).all()) < len(rows):
        raise KeyTaken("a key was used at the same moment")


def made_by(session: Session, table: type[Keeper], keyed: KeyedRequest) -> Keeper | None:
    """Returns what an earlier request with the key has made, if its row keeps its key. Raises IdempotencyMismatch.

    A row that has kept its key for 24 hours forgets it: the key may make another one.
    """
    of_key = table.owner == keyed.owner, table.idempotency_key == keyed.key
    old = update(table).where(*of_key, table.created_at <= now_us() - _KEPT_US)
    session.execute(old.values(idempotency_key=None, fingerprint=None))
    found = session.scalars(select(table).where(*of_key)).first()
    if found is not None and found.fingerprint != keyed.fingerprint:
        raise mismatch(keyed, f"{table.__name__.lower()} {found.id}")
    return found


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
