"""What owners had of the devices. All of them raise Unavailable."""

from store.db.database import Snapshots
from store.facts.pages import FactPage
from store.facts.usage import UsageFacts
from store.rows import usage_rows
from store.rows.usage_rows import Asked, Key

__all__ = ["Asked", "Key", "page"]


def page(store: Snapshots, asked: Asked, *, after: Key | None, limit: int) -> FactPage[UsageFacts]:
    """Returns rows by owner and label, as `store.rows.usage_rows.page` does."""
    with store.read() as session:
        return usage_rows.page(session, asked, after=after, limit=limit)
