"""Changes of targets, and what programs do to tell them what happens. Each is one transaction.

All of them raise Unavailable.
"""

from store.announcement import announcement_of
from store.notifications import fan_out, messages, targets
from store.notifications.facts import ListedMessage, MessageFacts, NewTarget, TargetChange, TargetFacts
from store.store import Store
from store.team import audit
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, TooManyRequests
from torchyard.contract.notifications import MESSAGES_AN_HOUR


def add_target(store: Store, new: NewTarget, *, caller: Caller) -> tuple[TargetFacts, str | None]:
    """Stores a target, and returns it with the secret of its webhooks, which is told this once.

    Raises what `store.notifications.targets.add` does.
    """
    with store.write("team") as session:
        added, secret = targets.add(session, store.secret_keys, new)
        audit.add(session, caller, "target.add", f"{added.id} of {new.owner}: {new.kind} {added.shown}")
        return added, secret


def change_target(
    store: Store, target_id: str, change: TargetChange, *, owner: str | None, caller: Caller
) -> TargetFacts:
    """Changes what a target is told of; with `owner`, only one of theirs. Raises NotFound."""
    with store.write("team") as session:
        changed = targets.change(session, target_id, change, owner=owner)
        audit.add(session, caller, "target.change", f"{target_id} of {changed.owner}")
        return changed


def remove_target(store: Store, target_id: str, *, owner: str | None, caller: Caller) -> None:
    """Removes a target, and gives up what waits for it; with `owner`, only one of theirs. Raises NotFound."""
    with store.write("team") as session:
        removed = targets.remove(session, target_id, owner=owner)
        messages.give_up_of(session, target_id, why="the target was removed")
        audit.add(session, caller, "target.remove", f"{target_id} of {removed.owner}")


def try_target(store: Store, target_id: str, *, owner: str | None, caller: Caller) -> ListedMessage:
    """Makes a message that only shows whether it arrives. It counts in the hour of the target's user.

    Raises NotFound, Conflict if that user may not be told, and TooManyRequests.
    """
    with store.write("team") as session:
        whose = targets.get(session, target_id, owner=owner).owner
        row = next((row for row in targets.lock_of(session, whose) if row.id == target_id), None)
        if row is None:
            raise Conflict(f"{whose} is disabled, or is no administrator any more: this target is told nothing")
        if not messages.room_of(session, whose):
            raise TooManyRequests(f"{whose} got {MESSAGES_AN_HOUR} messages within an hour; try again later")
        message = messages.add_test(session, row)
        audit.add(session, caller, "target.test", f"{target_id} of {whose}")
        announcement_of(session).wake_controller()
        return message


def make_messages(store: Store, owner: str, *, most: int) -> bool:
    """Makes the messages of some signals of the owner. Returns whether there may be more."""
    with store.write("fan_out") as session:
        return fan_out.fan_out(session, owner, most=most)


def claim_messages(store: Store, *, count: int, lease_s: float) -> list[MessageFacts]:
    """Takes up to `count` messages that are due. Say within `lease_s` how it went, or another program takes them."""
    with store.write("claim_messages") as session:
        return messages.claim(session, store.secret_keys, count=count, lease_s=lease_s)


def mark_delivered(store: Store, message_id: str) -> None:
    """Stores that the target has a message."""
    with store.write("message_result") as session:
        messages.delivered(session, message_id)


def mark_failed(store: Store, message_id: str, error: str, *, again_in_s: float | None) -> None:
    """Stores why a message did not arrive, and in how many seconds it is due again; None: it is given up."""
    with store.write("message_result") as session:
        messages.failed(session, message_id, error, again_in_s=again_in_s)


def clean_messages(store: Store) -> bool:
    """Gives up what waits for too long, and deletes some old messages. Returns whether there are more."""
    with store.write("clean_messages") as session:
        return messages.clean(session)
