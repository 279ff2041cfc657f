"""Attempts: lease, fence and end. Every write of a worker about an attempt it has claimed goes through this module."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
import json
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, select, update
from sqlalchemy.orm import Session

from store.announcement import WORKERS, announcement_of
from store.attempts import leases, node_devices, packages
from store.attempts import use as attempt_use
from store.attempts.exit_reports import verified
from store.attempts.facts import Claim, NodeHeld
from store.cluster import device_days
from store.cluster.usage_facts import Held
from store.db.database import now_us
from store.jobs import events as job_events
from store.jobs import jobs, outcome
from store.notifications import signals
from store.output import artifacts, checkpoints, logs, media, metrics, point_limits, retention
from store.output.facts import DEFAULTS, Answer, Batch, OutputLimits
from store.output.limits import Counted, OutputMeter
from store.queue import usage
from store.tables import Allocation, Attempt, Job
from torchyard.contract.errors import StaleClaim
from torchyard.contract.job import EndReason, JobState, Reason
from torchyard.contract.notifications import EventKind
from torchyard.contract.records import ExitReport

_ALARMING = {"warning", "error"}
"""The levels of messages that targets are told of."""
_RAN_US = func.coalesce(now_us() - case((Attempt.pool_devices > 0, Attempt.running_at), else_=Attempt.started_at), 0)
"""How long an open attempt has run: in a pool since its ranks are there, as it may wait in the cluster's own queue."""


def read(session: Session, claim: Claim) -> Attempt:
    """Returns the claim's row, ended or not. Raises StaleClaim if the job was deleted."""
    query = select(Attempt).where(_is(claim)).execution_options(populate_existing=True)
    row = session.scalars(query).first()
    if row is None:
        raise StaleClaim(f"job {claim.job_id} was deleted")
    return row


def age(session: Session, row: Attempt) -> timedelta:
    """Returns how much of its time limit the attempt has used."""
    us = session.execute(select(_RAN_US).where(Attempt.id == row.id)).scalar_one()
    return timedelta(microseconds=us)


def mark_prepared(session: Session, claim: Claim, *, start_step: int, is_known: bool = True) -> None:
    """Records the step that the attempt resumes from, before its processes start. Raises StaleClaim.

    `is_known`: whether the program goes on there. Else the first step that it logs says where it does.
    """
    _fenced_update(session, claim, start_step=start_step, hides_after=start_step if is_known else None)


def set_environment(session: Session, claim: Claim, environment: dict[str, Any]) -> None:
    """Records the environment in which the attempt is to run. Raises StaleClaim."""
    _fenced_update(session, claim, environment=environment)


def set_reason(session: Session, claim: Claim, reason: Reason) -> None:
    """Stores why the claim's job is starting, unless it has come up. Raises StaleClaim."""
    _fenced_update(session, claim)
    jobs.set_reason(session, claim.job_id, JobState.STARTING, reason)


def read_open(session: Session, claim: Claim) -> Attempt:
    """Returns the claim's row. Raises StaleClaim as writes for the claim do."""
    row = read(session, claim)
    if row.ended_at is not None:
        raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} has ended")
    if row.holder != claim.holder:
        raise StaleClaim(f"another daemon has attempt {claim.number} of job {claim.job_id}")
    return row


def mark_launched(session: Session, claim: Claim, launcher: dict[str, Any]) -> None:
    """Stores the engine's handle, by which a later daemon finds the attempt's processes. Raises StaleClaim."""
    _fenced_update(session, claim, launcher=launcher)


def hold_nodes(session: Session, claim: Claim, nodes: Sequence[NodeHeld]) -> None:
    """Stores what a cluster has given to the attempt. Repeating it changes nothing. Raises StaleClaim."""
    _fenced_update(session, claim)
    node_devices.hold(session, read(session, claim), nodes)


def mark_running(session: Session, claim: Claim, *, reason: Reason, launcher: dict[str, Any] | None = None) -> None:
    """Moves the job to `running`, when the process of every rank exists. Raises StaleClaim.

    `launcher`: what `mark_launched` stores, if it is not stored yet.
    """
    started = {} if launcher is None else {"launcher": launcher}
    _fenced_update(session, claim, running_at=now_us(), **started)
    if jobs.transition(session, claim.job_id, JobState.RUNNING, reason=reason) is None:
        raise StaleClaim(f"job {claim.job_id} is not starting")


