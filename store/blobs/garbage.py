"""Garbage: blobs of what was removed, such as checkpoints, bundles and artifacts. Others may still refer to them.

Blobs are shared, and a relay or an upload may be storing the same bytes again. So what is removed is told before: a
transaction that names a blob which was removed since it was published fails (`store.blobs.puts`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Delete, Update, delete, exists, func, select, true, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import column

from store.blobs.turns import take_turn
from store.db.database import in_us, now_us
from store.db.upsert import upsert
from store.tables import (
    Artifact,
    BlobHold,
    Bundle,
    Checkpoint,
    Garbage,
    InitialWeights,
    MediaPicture,
    ModelVersion,
    RemovedBlob,
)

REMOVAL = timedelta(minutes=1)
"""Who takes blobs removes them within this time, or leaves them to others."""
_REMEMBERED = timedelta(days=1)


@dataclass(frozen=True)
class Taken:
    """Blobs that one collector removes."""

    blobs: frozenset[str] = frozenset()
    removed_by: int = 0
    """When its time is over."""


def add(session: Session, listed: Iterable[list[dict[str, Any]]]) -> None:
    """Adds the blobs of removed checkpoints or versions of models, given by the `files` of each.

    Call it once in a transaction.
    """
    # All of them: other references are checked when they are collected, and may change until then.
    add_blobs(session, {str(file["sha256"]) for files in listed for file in files})


def add_blobs(session: Session, blobs: Iterable[str]) -> None:
    """Adds blobs, which may still be referred to. Call it once in a transaction."""
    # Always in one order: two transactions that wait for each other's rows would deadlock.
    left = sorted(set(blobs))
    if left:
        new = upsert(session, Garbage)
        # The update locks an existing row, so that a collector checks it after this transaction.
        new = new.on_conflict_do_update(index_elements=["sha256"], set_={"sha256": new.excluded.sha256})
        session.execute(new, [{"sha256": sha256} for sha256 in left])


def is_any(session: Session) -> bool:
    """Returns whether there is any garbage."""
    return session.scalars(select(Garbage.sha256).limit(1)).first() is not None


def take_unreferenced(session: Session, *, limit: int) -> Taken:
    """Returns the next blobs to remove, within `REMOVAL`. Deletes the rows of those that something refers to.

    None while somebody copies all blobs. Those that another one has taken are left to it until its time is over.
    """
    take_turn(session)
    now = session.scalars(select(now_us())).one()
    _execute(session, delete(BlobHold).where(BlobHold.held_until <= now))
    if session.scalars(select(BlobHold.id).limit(1)).first() is not None:
        return Taken()
    _execute(session, delete(RemovedBlob).where(RemovedBlob.removed_by < now - in_us(_REMEMBERED)))
    others = exists().where(RemovedBlob.sha256 == Garbage.sha256, RemovedBlob.removed_by >= now)
    next_ones = select(Garbage.sha256).where(~others).order_by(Garbage.sha256).limit(limit)
    left = set(session.scalars(next_ones.with_for_update(skip_locked=True)))
    used = _referred_to(session, left) if left else left
    if used:
        _execute(session, delete(Garbage).where(Garbage.sha256.in_(used)))
    taken = Taken(frozenset(left - used), removed_by=now + in_us(REMOVAL))
    if taken.blobs:
        new = upsert(session, RemovedBlob)
        new = new.on_conflict_do_update(index_elements=["sha256"], set_={"removed_by": new.excluded.removed_by})
        session.execute(new, [{"sha256": sha256, "removed_by": taken.removed_by} for sha256 in taken.blobs])
    return taken


def finish(session: Session, taken: Taken, *, removed: Collection[str]) -> None:
    """Notes which blobs were removed, and leaves the others to whoever takes them next."""
    mine = RemovedBlob.removed_by == taken.removed_by  # another one may have taken them after the time was over
    held = select(RemovedBlob.sha256).where(RemovedBlob.sha256.in_(removed), mine)
    _execute(session, delete(Garbage).where(Garbage.sha256.in_(held)))
    _execute(session, delete(RemovedBlob).where(RemovedBlob.sha256.in_(taken.blobs - set(removed)), mine))
    _execute(session, update(RemovedBlob).where(RemovedBlob.sha256.in_(removed), mine).values(removed_by=now_us()))


def _referred_to(session: Session, wanted: Collection[str]) -> set[str]:
    """Returns those of `wanted` that a row refers to, in one pass over all that lists files."""
    single = (
        session.scalars(select(table.sha256).where(table.sha256.in_(wanted)).distinct())
        for table in (Bundle, Artifact, MediaPicture)
    )
    listed = (_among_files(session, table, wanted) for table in (Checkpoint, InitialWeights, ModelVersion))
    return set[str]().union(*single, *listed)


def _among_files(
    session: Session, table: type[Checkpoint | InitialWeights | ModelVersion], wanted: Collection[str]
) -> Iterable[str]:
    if _is_postgresql(session):
        file = func.jsonb_array_elements(table.files).table_valued(column("value", JSONB))
        sha256 = file.c.value["sha256"].astext
    else:
        file = func.json_each(table.files).table_valued("value")
        sha256 = func.json_extract(file.c.value, "$.sha256")
    return session.scalars(select(sha256).select_from(table).join(file, true()).where(sha256.in_(wanted)).distinct())


def _execute(session: Session, statement: Delete | Update) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})


def _is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"
