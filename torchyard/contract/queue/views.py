"""The JSON of the queue, of when waiting jobs are expected to start, and of what a stop would cost."""

from datetime import datetime
from typing import Literal

from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import DatedReason
from torchyard.contract.wire.view import Page, View


class EstimateView(View):
    """When a waiting job is expected to start. 80% of such jobs start between `low` and `high`."""

    expected: datetime | None
    """Null: it is too far behind to be looked at, and starts after `low`."""
    low: datetime | None
    """Null, as `high` is: too few estimates of such a wait have come true or not."""
    high: datetime | None
    made_at: datetime
    held: int
    """Of the last estimates of such a wait, how many held: the job did start between `low` and `high`."""
    of: int
    """How many these were: 200 at most. Without an interval: how many have come true or not so far, of all waits."""


class StartsIfView(View):
    """A change with which a waiting job would start now."""

    change: Literal["time_limit", "devices", "preemptible"]
    value: str
    """What to set: a duration, a number of devices of a node, or `true`."""
    message: str
    """Such as: with `time_limit` ≤ 2h."""


class PriceView(View):
    """The work since the newest checkpoint of a running job: it is lost if the job stops without saving."""

    job_id: str | None
    """Null of a job that the caller may not list, as is its name."""
    name: str | None
    owner: str
    kind: Literal["cuda", "cpu"]
    devices: int
    steps: int | None
    """Null: it tells no steps, or the caller may not read the job."""
    device_seconds: float
    resumes_at_step: int | None
    """The step of its newest checkpoint. Null: it has none, and starts anew; or the caller may not read the job."""
    message: str
    """All of this in a sentence: 412 steps, 18 GPU-minutes; resumes at step 3,000."""


class StopView(View):
    """The work that would be lost by a stop. Nothing was changed."""

    jobs: list[PriceView]
    """Those that run: at most 100, the most expensive first."""
    total: int
    """How many run."""
    device_seconds: float
    """Of all of them."""
    message: str
    """A sentence for all of them together."""


class QueueEntry(View):
    """A queued job.

    `position` counts the whole queue from 1. A later job that fits may start before an earlier one that does not.
    """

    position: int
    job_id: str | None
    """None for another user's private job, as are its name and its reason."""
    name: str | None
    owner: str
    priority: int
    resources: Resources
    reason: DatedReason | None
    not_before: datetime | None = None
    """It does not start before this time, because earlier attempts failed soon after their start."""
    estimate: EstimateView | None = None
    """When it is expected to start. Null while no estimate was made."""
    created_at: datetime


class QueuePage(Page[QueueEntry]):
    """A page of the queue."""

    total: int | None = None
    """How many jobs the whole queue has."""