def record(
    session: Session, claim: Claim, batch: Batch, *, seq: int, limits: OutputLimits = DEFAULTS
) -> frozenset[str]:
    """Stores a batch exactly once: `seq` is the number of batches stored before it. Raises StaleClaim.

    Returns the outputs of the attempt that are cut, such as `log`: what is beyond `limits` is dropped.
    """
    values: dict[str, Any] = {"relay_seq": seq + 1, "offsets": batch.offsets, "relay_lag_us": batch.lag_us}
    if batch.reports:
        values["reported_at"] = now_us()
    if batch.progress is not None:
        stepped = func.coalesce(Attempt.stepped_at, now_us())
        values["stepped_at"] = case((Attempt.start_step < batch.progress["step"], stepped), else_=Attempt.stepped_at)
    if steps := [point.step for _, points in batch.by_source for point in points]:
        values["hides_after"] = func.coalesce(Attempt.hides_after, min(steps) - 1)
    if batch.checkpoints:
        values["checkpoints"] = Attempt.checkpoints + len(batch.checkpoints)
    row = _fenced_update(session, claim, Attempt.relay_seq == seq, **values)
    meter = OutputMeter(limits, row, rest=f"runs/{claim.job_id}/{claim.number} in the worker's data directory")
    _add_output(session, claim, batch, meter, limits)
    if batch.card is not None:
        jobs.set_card(session, claim.job_id, batch.card)
    if batch.packages is not None:
        packages.put(session, claim.job_id, claim.number, batch.packages)
    if batch.progress is not None:
        session.execute(update(Job).where(Job.id == claim.job_id).values(progress=batch.progress))
    if meter.counted != row:
        session.execute(update(Attempt).where(_is(claim)).values(**meter.counted._asdict()))
    announcement_of(session).mark_changed(claim.job_id)
    return frozenset(meter.cut)


def store_stacks(session: Session, claim: Claim, answer: Answer) -> None:
    """Stores the stacks of the ranks, and removes the request that they answer. Raises StaleClaim."""
    # A request that came later stays.
    pending = func.nullif(Attempt.stacks_requested_at, answer["requested_at"])
    _fenced_update(session, claim, stacks=answer, stacks_requested_at=pending)


def end(session: Session, claim: Claim, report: ExitReport, *, requested_stops: Collection[EndReason] = ()) -> JobState:
    """Ends the attempt, releases its devices and returns the job's next state. The last transaction of an attempt.

    Call it when everything of the attempt is stored and every process is gone. `requested_stops` are the stops that the
    worker has requested, besides those in the rows; a report of any other stop is not accepted. Raises StaleClaim.
    """
    closed = session.execute(
        update(Attempt)
        .where(_is_open(claim))
        .values(ended_at=now_us(), stacks_requested_at=None, stacks=None)
        .returning(Attempt, _RAN_US.label("ran_us"))
    ).first()
    if closed is None:
        raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} has ended")
    released = session.scalars(
        update(Allocation)
        .where(Allocation.attempt_id == claim.attempt_id, Allocation.released_at.is_(None))
        .values(released_at=now_us())
        .returning(Allocation.kind)
    ).all()
    announcement_of(session).mark_changed(WORKERS)
    announcement_of(session).move_line()
    job = jobs.lock(session, claim.job_id)
    if job is None:
        raise StaleClaim(f"job {claim.job_id} is gone")
    report = verified(session, closed.Attempt, job, report, requested_stops=requested_stops, ran_us=closed.ran_us)
    report = outcome.with_who_stopped(session, job, report)
    stopped_for = job.preempted_for if report.reason is EndReason.PREEMPTED else None
    ending = {"end_reason": report.reason, "detail": report.message, "stopped_for": stopped_for}
    session.execute(update(Attempt).where(_is(claim)).values(**ending))
    published_checkpoint = bool(closed.Attempt.checkpoints) and checkpoints.is_progress(
        session, claim.job_id, attempt=claim.number, start_step=closed.Attempt.start_step
    )
    state = outcome.apply(
        session,
        job,
        report,
        published_checkpoint=published_checkpoint,
        ran_us=closed.ran_us,
        by_itself=EndReason.PAUSED not in requested_stops,
    )
    _add_usage(session, job, closed.Attempt, Counter(released), ran_us=closed.ran_us)
    if state is JobState.SUCCEEDED:
        usage.note_length(session, job.owner, job.trainer, job.ran_us)
    return state


def rescue(session: Session, claim: Claim) -> bool:
    """Ends an attempt whose lease has expired, so that its worker can write nothing more. False if it was renewed."""
    late = session.execute(
        update(Attempt)
        .where(_is_open(claim), leases.is_lost())
        .values(relay_seq=Attempt.relay_seq + 1)
        .returning(Attempt.worker_id)
    ).first()
    if late is None:
        return False
    name = jobs.worker_name(session, late.worker_id)
    end(session, claim, ExitReport(reason=EndReason.WORKER_LOST, message=f"the lease of worker {name} expired"))
    signals.add(session, EventKind.WORKER_LOST, worker=(late.worker_id, name))
    return True


