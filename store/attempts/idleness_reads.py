"""Which jobs do not use their GPUs."""

from store.attempts import idleness
from store.attempts.idleness_facts import IdleFacts
from store.db.database import Snapshots


def find(store: Snapshots) -> list[IdleFacts]:
    """Returns the running jobs that may have to be warned, or stopped. Raises Unavailable."""
    with store.read() as session:
        return idleness.find(session)
