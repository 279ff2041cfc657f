"""The cluster as a plan sees it: hosts, what runs on them, who was asked to stop, and what users used of them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
import math
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import and_, case, func, literal_column, or_, select
from sqlalchemy.orm import Session, aliased

from scheduling.needs import NOTHING, Offer, together
from scheduling.pools import Pool
from scheduling.snapshot import OVERDUE_AFTER, Device, Displacement, Host, OwnerUse, Running
from store.cluster import pools, workers
from store.db import stored_spec
from store.db.database import in_us, now_us
from store.db.prepared import Prepared
from store.db.stored_spec import StoredSpec
from store.queue import usage
from store.queue.line.conditions import is_queued
from store.tables import Allocation, Attempt, Checkpoint, Job, Worker
from store.team import quotas
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.spec.resources import Resources

_OPEN = Attempt.ended_at.is_(None)
# Built once, because each pass over the line executes them. Not ordered: to order by ids, SQLite would read all jobs.
_WORKERS = Prepared(
    select(
        Worker.id,
        Worker.name,
        Worker.devices,
        Worker.drain_requested_at,
        Worker.starts,
        Worker.pool,
        Worker.users,
        workers.is_alive().label("alive"),
        now_us().label("now"),
    )
)
_HELD = Prepared(
    select(Allocation.worker_id, Allocation.device, Attempt.job_id)
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .where(Allocation.released_at.is_(None))
)
_IN_POOL_SINCE = case((Attempt.pool_devices > 0, Attempt.running_at))
"""What was given to a pool runs later: until then it waits in the queue of the cluster."""
SINCE = func.coalesce(_IN_POOL_SINCE, Attempt.started_at)
"""Since when the attempt has its devices."""
SAVED_AT = (
    select(func.max(Checkpoint.created_at))
    .where(Checkpoint.job_id == Job.id, Checkpoint.attempt == Attempt.number, ~Checkpoint.damaged)
    .correlate(Job, Attempt)
    .scalar_subquery()
)
"""When the attempt's newest whole checkpoint was stored."""
_RUNNING = Prepared(
    select(
        Attempt.worker_id,
        SINCE.label("since"),
        Attempt.guest,
        Job.id,
        Job.owner,
        Job.trainer,
        Job.priority,
        Job.created_at,
        Job.ran_us,
        (Job.waited_us - Job.waited_first_us).label("waited_us"),
        Job.progress,
        Job.spec["preemptible"].label("preemptible"),
        Job.spec["time_limit"].label("time_limit"),
        Job.spec["resources"].label("resources"),
        SAVED_AT.label("saved_at"),
        or_(
            Job.cancel_requested_at.is_not(None),
            Job.pause_requested_at.is_not(None),
            Job.preempt_requested_at.is_not(None),
            Job.idle_requested_at.is_not(None),
        ).label("stopping"),
    )
    .join(Job, Job.id == Attempt.job_id)
    .where(_OPEN, or_(Attempt.pool_devices == 0, Attempt.running_at.is_not(None)))
)
_FOR = aliased(Job)
_DISPLACED = (
    select(
        Attempt.worker_id,
        Worker.name.label("worker"),
        Job.id,
        Job.owner,
        Job.spec["stop_grace"].label("stop_grace"),
        Job.preempt_requested_at,
        Attempt.ended_at,
        _FOR.id.label("waiting"),
        _FOR.owner.label("waiting_owner"),
    )
    .join(Worker, Worker.id == Attempt.worker_id)
    .join(Job, Job.id == Attempt.job_id)
)
_STOPPING = Prepared(_DISPLACED.join(_FOR, and_(_FOR.id == Job.preempted_for, is_queued(_FOR))).where(_OPEN))
_RECENTLY = literal_column(str(in_us(OVERDUE_AFTER)))
# The condition of the partial index comes first, as it is written there.
_STOPPED = Prepared(
    _DISPLACED.join(_FOR, and_(_FOR.id == Attempt.stopped_for, is_queued(_FOR))).where(
        Attempt.stopped_for.is_not(None), Attempt.ended_at > select(now_us() - _RECENTLY).scalar_subquery()
    )
)


class Places(NamedTuple):
    """Where jobs can start."""

    now: int
    """The database's time; 0 if there is no worker."""
    hosts: tuple[Host, ...]
    pools: tuple[Pool, ...]


