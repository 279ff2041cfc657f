"""When a controller last did its duties. One row says it, however many there are."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.tables import Service


def report(session: Session) -> None:
    """Stores that a controller does its duties now."""
    session.execute(update(Service).values(controller_seen_at=now_us()))


def age(session: Session) -> int | None:
    """Returns the microseconds since a controller did its duties; None if none ever has."""
    row = session.execute(select(Service.controller_seen_at, now_us())).first()
    return None if row is None or not row[0] else row[1] - row[0]
