"""What the jobs of an owner take. Raises Unavailable."""

from store.attempts import folders
from store.attempts.folders_facts import DiskUse
from store.db.database import Snapshots


def used_by(store: Snapshots, owner: str, *, limit: int) -> DiskUse:
    """Does what `store.attempts.folders.used_by` does."""
    with store.read() as session:
        return folders.used_by(session, owner, limit=limit)