def _add_usage(session: Session, job: Job, attempt: Attempt, held: Counter[str], *, ran_us: int) -> None:
    """Adds what the attempt held of each kind of device to the use of the job's owner."""
    began = attempt.started_at
    if attempt.pool_devices:  # what nodes have told of their devices counts for nothing
        held, began = Counter({job.device_request: attempt.pool_devices}), attempt.running_at
    ended = attempt.ended_at
    assert ended is not None
    usage.add(session, job.owner, held, began=ended - ran_us, ended=ended)
    use = attempt_use.take(session, attempt.id)
    known = {} if use is None else {"cuda": (use.measured_us, use.busy_us, use.idle_us)}
    began = ended if began is None else began
    parts = [Held(kind, count, began, ended, *known.get(kind, ())) for kind, count in held.items()]
    device_days.add(session, job.owner, job.labels, parts)


def _add_output(session: Session, claim: Claim, batch: Batch, meter: OutputMeter, limits: OutputLimits) -> None:
    """Stores what the batch adds to the job's lists, within the limits."""
    job_id, attempt = claim.job_id, claim.number
    if count := sum(len(points) for _, points in batch.by_source):
        point_limits.note(session, job_id, attempt, meter, points=count)
    for source, points in batch.by_source:
        added = metrics.add(session, job_id, attempt=attempt, points=meter.take_points(points), source=source)
        meter.count_points(added.stored)
        if added.dropped:
            meter.mark_cut("series", metrics.limit_notice(added.dropped))
    logs.add(session, job_id, attempt=attempt, lines=meter.take_lines(batch.lines))
    warnings: list[str] = []
    for event in batch.events:
        if not event.limited or meter.takes_message(event.data["text"]):
            job_events.append(session, job_id, type=event.type, attempt=attempt, data=event.data, time=event.time)
            warnings += [event.data["text"]] if event.type == "message" and event.data.get("level") in _ALARMING else []
    for checkpoint in batch.checkpoints:
        checkpoints.add(session, job_id, attempt=attempt, new=checkpoint)
    if batch.checkpoints and (notice := retention.prune(session, job_id, versions=limits.versions)) is not None:
        meter.mark_cut("checkpoints", notice)
    if batch.remeasured is not None:
        checkpoints.note_remeasured(session, job_id, attempt=attempt, event=batch.remeasured)
    if batch.artifacts:
        artifacts.add(session, job_id, attempt=attempt, new=batch.artifacts)
    if batch.media:
        _add_media(session, claim, batch, meter, limits)
    for text in meter.notices:
        job_events.append(session, job_id, type="message", attempt=attempt, data={"level": "warning", "text": text})
    if warnings or meter.notices:
        signals.add_warnings(session, jobs.get(session, job_id), [*warnings, *meter.notices])


def _add_media(session: Session, claim: Claim, batch: Batch, meter: OutputMeter, limits: OutputLimits) -> None:
    """Stores what the attempt shows, and an event of each key, so that a page knows when to read again."""
    added = media.add(session, claim.job_id, attempt=claim.number, new=batch.media, limits=limits)
    for data in added.events:
        if meter.takes_message(json.dumps(data)):
            job_events.append(session, claim.job_id, type="media", attempt=claim.number, data=data)
    if added.why is not None:
        meter.mark_cut("media", f"no more of what this attempt shows is stored: {added.why}")


def _fenced_update(session: Session, claim: Claim, *conditions: Any, **values: Any) -> Counted:
    """Returns what the row has of the attempt's output."""
    # An update without values still locks the row: the attempt cannot end before the caller's transaction does.
    taken = session.execute(
        update(Attempt)
        .where(_is_open(claim), *conditions)
        .values(**(values or {"relay_seq": Attempt.relay_seq}))
        .returning(Attempt.log_bytes, Attempt.message_bytes, Attempt.point_bytes, Attempt.cut)
    ).first()
    if taken is None:
        raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} no longer belongs to this worker")
    return Counted(*taken)


def _is_open(claim: Claim) -> ColumnElement[bool]:
    """Returns the condition that the attempt is open, and that who has the claim may write for it."""
    return and_(_is(claim), Attempt.ended_at.is_(None), Attempt.holder.is_not_distinct_from(claim.holder))


def _is(claim: Claim) -> ColumnElement[bool]:
    # SQLite gives the id of a deleted attempt to a new one, so the job must match, too.
    return and_(Attempt.id == claim.attempt_id, Attempt.job_id == claim.job_id)
