"""Times a job from its submission to its success, by a client and the run directory."""

from collections.abc import Mapping
from dataclasses import dataclass
import math
import time
from typing import Any

from bench.service import Service
from torchyard.client import Client
from torchyard.contract.attempts.events import Metric, parse_line
from torchyard.contract.attempts.records import LaunchPlan
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.contract.telemetry.views import LogLine


@dataclass(frozen=True)
class Watched:
    """The time of each step, in seconds since the epoch."""

    submitted: float
    accepted: float
    claimed: float
    """By the database's clock, which may count in milliseconds."""
    launched: float
    """The start of torchrun; NaN if the ranks were forked."""
    lines: Mapping[str, float]
    """Each line of the job's output, and the time at which the stream sent it."""
    first_metric: float
    """By the clock of rank 0; NaN if it logged no metric."""
    succeeded: float
    """The time at which the client had the job's final state."""
    launcher: str


def watch(service: Service, client: Client, spec: dict[str, Any]) -> Watched:
    """Submits a job and follows it until it has succeeded."""
    lines: dict[str, float] = {}
    submitted = time.time()
    job = client.submit(spec).view
    accepted = time.time()
    for update in client.jobs.follow(job.id, metrics=False):
        if isinstance(update, LogLine) and update.stream == "stdout":
            lines.setdefault(update.text, time.time())
        job = update if isinstance(update, JobView) else job
    succeeded = time.time()
    assert job.state is JobState.SUCCEEDED, job.status_reason
    assert job.started_at is not None
    run = RunDir(service.data / "runs" / job.id / "1")
    log = run.log("launcher", "stdout")
    return Watched(
        submitted=submitted,
        accepted=accepted,
        claimed=job.started_at.timestamp(),
        launched=log.stat().st_mtime if log.exists() else math.nan,
        lines=lines,
        first_metric=first_metric(run),
        succeeded=succeeded,
        launcher=LaunchPlan.from_json(run.launch.read_bytes()).launcher,
    )


def first_metric(run: RunDir) -> float:
    """Returns the time of rank 0's first metric; NaN if there is none."""
    if not run.events.exists():
        return math.nan
    lines = map(parse_line, run.events.read_text().splitlines())
    return next((line.time / 1e6 for line in lines if isinstance(line, Metric)), math.nan)
