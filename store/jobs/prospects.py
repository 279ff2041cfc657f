"""What would become of a job: whether it may join the line, where it would stand there, and what it would wait for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from scheduling.alternatives import Alternative
from scheduling.calibration import Track
from scheduling.reasons import over_quota
from scheduling.snapshot import Snapshot, Waiting
from store.db.database import in_us, now_us
from store.ids import new_id
from store.jobs.needs import needs_of
from store.jobs.shapes import shape
from store.jobs.submission import Prospect, Submission
from store.queue import calibrations, forecasting, planning, usage, waiting
from store.queue.credits import credits
from store.queue.estimates_facts import EstimateFacts, Seen
from store.queue.line.line import line_of
from store.queue.line_facts import Bucket, Member, Standing
from store.team import quotas
from store.team.limits import find_limits_of
from torchyard.contract.errors import QuotaExceeded
from torchyard.contract.spec.spec import Spec

_FOR_DEVICES = frozenset({"waiting", "devices_busy", "reserved", "preempting", "quota"})
"""The codes of the reasons of jobs in the line that start when others have ended."""


@dataclass(frozen=True)
class Waits:
    """A job that waits in the line, or would."""

    job: Waiting
    around: Snapshot
    """What the plan was made of that says so. The job may be in its line."""


@dataclass(frozen=True)
class Foresight:
    """What is known of one job at one moment."""

    prospect: Prospect
    waits: Waits | None = None
    """None: it starts at once, or is not in the line."""

    @property
    def waits_for_others(self) -> bool:
        """Whether it starts when others have ended."""
        reason = self.prospect.reason
        return self.waits is not None and reason is not None and reason.code in _FOR_DEVICES


@dataclass(frozen=True)
class Ahead:
    """What a replay for one job is made of."""

    line: Seen
    """The job is in it."""
    tracks: Mapping[int, Track] = field(default_factory=dict[int, Track])
    """What earlier estimates have taught, by bucket."""


@dataclass(frozen=True)
class Forecast:
    """What was found of one job."""

    estimate: EstimateFacts | None = None
    later_than: int | None = None
    """Instead of an estimate: the job does not start before that moment."""
    alternatives: tuple[Alternative, ...] = ()
    """Changes with which it would start now."""


def of_newcomer(session: Session, wanted: Submission, *, max_stop_grace: timedelta) -> Foresight:
    """Returns what would become of the job if it were submitted now.

    `wanted`: with its pool, and with the jobs that it comes after.
    """
    spec, owner = wanted.spec, wanted.caller.name
    room = quotas.Room(session, find_limits_of(session, [owner]))
    try:
        room.check(owner, devices=spec.resources.total_devices, priority=spec.priority)
    except QuotaExceeded as error:
        return Foresight(Prospect(over_quota(error.message)))
    if wanted.waits_for is not None:
        return Foresight(Prospect(wanted.waits_for))
    return _in_line(session, _as_waiting(session, spec, owner), max_stop_grace)


def of_job(session: Session, job_id: str, *, max_stop_grace: timedelta) -> Foresight | None:
    """Returns what becomes of a stored job; None if it does not wait for devices.

    Whether the caller may read the job was asked before.
    """
    jobs = waiting.waiting_among(session, [job_id])
    return _in_line(session, jobs[0], max_stop_grace) if jobs else None


def find_ahead(session: Session, job: Waiting, *, max_stop_grace: timedelta) -> Ahead:
    """Returns what is ahead of a job, which may not be stored yet."""
    line = forecasting.first_in_line(session, observed={}, max_stop_grace=max_stop_grace, newcomer=job)
    return Ahead(line, calibrations.tracks(session))


def _in_line(session: Session, job: Waiting, max_stop_grace: timedelta) -> Foresight:
    standing = Standing(Bucket(job.owner, job.resources.device, job.priority), Member(job.id, job.submitted))
    position = line_of(session).positions(credits(session, {standing.bucket}), [standing])[job.id]
    outlook = planning.outlook_of(session, job, max_stop_grace=max_stop_grace)
    return Foresight(Prospect(outlook.reason, position), None if outlook.reason is None else Waits(job, outlook.around))


def _as_waiting(session: Session, spec: Spec, owner: str) -> Waiting:
    """Returns a job with this spec that was submitted just now."""
    resources, needs = spec.resources.model_dump(mode="json"), needs_of(spec)
    return Waiting(
        id=new_id("job"),
        owner=owner,
        priority=spec.priority,
        shape=shape(owner, resources, preemptible=spec.preemptible, limit=spec.time_limit, needs=needs),
        resources=spec.resources,
        submitted=session.execute(select(now_us())).scalar_one(),
        limit_us=in_us(spec.time_limit),
        preemptible=spec.preemptible,
        usual_us=usage.usual_lengths(session, {owner}).get((owner, spec.trainer)),
        needs=waiting.needs(needs),
    )
