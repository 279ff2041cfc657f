"""What users are told of without asking, and how: kinds of events and of targets, and the limits."""

from enum import StrEnum
from typing import Literal

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
    """An event for which a notification can be sent."""

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
