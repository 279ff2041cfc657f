"""Lets jobs go on for which others have ended."""

from store.jobs import dependencies, release
from store.store import Store

AT_ONCE = 100
"""Jobs of one transaction, so that others can write after it."""


def settle(store: Store) -> bool:
    """Queues or fails some jobs that wait for others which have ended. Returns whether there may be more.

    Each is settled once, whoever does so at the same time, and by whatever it is interrupted. Raises Unavailable.
    """
    with store.read() as session:
        due = dependencies.due(session, limit=AT_ONCE)
    if not due:
        return False
    with store.write("dependencies") as session:
        done = settled = release.settle(session, due)
        while settled and len(done) < AT_ONCE:  # those that failed may have others behind them
            after = dependencies.due_behind(session, settled, limit=AT_ONCE - len(done))
            settled = release.settle(session, after) if after else []
            done = [*done, *settled]
    return bool(done)
