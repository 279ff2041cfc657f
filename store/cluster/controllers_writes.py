"""What a controller tells of itself."""

from store.cluster import controllers
from store.store import Store


def report(store: Store) -> None:
    """Stores that a controller does its duties now. Raises Unavailable."""
    with store.write("heartbeat") as session:
        controllers.report(session)
