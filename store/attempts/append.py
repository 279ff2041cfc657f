"""Stores what an attempt has written: each batch exactly once, in one transaction with its number and offsets."""

import json
from typing import Any

from sqlalchemy import case, func, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.attempts import packages, state
from store.attempts.facts import Claim
from store.db.database import now_us
from store.jobs import events as job_events
from store.jobs import jobs
from store.notifications import signals
from store.output import artifacts, checkpoints, logs, media, metrics, retention
from store.output import limits as output_limits
from store.output.facts import DEFAULTS, Batch, OutputLimits
from store.output.limits import OutputMeter
from store.tables import Attempt, Job
from torchyard.contract.errors import StaleClaim

_ALARMING = {"warning", "error"}
"""The levels of messages that targets are notified of."""


def store_batch(
    session: Session, claim: Claim, batch: Batch, *, seq: int, limits: OutputLimits = DEFAULTS
) -> frozenset[str]:
    """Stores a batch by `record`. One that is stored already changes nothing: a worker sends it again if the answer
    was lost.
    """
    try:
        return record(session, claim, batch, seq=seq, limits=limits)
    except StaleClaim:
        row = state.find_open(session, claim)
        if row.relay_seq != seq + 1:
            raise
        return frozenset(row.cut.split())


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
    row = state.fenced_update(session, claim, Attempt.relay_seq == seq, **values)
    meter = OutputMeter(limits, row, rest=f"runs/{claim.job_id}/{claim.number} in the worker's data directory")
    _add_output(session, claim, batch, meter, limits)
    if batch.card is not None:
        jobs.set_card(session, claim.job_id, batch.card)
    if batch.packages is not None:
        packages.put(session, claim.job_id, claim.number, batch.packages)
    if batch.progress is not None:
        session.execute(update(Job).where(Job.id == claim.job_id).values(progress=batch.progress))
    if meter.counted != row:
        session.execute(update(Attempt).where(state.is_row_of(claim)).values(**meter.counted._asdict()))
    announcement_of(session).mark_changed(claim.job_id)
    return frozenset(meter.cut)


def _add_output(session: Session, claim: Claim, batch: Batch, meter: OutputMeter, limits: OutputLimits) -> None:
    """Stores what the batch adds to the job's lists, within the limits."""
    job_id, attempt = claim.job_id, claim.number
    if count := sum(len(points) for _, points in batch.by_source):
        output_limits.note_others(session, job_id, attempt, meter, points=count)
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
        signals.add_warnings(session, jobs.require(session, job_id), [*warnings, *meter.notices])


def _add_media(session: Session, claim: Claim, batch: Batch, meter: OutputMeter, limits: OutputLimits) -> None:
    """Stores what the attempt shows, and an event of each key, so that a page knows when to read again."""
    added = media.add(session, claim.job_id, attempt=claim.number, new=batch.media, limits=limits)
    for data in added.events:
        if meter.takes_message(json.dumps(data)):
            job_events.append(session, claim.job_id, type="media", attempt=claim.number, data=data)
    if added.why is not None:
        meter.mark_cut("media", f"no more output of this attempt is stored: {added.why}")
