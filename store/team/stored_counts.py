"""How many bytes each owner has stored, as the database keeps it: nothing that is stored is read."""

from typing import NamedTuple

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from store.tables import StoredCount

FREE_WRITTEN_BYTES = 1 << 20
"""Of specs, points, notes, cards and preferences together: only what an owner has beyond counts, so that a quota of a
few bytes forbids files, and not each submission."""
_MOST_ROWS = 8
"""The most rows of an owner that are left as they are."""
_SUMMED = 10_000
"""The most rows that one call adds up."""


class Stored(NamedTuple):
    """Bytes of one owner."""

    files: int
    written: int

    @property
    def counted(self) -> int:
        """How many of them a quota counts."""
        return self.files + max(0, self.written - FREE_WRITTEN_BYTES)


def count(session: Session, owner: str | None = None) -> Stored:
    """Returns how many bytes an owner has stored, or without one, all of them together."""
    query = select(func.sum(StoredCount.files), func.sum(StoredCount.written))
    files, written = session.execute(query if owner is None else query.where(StoredCount.owner == owner)).one()
    return Stored(int(files or 0), int(written or 0))


def add_up(session: Session) -> bool:
    """Replaces rows of an owner by their sum, where there are many. Any number of workers may do this. Returns whether
    there may be more.
    """
    many = select(StoredCount.owner).group_by(StoredCount.owner).having(func.count() > _MOST_ROWS)
    some = select(StoredCount.id).where(StoredCount.owner.in_(many)).order_by(StoredCount.id).limit(_SUMMED)
    # Rows that another worker adds up are skipped: two workers that wait for each other's rows would deadlock.
    ids = some.with_for_update(skip_locked=True)
    columns = (StoredCount.owner, StoredCount.files, StoredCount.written)
    gone = session.execute(delete(StoredCount).where(StoredCount.id.in_(ids)).returning(*columns)).all()
    sums: dict[str, Stored] = {}
    for owner, files, written in gone:
        known = sums.get(owner, Stored(0, 0))
        sums[owner] = Stored(known.files + files, known.written + written)
    rows = [{"owner": owner, **stored._asdict()} for owner, stored in sums.items() if any(stored)]
    if rows:
        session.execute(insert(StoredCount), rows)
    return len(gone) == _SUMMED
