"""Reads what `scheduling.plan` needs, at one moment. It costs by the groups of waiting jobs, not by the jobs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from scheduling.plan import plan
from scheduling.snapshot import Displacement, Place, RecordedReasons, Snapshot, Waiting
from scheduling.steps import Plan
from store.db.database import Snapshots
from store.facts.jobs import WAITING
from store.queries.groups import Groups
from store.rows import cluster, quotas, reasons, reservations, waiting
from torchyard.contract.devices import DeviceReport
from torchyard.contract.durations import LONGEST_STOP_GRACE
from torchyard.contract.job import Reason

_MOST_SUCCESSORS = 1000
"""Jobs that are read behind the first ones of their groups for one plan. The others wait for the next one."""
_READ_AT_ONCE = 16
"""Jobs of a group that one statement reads for the question where a job would stand."""

Read = Callable[[], AbstractContextManager[Session]]


def read_snapshot(
    read: Read, *, here: str, devices: Sequence[DeviceReport], max_stop_grace: timedelta = LONGEST_STOP_GRACE
) -> tuple[Snapshot, Plan] | None:
    """Returns the cluster as the worker `here` reads it, and its plan; None if no job waits. Raises Unavailable.

    Jobs are found in the line, and what is said of them is in their rows.

    `devices`: the worker's own, as they are now. `max_stop_grace`: what cuts the jobs' `stop_grace`.
    """
    with read() as session:
        groups = Groups(session)
        heads = groups.heads()
        if not heads:
            return None
        snapshot = _snapshot(session, heads, {here: devices}, here=here, max_stop_grace=max_stop_grace)
        return _with_successors(snapshot, groups, at_once=max(1, len(devices)))


def reason_of(session: Session, job: Waiting, *, max_stop_grace: timedelta = LONGEST_STOP_GRACE) -> Reason | None:
    """Returns why the job would not start at once if it joined the line now; None if it would. Nothing is stored.

    It is the last of its group: while others of it wait, it waits for the same. It costs two plans of what the workers
    have reported, beside those of the jobs that could start now.
    """
    groups = Groups(session)
    heads = groups.heads()
    snapshot = _snapshot(session, heads, {}, here="", max_stop_grace=max_stop_grace, newcomer=job)
    snapshot, planned = _with_successors(snapshot, groups, at_once=_READ_AT_ONCE)
    if any(one.group == job.group for one in snapshot.line) and job.group not in planned.used_up:
        return planned.reasons.by_shape.get(job.shape, WAITING)
    planned = plan(replace(snapshot, line=(*snapshot.line, job)))
    if any(start.job.id == job.id for start in planned.starts):
        return None
    return planned.reasons.of(job) or WAITING


def displacements(read: Read, *, max_stop_grace: timedelta = LONGEST_STOP_GRACE) -> tuple[Displacement, ...]:
    """Returns which jobs were asked to stop for which waiting jobs, as `store.rows.cluster.displacements` does."""
    with read() as session:
        return cluster.displacements(session, max_stop_grace=max_stop_grace)


def waits(store: Snapshots, job_id: str) -> bool:
    """Returns whether the job waits to be placed. Raises Unavailable."""
    with store.read() as session:
        return bool(waiting.waiting_among(session, [job_id]))


def kept_version(store: Snapshots, place: Place) -> int | None:
    """Returns the version of the place's reservation; None if it is kept for nobody. Raises Unavailable."""
    with store.read() as session:
        return reservations.version_of(session, *place)


def _snapshot(
    session: Session,
    heads: Sequence[Waiting],
    observed: Mapping[str, Sequence[DeviceReport]],
    *,
    here: str,
    max_stop_grace: timedelta,
    newcomer: Waiting | None = None,
) -> Snapshot:
    """Returns the cluster with the first jobs of each group. `newcomer`: not in it, but its owner is."""
    now, hosts, pools = cluster.places(session, observed)
    displacements = cluster.displacements(session, max_stop_grace=max_stop_grace)
    kept = reservations.kept_places(session)
    favoured = {one.job_id for one in displacements} | {one.job_id for one in kept}
    line = {job.id: job for job in (*heads, *waiting.waiting_among(session, favoured))}
    running = cluster.running(session)
    waiting_owners = {job.owner for job in line.values()} | ({newcomer.owner} if newcomer else set())
    owners = waiting_owners | {job.owner for job in running}
    return Snapshot(
        here=here,
        now=now,
        hosts=hosts,
        running=running,
        line=tuple(line.values()),
        pools=pools,
        displacements=displacements,
        reservations=tuple(kept),
        allowances=quotas.allowances(session, waiting_owners),
        uses=cluster.uses(session, owners, now=now),
        recorded=RecordedReasons(reasons.by_shape(session), reasons.of_favoured(session, favoured)),
    )


def _with_successors(snapshot: Snapshot, groups: Groups, *, at_once: int) -> tuple[Snapshot, Plan]:
    """Adds the next jobs of each group whose first ones do not wait, `at_once` in a statement. Returns the plan, too.

    Only a plan knows whether the first jobs of a group wait.
    """
    known = {job.id for job in snapshot.line}
    most = len(known) + _MOST_SUCCESSORS
    planned = plan(snapshot)
    while len(known) < most and (more := groups.going_on(planned.used_up)):
        for group in more:
            new = tuple(job for job in groups.more(group, limit=at_once) if job.id not in known)
            known.update(job.id for job in new)
            snapshot = replace(snapshot, line=snapshot.line + new)
        planned = plan(snapshot)
    return snapshot, planned
