"""The JSON of targets and messages."""

from datetime import datetime
from typing import Literal

from torchyard.contract.notifications.kinds import EventKind, NotificationScope, TargetJobs, TargetKind
from torchyard.contract.wire.view import View


class TargetView(View):
    """A notification channel and its events."""

    id: str
    owner: str
    name: str
    kind: TargetKind
    address: str
    """Of a URL, the part before its path: the path may be a secret."""
    on: list[EventKind]
    jobs: TargetJobs
    scope: NotificationScope
    created_at: datetime
    delivered_at: datetime | None = None
    """When a message was delivered last."""
    error: str | None = None
    """Why the last attempt failed; None after a delivery."""
    failed_at: datetime | None = None
    waiting: int = 0
    """Messages that are not delivered yet."""
    given_up: int = 0
    """Messages of the last 7 days that were not delivered and never will be."""


class NewTargetView(TargetView):
    """A new notification channel. Only this answer has its secret."""

    secret: str | None = None
    """What its webhooks are signed with. It is shown this once."""


class MessageView(View):
    """A message to a notification channel."""

    id: str
    """The `webhook-id` of all its attempts."""
    target_id: str
    target: str | None = None
    """The name of the target; None if it was removed."""
    kind: str
    """What happened, or `digest` or `test`."""
    subject: str | None = None
    """The id of the job, the sweep or the worker."""
    state: Literal["waiting", "delivered", "given_up"]
    title: str
    text: str
    created_at: datetime
    attempts: int
    next_at: datetime | None = None
    """When it is tried next; None unless it waits."""
    delivered_at: datetime | None = None
    error: str | None = None
    """Why the last attempt failed, or why there is none any more."""
