"""What owners had of the devices. All of them raise Unavailable."""

from store.cluster import usage_rows
from store.cluster.usage_facts import UsageFacts
from store.cluster.usage_rows import Asked, Key
from store.db.database import Snapshots
from store.pages import FactPage

__all__ = ["Asked", "Key", "page"]


def page(store: Snapshots, asked: Asked, *, after: Key | None, limit: int) -> FactPage[UsageFacts]:
    """Returns rows by owner and label, as `store.cluster.usage_rows.page` does."""
    with store.read() as session:
        return usage_rows.page(session, asked, after=after, limit=limit)
