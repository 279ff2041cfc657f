"""What users are told of without asking, and whom the service tells: kinds, targets, and a job's own wishes."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from torchyard.contract.schema import Schema
from torchyard.contract.wording import allowing

TARGET_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "1 to 100 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit",
)
TargetName = Annotated[str, Field(pattern=TARGET_NAME)]
TargetKind = Literal["webhook", "slack", "discord", "mail"]
NotificationScope = Literal["own", "all"]
"""`own`: one's own jobs and sweeps. `all`: also those of the team, and lost workers; for administrators."""
TargetJobs = Literal["all", "named"]
"""`named`: only jobs whose spec names the target."""

MOST_TARGETS = 20
"""Of one user."""
MESSAGES_AN_HOUR = 60
"""That one user gets. What is more comes as one digest."""
LONGEST_TEXT = 300
"""Characters of a text of a job in a message."""


class EventKind(StrEnum):
    """What happens that somebody may be told of."""

    JOB_STARTED = "job.started"
    JOB_SUCCEEDED = "job.succeeded"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"
    JOB_PAUSED = "job.paused"
    JOB_REQUEUED = "job.requeued"
    """It waits again: an attempt ended and another one follows."""
    JOB_BEST = "job.best"
    """A checkpoint is better than all before it."""
    JOB_WARNING = "job.warning"
    SWEEP_FINISHED = "sweep.finished"
    """It ended, whether all its trials did or not."""
    WORKER_LOST = "worker.lost"
    """For targets with `scope: all`."""


DIGEST = "digest"
"""The kind of a message that stands for those beyond `MESSAGES_AN_HOUR`."""
TEST = "test"
"""The kind of a message that its user asked for."""
DEFAULT_ON = (EventKind.JOB_FAILED, EventKind.JOB_SUCCEEDED, EventKind.SWEEP_FINISHED)
OnKinds = Annotated[list[Annotated[EventKind, Field(strict=False)]], Field(min_length=1, max_length=len(EventKind))]


class Notify(Schema):
    """Which targets of the job's owner are told of this job, besides those that are told of all."""

    targets: Annotated[list[TargetName], Field(min_length=1, max_length=MOST_TARGETS)]
    on: OnKinds | None = Field(default=None, description="what they are told of; null: what each target says")


JobNotify = Annotated[
    Notify | None,
    Field(
        exclude_if=lambda value: value is None,
        description="which of the owner's targets are told of this job: `torchyard notify add` makes one",
    ),
]
"""The key `notify` of a job spec."""
