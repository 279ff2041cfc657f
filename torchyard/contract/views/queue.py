"""The JSON of the queue."""

from datetime import datetime

from torchyard.contract.resources import Resources
from torchyard.contract.views.base import Page, View
from torchyard.contract.views.estimates import EstimateView


class WaitingReason(View):
    """Why a queued job has not started, as its scheduler decided."""

    code: str
    message: str
    since: datetime


class QueueEntry(View):
    """A queued job.

    `position` counts the whole queue. Workers try 1 first. A later job that fits may start before one that does not.
    """

    position: int
    job_id: str | None
    """None for another user's private job, as are its name and its reason."""
    name: str | None
    owner: str
    priority: int
    resources: Resources
    reason: WaitingReason | None
    not_before: datetime | None = None
    """It does not start before this time, because earlier attempts failed soon after their start."""
    estimate: EstimateView | None = None
    """When it is expected to start. Null while no estimate was made."""
    created_at: datetime


class QueuePage(Page[QueueEntry]):
    """One page of the queue."""

    total: int | None = None
    """How many jobs the whole queue has."""
