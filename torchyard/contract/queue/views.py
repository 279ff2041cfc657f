"""The JSON of the queue, of when waiting jobs are expected to start, and of what a stop would cost."""

from datetime import datetime
from typing import Literal

from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import DatedReason
from torchyard.contract.wire.view import Page, View


class EstimateView(View):
    """When a waiting job is expected to start. 80% of such jobs start between `low` and `high`."""

    expected: datetime | None
    """The most likely time; null if the job is too far back in the queue: it then starts after `low`."""
    low: datetime | None
    """Start of the interval. `low` and `high` are null until 20 estimates of such a wait have been checked."""
    high: datetime | None
    made_at: datetime
    held: int
    """How many of the last `of` estimates of such a wait were right."""
    of: int
    """Number of checked estimates of such a wait, at most 200; without an interval, of all waits."""


class StartsIfView(View):
    """A change with which a waiting job would start now."""

    change: Literal["time_limit", "devices", "preemptible"]
    value: str
    """The value to set: a duration, a number of devices, or `true`."""
    message: str
    """A sentence, such as: with `time_limit` ≤ 2h."""


class PriceView(View):
    """The work since the newest checkpoint of a running job: it is lost if the job stops without saving."""

    job_id: str | None
    """Null if you may not list the job; `name` too."""
    name: str | None
    owner: str
    kind: Literal["cuda", "cpu"]
    devices: int
    steps: int | None
    """Steps since the newest checkpoint; null if unknown, or if you may not read the job."""
    device_seconds: float
    resumes_at_step: int | None
    """Step of the newest checkpoint; null without one (the job starts again), or if you may not read the job."""
    message: str
    """A sentence, such as: 412 steps, 18 GPU-minutes; resumes at step 3,000."""


class StopView(View):
    """The work that would be lost by a stop. Nothing was changed."""

    jobs: list[PriceView]
    """The running jobs, most expensive first; at most 100."""
    total: int
    """Number of running jobs."""
    device_seconds: float
    """Device-seconds of all running jobs."""
    message: str
    """A sentence about all of them."""


class QueueEntry(View):
    """A queued job.

    `position` counts the whole queue from 1. A later job that fits may start before an earlier one that does not.
    """

    position: int
    job_id: str | None
    """Null for another user's private job; `name` and `reason` too."""
    name: str | None
    owner: str
    priority: int
    resources: Resources
    reason: DatedReason | None
    not_before: datetime | None = None
    """The job does not start before this time: earlier attempts failed soon after their start."""
    estimate: EstimateView | None = None
    """When the job is expected to start; null without an estimate."""
    created_at: datetime


class QueuePage(Page[QueueEntry]):
    """A page of the queue."""

    total: int | None = None
    """How many jobs the whole queue has."""
