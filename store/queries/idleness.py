"""Which jobs do not use their GPUs."""

from store.db.database import Snapshots
from store.facts.idleness import IdleFacts
from store.rows import idleness


def find(store: Snapshots) -> list[IdleFacts]:
    """Returns the running jobs that may have to be warned, or stopped. Raises Unavailable."""
    with store.read() as session:
        return idleness.find(session)