def read_places(session: Session, observed: Mapping[str, Sequence[DeviceReport]]) -> Places:
    """Returns the workers that are alive and those that are `observed`, by their ids."""
    holders = {(row.worker_id, row.device): row.job_id for row in _HELD.rows(session)}
    rows = _WORKERS.rows(session)
    there = [row for row in rows if row.alive or row.id in observed]
    offers = {row.id: _offer(row.starts or {}) for row in rows if row.pool is None}
    known = together(offers.values())
    hosts: list[Host] = []
    for row in there:
        if row.pool is None:
            reports = observed[row.id] if row.id in observed else map(DeviceReport.from_dict, row.devices)
            devices = tuple(_device(report, holders.get((row.id, report.uuid))) for report in reports)
            offered = row.starts or {}
            hosts.append(
                Host(
                    row.id,
                    row.name,
                    devices,
                    draining=row.drain_requested_at is not None,
                    cpus=_number(offered.get("cpus")),
                    memory_gb=_number(offered.get("memory_gb")),
                    offer=offers[row.id],
                    known=known,
                    users=None if row.users is None else frozenset(row.users),
                )
            )
    in_pools = pools.of_rows(session, [row for row in there if row.pool is not None])
    return Places((rows[0].now if rows else 0), tuple(hosts), in_pools)


def running(session: Session) -> tuple[Running, ...]:
    """Returns the jobs with an open attempt, but for those that wait in the queue of a pool's cluster."""
    rows = _RUNNING.rows(session)
    lengths = usage.usual_lengths(session, {row.owner for row in rows}) if rows else {}
    return tuple(_running(row, lengths.get((row.owner, row.trainer))) for row in rows)


def displacements(session: Session, *, max_stop_grace: timedelta) -> tuple[Displacement, ...]:
    """Returns which jobs were asked to stop for which waiting jobs, by their ids, until those have started.

    A victim that has ended counts for a while: its devices are the waiting job's.
    """
    rows = (*_STOPPING.rows(session), *_STOPPED.rows(session))
    displaced = [_displacement(row, max_stop_grace) for row in rows]
    return tuple(sorted(displaced, key=lambda one: (one.job_id, one.victim)))


def uses(session: Session, owners: Collection[str], *, now: int) -> tuple[OwnerUse, ...]:
    """Returns what these owners used until `now`, and their shares. Left out is who used nothing and has no share."""
    used, shares = usage.used_seconds(session, now=now, owners=owners), quotas.shares(session, owners)
    by_kind: dict[tuple[str, str], float] = defaultdict(float, used)
    for owner in shares:
        for kind in ("cuda", "cpu"):
            by_kind[owner, kind] += 0.0
    owner_uses: list[OwnerUse] = []
    for (owner, kind), seconds in sorted(by_kind.items()):
        one = OwnerUse(owner, "cuda" if kind == "cuda" else "cpu", seconds)
        owner_uses.append(one if owner not in shares else OwnerUse(owner, one.kind, seconds, shares[owner]))
    return tuple(owner_uses)


def fraction(progress: Any) -> float | None:
    """Returns how much of its run a job says is done, 0 to 1, by its stored progress; None if it does not say."""
    if not isinstance(progress, dict):
        return None
    steps: dict[str, Any] = progress
    for done, total in (("step", "total_steps"), ("epoch", "epochs")):
        if isinstance(steps.get(done), int) and isinstance(steps.get(total), int) and steps[total] > 0:
            return min(1.0, max(0.0, steps[done] / steps[total]))
    return None


def time_limit_us(written: Any) -> int:
    """Returns the `time_limit` of a stored spec, in microseconds."""
    return in_us(StoredSpec.model_validate({} if written is None else {"time_limit": written}).time_limit)


def _offer(starts: Mapping[str, Any]) -> Offer:
    environments = starts.get("environments", ())
    named = frozenset(one[key] for one in environments for key in ("name", "path"))
    return Offer(frozenset(starts.get("folders", ())), named) if named or starts.get("folders") else NOTHING


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


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


def _running(row: Any, usual_us: int | None) -> Running:
    return Running(
        job_id=row.id,
        owner=row.owner,
        priority=row.priority,
        preemptible=bool(row.preemptible),
        since=row.since,
        stopping=bool(row.stopping),
        worker_id=row.worker_id,
        resources=_resources(row.resources),
        submitted=row.created_at,
        limit_us=time_limit_us(row.time_limit),
        ran_us=row.ran_us,
        waited_us=max(0, row.waited_us),
        fraction=fraction(row.progress),
        usual_us=usual_us,
        saved_at=row.saved_at,
        guest=row.guest,
    )


def _resources(written: Any) -> Resources:
    try:
        return stored_spec.parse_resources(written)
    except ValidationError:  # of a newer program, whose worker runs the job: what it holds is in its allocations
        return Resources()


def _displacement(row: Any, max_stop_grace: timedelta) -> Displacement:
    if row.ended_at is not None:
        until = row.ended_at + in_us(OVERDUE_AFTER)
    else:
        written = {} if row.stop_grace is None else {"stop_grace": row.stop_grace}
        grace = min(StoredSpec.model_validate(written).stop_grace, max_stop_grace)
        until = row.preempt_requested_at + in_us(grace + OVERDUE_AFTER)
    return Displacement(
        job_id=row.waiting,
        owner=row.waiting_owner,
        victim=row.id,
        victim_owner=row.owner,
        worker_id=row.worker_id,
        worker=row.worker,
        until=until,
    )
