"""Reads of targets, messages and signals. All of them raise Unavailable."""

from collections.abc import Sequence

from store.db.database import Snapshots
from store.notifications import messages, signals, targets
from store.notifications.facts import ListedMessage, TargetFacts
from store.pages import FactPage, first


def list_targets(store: Snapshots, owner: str) -> Sequence[TargetFacts]:
    """Returns the user's targets by name."""
    with store.read() as session:
        return targets.list_of(session, owner)


def get_target(store: Snapshots, target_id: str, *, owner: str | None) -> TargetFacts:
    """Returns a target; with `owner`, only one of theirs. Raises NotFound."""
    with store.read() as session:
        return targets.get(session, target_id, owner=owner)


def list_messages(
    store: Snapshots, owner: str, *, target_id: str | None, limit: int, before: str | None
) -> FactPage[ListedMessage]:
    """Returns messages of the user's targets, newest first; with `before` (an id), only older ones."""
    with store.read() as session:
        found = messages.newest_first(session, owner, target_id=target_id, limit=limit + 1, before=before)
        return first(found, limit)


def has_due_message(store: Snapshots) -> bool:
    """Returns whether a message is due. Cheaper than `claim_messages`, which writes."""
    with store.read() as session:
        return messages.has_due(session)


def owners_with_signals(store: Snapshots) -> Sequence[str]:
    """Returns whose signals wait; `""` stands for the workers'."""
    with store.read() as session:
        return signals.waiting_owners(session)
