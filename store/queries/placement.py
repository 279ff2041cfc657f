"""Reads what `scheduling.plan` needs, at one moment. It costs by the groups of waiting jobs, not by the jobs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session, aliased

from scheduling.plan import used_up
from scheduling.snapshot import OVERDUE_AFTER, Device, Host, RecordedReasons, Reservation, Running, Snapshot, Waiting
from store.db.database import Snapshots, in_us, now_us
from store.db.stored_spec import StoredSpec
from store.db.tables import Allocation, Attempt, Job, Worker
from store.rows import quotas, reasons, waiting, workers
from torchyard.contract.devices import DeviceReport
from torchyard.contract.durations import LONGEST_STOP_GRACE

_PREEMPTOR = aliased(Job)
# Built once, because each pass over the queue executes them. Not ordered: to order by ids, SQLite would read all jobs.
_WORKERS = select(
    Worker.id,
    Worker.name,
    Worker.devices,
    Worker.drain_requested_at,
    workers.is_alive().label("alive"),
    now_us().label("now"),
)
_HELD = (
    select(
        Allocation.worker_id,
        Allocation.device,
        Worker.name.label("worker"),
        Attempt.started_at,
        Job.id.label("job_id"),
        Job.owner,
        Job.priority,
        Job.spec["preemptible"].label("preemptible"),
        Job.spec["stop_grace"].label("stop_grace"),
        Job.cancel_requested_at,
        Job.pause_requested_at,
        Job.preempt_requested_at,
        _PREEMPTOR.id.label("preemptor"),
        _PREEMPTOR.owner.label("preemptor_owner"),
    )
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .join(Worker, Worker.id == Allocation.worker_id)
    .join(Job, Job.id == Attempt.job_id)
    .outerjoin(_PREEMPTOR, and_(_PREEMPTOR.id == Job.preempted_for, waiting.is_queued(_PREEMPTOR)))
    .where(Allocation.released_at.is_(None))
)

Read = Callable[[], AbstractContextManager[Session]]
_Held = Any
"""A row of `_HELD`: a device that a job holds."""


def read_snapshot(
    read: Read, *, here: str, devices: Sequence[DeviceReport], max_stop_grace: timedelta = LONGEST_STOP_GRACE
) -> Snapshot | None:
    """Returns the cluster as the worker `here` reads it; None if no job waits. Raises Unavailable.

    `devices`: the worker's own, as they are now. `max_stop_grace`: what cuts the jobs' `stop_grace`.
    """
    with read() as session:
        heads = waiting.group_heads(session)
        if not heads:
            return None
        held = session.execute(_HELD).all()
        reserved = _reservations(held, max_stop_grace)
        preemptors = {reservation.job_id for reservation in reserved}
        line = {job.id: job for job in (*heads, *waiting.waiting_among(session, preemptors))}
        now, hosts = _hosts(session, held, {here: devices})
        snapshot = Snapshot(
            here=here,
            now=now,
            hosts=hosts,
            running=_running(held),
            line=tuple(line.values()),
            reservations=reserved,
            allowances=quotas.allowances(session, {job.owner for job in line.values()}),
            recorded=RecordedReasons(reasons.by_shape(session), reasons.of_preemptors(session, preemptors)),
        )
        return _with_successors(session, snapshot, heads, at_once=max(1, len(devices)))


def reservations(read: Read, *, max_stop_grace: timedelta = LONGEST_STOP_GRACE) -> tuple[Reservation, ...]:
    """Returns which jobs were asked to stop for which waiting jobs, and hold devices, by their ids."""
    with read() as session:
        return _reservations(session.execute(_HELD), max_stop_grace)


def waits(store: Snapshots, job_id: str) -> bool:
    """Returns whether the job waits to be placed. Raises Unavailable."""
    with store.read() as session:
        return bool(waiting.waiting_among(session, [job_id]))


def _with_successors(session: Session, snapshot: Snapshot, heads: Iterable[Waiting], *, at_once: int) -> Snapshot:
    """Returns the snapshot with the next jobs of each group whose first ones do not wait, `at_once` in a statement."""
    newest = {head.group: head for head in heads}
    known = {job.id for job in snapshot.line}
    while more := [newest[group] for group in used_up(snapshot) if group in newest]:
        for last in more:
            found = waiting.next_of_group(session, last, limit=at_once)
            if len(found) < at_once:
                del newest[last.group]
            else:
                newest[last.group] = found[-1]
            new = tuple(job for job in found if job.id not in known)
            snapshot = replace(snapshot, line=snapshot.line + new)
    return snapshot


def _hosts(
    session: Session, held: Iterable[_Held], observed: Mapping[str, Sequence[DeviceReport]]
) -> tuple[int, tuple[Host, ...]]:
    """Returns the database's time, and the workers that are alive and those that are `observed`."""
    holders = {(row.worker_id, row.device): row.job_id for row in held}
    rows = session.execute(_WORKERS).all()
    hosts: list[Host] = []
    for row in rows:
        if row.alive or row.id in observed:
            reports = observed[row.id] if row.id in observed else map(DeviceReport.from_dict, row.devices)
            devices = tuple(_device(report, holders.get((row.id, report.uuid))) for report in reports)
            hosts.append(Host(row.id, row.name, devices, row.drain_requested_at is not None))
    return rows[0].now, tuple(hosts)


def _device(report: DeviceReport, job_id: str | None) -> Device:
    device = Device(
        index=report.index,
        uuid=report.uuid,
        name=report.name,
        kind=report.kind,
        memory_bytes=report.memory_bytes,
        blocked=report.blocked,
        returning=report.returning,
    )
    return device if job_id is None else device.held_by(job_id)


def _running(held: Iterable[_Held]) -> tuple[Running, ...]:
    """Returns the jobs, each once for a worker on which it holds devices."""
    jobs = {(row.worker_id, row.job_id): row for row in held}
    return tuple(
        Running(
            job_id=row.job_id,
            owner=row.owner,
            priority=row.priority,
            preemptible=bool(row.preemptible),
            since=row.started_at,
            stopping=any((row.cancel_requested_at, row.pause_requested_at, row.preempt_requested_at)),
            worker_id=row.worker_id,
        )
        for row in jobs.values()
    )


def _reservations(held: Iterable[_Held], max_stop_grace: timedelta) -> tuple[Reservation, ...]:
    stopping = {(row.job_id, row.worker_id): row for row in held if row.preemptor is not None}
    return tuple(
        Reservation(
            job_id=row.preemptor,
            owner=row.preemptor_owner,
            victim=row.job_id,
            victim_owner=row.owner,
            worker_id=row.worker_id,
            worker=row.worker,
            until=row.preempt_requested_at + in_us(min(_stop_grace(row), max_stop_grace) + OVERDUE_AFTER),
        )
        for _, row in sorted(stopping.items())
    )


def _stop_grace(row: _Held) -> timedelta:
    written = {} if row.stop_grace is None else {"stop_grace": row.stop_grace}
    return StoredSpec.model_validate(written).stop_grace
