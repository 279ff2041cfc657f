"""The attempts of a job, of which some may have ended long ago."""

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import pages
from store.attempts.facts import EarlierAttempt
from store.jobs.facts import HeldBefore, ListedAttempt, StoppedFor
from store.pages import FactPage
from store.tables import Allocation, Attempt, Job, Worker
from store.team import access
from store.team.callers import Caller
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.states import EndReason

_AS_THEY_ARE = ("number", "started_at", "ended_at", "end_reason", "detail", "start_step", "environment")
"""Columns that are answered as they are."""


def list_attempts(session: Session, job_id: str, *, caller: Caller, after: int, limit: int) -> FactPage[ListedAttempt]:
    """Returns attempts of a job numbered above `after`, oldest first, with a fixed number of statements.

    Raises NotFound if the caller may not read the job.
    """
    access.readable_job(session, job_id, caller)
    query = select(
        Attempt.id, Attempt.worker_id, Attempt.stopped_for, *(getattr(Attempt, name) for name in _AS_THEY_ARE)
    )
    query = query.where(Attempt.job_id == job_id, Attempt.number > after).order_by(Attempt.number)
    page = pages.first(session.execute(query.limit(limit + 1)).all(), limit)
    rows = page.items
    held = session.execute(
        select(Allocation.attempt_id, Allocation.worker_id, Allocation.node_rank, Allocation.device)
        .where(Allocation.attempt_id.in_([row.id for row in rows]))
        .order_by(Allocation.node_rank, Allocation.id)
    ).all()
    wanted = {row.worker_id for row in rows} | {row.worker_id for row in held}
    named = session.execute(select(Worker.id, Worker.name, Worker.devices).where(Worker.id.in_(wanted)))
    workers = {row.id: row for row in named}
    known = {
        (worker.id, device["uuid"]): DeviceReport.from_dict(device)
        for worker in workers.values()
        for device in worker.devices
    }
    devices: dict[int, list[HeldBefore]] = {}
    for attempt_id, worker_id, node, uuid in held:
        device = HeldBefore(workers[worker_id].name, node, uuid, known.get((worker_id, uuid)))
        devices.setdefault(attempt_id, []).append(device)
    others = _find_takers(session, {row.stopped_for for row in rows if row.stopped_for is not None}, caller)
    attempts = [
        ListedAttempt(
            **{name: getattr(row, name) for name in _AS_THEY_ARE},
            worker=workers[row.worker_id].name,
            devices=devices.get(row.id, []),
            stopped_for=others.get(row.stopped_for),
        )
        for row in rows
    ]
    return FactPage(attempts, page.has_more)


def list_earlier(session: Session, job_id: str, *, before: int) -> list[EarlierAttempt]:
    """Returns the job's attempts with numbers below `before`, oldest first."""
    columns = (Attempt.number, Attempt.started_at, Attempt.launcher.is_not(None), Attempt.offsets, Attempt.environment)
    query = select(*columns).where(Attempt.job_id == job_id, Attempt.number < before).order_by(Attempt.number)
    return [
        EarlierAttempt(number=number, started_at=started_at, ran=ran, offsets=offsets, environment=environment)
        for number, started_at, ran, offsets, environment in session.execute(query)
    ]


def _find_takers(session: Session, job_ids: Collection[str], caller: Caller) -> dict[str | None, StoppedFor]:
    if not job_ids:
        return {}
    readable = access.match_readable(caller).label("readable")
    jobs = session.execute(select(Job.id, Job.owner, Job.name, readable).where(Job.id.in_(job_ids)))
    return {row.id: StoppedFor(row.owner, *((row.id, row.name) if row.readable else (None, None))) for row in jobs}


def count_ended(session: Session, job_id: str, reason: EndReason, *, since: int, why: str = "") -> int:
    """Returns how many of the job's attempts, from number `since` on, ended for that reason, and said so with `why`."""
    query = select(func.count()).select_from(Attempt)
    ended = (Attempt.job_id == job_id, Attempt.number >= since, Attempt.end_reason == reason.value)
    if why:
        ended = (*ended, Attempt.detail.startswith(why, autoescape=True))
    return session.scalars(query.where(*ended)).one()
