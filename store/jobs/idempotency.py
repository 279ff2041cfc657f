"""Idempotency keys: a request that is sent twice makes one job, sweep or schedule, and is answered by it twice."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from sqlalchemy import bindparam, delete, select, tuple_, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.upsert import upsert
from store.jobs.submission import KeyedRequest
from store.tables import IdempotencyKey, Schedule, Sweep
from torchyard.contract.errors import Conflict, IdempotencyMismatch

Keeper = TypeVar("Keeper", Sweep, Schedule)
"""What keeps the key of its request in its own row."""

KEPT_FOR = timedelta(hours=24)
_KEPT_US = KEPT_FOR // timedelta(microseconds=1)
_DELETED_PER_CALL = 100
# Built once, as most submissions have a key.
_KEPT = select(IdempotencyKey).where(IdempotencyKey.created_at > now_us() - _KEPT_US)
_OF_ONE = _KEPT.where(IdempotencyKey.owner == bindparam("of"), IdempotencyKey.key == bindparam("named"))
# Rows that another transaction is deleting are skipped: two that wait for each other's rows would deadlock.
_OLD = (
    select(IdempotencyKey.owner, IdempotencyKey.key)
    .where(IdempotencyKey.created_at <= now_us() - _KEPT_US)
    .order_by(IdempotencyKey.created_at)
    .limit(_DELETED_PER_CALL)
    .with_for_update(skip_locked=True)
)
_DELETE_OLD = (
    delete(IdempotencyKey)
    .where(tuple_(IdempotencyKey.owner, IdempotencyKey.key).in_(_OLD))
    .execution_options(synchronize_session=False)
)


class KeyTaken(Conflict):
    """Another transaction has stored the key. Roll back, and return what that has made."""


def find_job(session: Session, request: KeyedRequest) -> str | None:
    """Returns the job that a request with the key made within 24 hours. Raises IdempotencyMismatch."""
    row = find_keys(session, [request]).get(request.identity)
    return None if row is None else job_of(request, row)


def find_keys(session: Session, requests: Collection[KeyedRequest]) -> dict[tuple[str, str], IdempotencyKey]:
    """Returns what is stored for the keys of requests, by owner and key, for `job_of`. The database's clock decides."""
    keys = sorted({request.identity for request in requests})
    if not keys:
        return {}
    if len(keys) == 1:
        rows = session.scalars(_OF_ONE, {"of": keys[0][0], "named": keys[0][1]})
    else:
        rows = session.scalars(_KEPT.where(tuple_(IdempotencyKey.owner, IdempotencyKey.key).in_(keys)))
    return {(row.owner, row.key): row for row in rows}


def job_of(request: KeyedRequest, row: IdempotencyKey) -> str:
    """Returns the job that is stored for the request's key. Raises IdempotencyMismatch if another request has it."""
    if row.fingerprint != request.fingerprint:
        raise mismatch(request, f"job {row.job_id}")
    return row.job_id


def mismatch(request: KeyedRequest, made: str) -> IdempotencyMismatch:
    """Returns the error of a request whose key came with another one before, which made this."""
    return IdempotencyMismatch(
        f"the key {request.key!r} came with another request before, which made {made}: "
        "send a new key with a new request"
    )


def store_keys(session: Session, made: Sequence[tuple[KeyedRequest, str]]) -> None:
    """Stores different keys with the jobs that they made, in the transaction that creates those.

    Raises KeyTaken if another transaction has stored one of the keys.
    """
    if not made:
        return
    new = upsert(session, IdempotencyKey)
    names = ("fingerprint", "status", "location", "job_id")
    statement = new.on_conflict_do_update(
        index_elements=["owner", "key"],
        set_={**{name: new.excluded[name] for name in names}, "created_at": now_us()},
        where=IdempotencyKey.created_at <= now_us() - _KEPT_US,
    ).returning(IdempotencyKey.key)
    rows = [
        {"owner": request.owner, "key": request.key, "fingerprint": request.fingerprint}
        | {"status": 201, "location": f"/v1/jobs/{job_id}", "job_id": job_id}
        for request, job_id in made
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
    key_row = session.scalars(select(table).where(*of_key)).first()
    if key_row is not None and key_row.fingerprint != keyed.fingerprint:
        raise mismatch(keyed, f"{table.__name__.lower()} {key_row.id}")
    return key_row


def delete_old(session: Session) -> None:
    """Deletes some old keys. Call it last: a transaction that waited with them deleted could deadlock."""
    session.execute(_DELETE_OLD)
