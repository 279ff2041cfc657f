"""Garbage: blobs of what was removed, such as checkpoints, bundles and artifacts. Others may still refer to them.

Blobs are shared, and a relay or an upload may be storing the same bytes again. They are checked only while none of them
is between storing a blob and committing the row that refers to it.
"""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Delete, delete, func, select, true
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import column

from store.db.upsert import upsert
from store.tables import Artifact, Bundle, Checkpoint, Garbage, InitialWeights, MediaPicture, ModelVersion


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


def exists(session: Session) -> bool:
    """Returns whether there is any garbage."""
    return session.scalars(select(Garbage.sha256).limit(1)).first() is not None


def take_unreferenced(session: Session, *, limit: int) -> set[str]:
    """Returns the next blobs to remove. Deletes the rows of those that something refers to."""
    next_ones = select(Garbage.sha256).order_by(Garbage.sha256).limit(limit).with_for_update()
    left = set(session.scalars(next_ones))
    used = _referred_to(session, left) if left else left
    if used:
        _execute(session, delete(Garbage).where(Garbage.sha256.in_(used)))
    return left - used


def remove(session: Session, removed: Collection[str]) -> None:
    """Deletes the rows of removed blobs."""
    _execute(session, delete(Garbage).where(Garbage.sha256.in_(removed)))


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


def _execute(session: Session, statement: Delete) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})


def _is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"
