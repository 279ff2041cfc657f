"""What the jobs of an owner take. Raises Unavailable."""

from store.db.database import Snapshots
from store.facts.folders import DiskUse
from store.rows import folders


def used_by(store: Snapshots, owner: str, *, limit: int) -> DiskUse:
    """Does what `store.rows.folders.used_by` does."""
    with store.read() as session:
        return folders.used_by(session, owner, limit=limit)
