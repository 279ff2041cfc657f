"""What the page keeps for a user: one JSON document."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.upsert import upsert
from store.tables import Preferences


def put(session: Session, owner: str, document: Mapping[str, Any]) -> None:
    """Stores the document in place of the one before."""
    values = {"document": dict(document), "updated_at": now_us()}
    insert = upsert(session, Preferences).values(owner=owner, **values)
    session.execute(insert.on_conflict_do_update(index_elements=[Preferences.owner], set_=values))


def of(session: Session, owner: str) -> Mapping[str, Any]:
    """Returns the user's document. It is empty until one is stored."""
    found = session.scalar(select(Preferences.document).where(Preferences.owner == owner))
    return found or {}
