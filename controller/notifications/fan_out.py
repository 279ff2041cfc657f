"""Makes messages of what happened, a batch of one user after one of another, so that no flood delays others."""

from store.notifications import reads as queries
from store.notifications import writes as commands
from store.store import Store

_AT_ONCE = 100
"""Signals of one user in one transaction."""


class FanOut:
    """A duty: makes the messages of all signals that wait, and removes the signals."""

    interval_s = 2.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Makes some messages of each user who has signals. Returns whether there is more. Raises Unavailable."""
        has_more = False
        for owner in queries.owners_with_signals(self._store):
            has_more |= commands.make_messages(self._store, owner, most=_AT_ONCE)
        return has_more


class Upkeep:
    """A duty: gives up messages that wait for too long, and deletes old ones."""

    interval_s = 600.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Cleans some messages. Returns whether there are more. Raises Unavailable."""
        return commands.clean_messages(self._store)
