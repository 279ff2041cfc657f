"""The views of targets and messages."""

from api.present.times import time, time_or_none
from store.notifications.facts import ListedMessage, TargetFacts
from torchyard.contract.notifications import EventKind
from torchyard.contract.views.notifications import MessageView, NewTargetView, TargetView


def target(facts: TargetFacts) -> TargetView:
    """Returns the view of a target."""
    return TargetView.model_validate(
        {
            "id": facts.id,
            "owner": facts.owner,
            "name": facts.name,
            "kind": facts.kind,
            "address": facts.shown,
            "on": [EventKind(kind) for kind in facts.kinds.split()],
            "jobs": facts.jobs,
            "scope": facts.scope,
            "created_at": time(facts.created_at),
            "delivered_at": time_or_none(facts.delivered_at),
            "error": facts.error,
            "failed_at": time_or_none(facts.failed_at),
            "waiting": facts.waiting,
            "given_up": facts.given_up,
        }
    )


def new_target(facts: TargetFacts, secret: str | None) -> NewTargetView:
    """Returns the view of a target that was just made, with its secret."""
    return NewTargetView(**target(facts).model_dump(), secret=secret)


def message(facts: ListedMessage) -> MessageView:
    """Returns the view of a message."""
    done = "delivered" if facts.delivered_at is not None else "given_up"
    return MessageView(
        id=facts.id,
        target_id=facts.target_id,
        target=facts.target,
        kind=facts.kind,
        subject=facts.subject or None,
        state="waiting" if facts.next_at is not None else done,
        title=facts.body["data"]["title"],
        text=facts.body["data"]["text"],
        created_at=time(facts.created_at),
        attempts=facts.attempts,
        next_at=time_or_none(facts.next_at),
        delivered_at=time_or_none(facts.delivered_at),
        error=facts.error,
    )
