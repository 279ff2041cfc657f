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
    """The email address, or the part of the URL before its path, which may be secret."""
    on: list[EventKind]
    jobs: TargetJobs
    scope: NotificationScope
    created_at: datetime
    delivered_at: datetime | None = None
    """When the last message was delivered."""
    error: str | None = None
    """The last error; null after a delivery."""
    failed_at: datetime | None = None
    waiting: int = 0
    """Number of waiting messages."""
    given_up: int = 0
    """Number of messages in the last 7 days that could not be delivered."""


class NewTargetView(TargetView):
    """A new notification channel. Only this answer has its secret."""

    secret: str | None = None
    """The secret that signs webhooks. Only this answer has it."""


class MessageView(View):
    """A message to a notification channel."""

    id: str
    """The id; the header `webhook-id` has it."""
    target_id: str
    target: str | None = None
    """Name of the channel; null if it was deleted."""
    kind: str
    """The event, `digest` or `test`."""
    subject: str | None = None
    """Id of the job, sweep or worker."""
    state: Literal["waiting", "delivered", "given_up"]
    title: str
    text: str
    created_at: datetime
    attempts: int
    next_at: datetime | None = None
    """Time of the next try; null unless the message waits."""
    delivered_at: datetime | None = None
    error: str | None = None
    """The last error, or why there is no further try."""
