"""The snapshot of a plan, by its rows and the line, and what the plan says of a job that is not in the line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from sqlalchemy.orm import Session

from scheduling.plan import plan
from scheduling.pools import next_for
from scheduling.snapshot import Host, RecordedReasons, Snapshot, Waiting
from scheduling.steps import Plan
from store.cluster import occupancy as cluster
from store.jobs import reasons
from store.jobs.facts import WAITING
from store.queue import reservations, waiting
from store.queue.groups import Groups
from store.team import quotas
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.states import Reason

_MOST_SUCCESSORS = 1000
"""Jobs that are read behind the first ones of their groups for one plan. The others wait for the next one."""
_READ_AT_ONCE = 16
"""Jobs of a group that one statement reads for the question where a job would stand."""


@dataclass(frozen=True)
class Outlook:
    """What the plan says of one waiting job."""

    reason: Reason | None
    """Why it does not start at once; None if it does."""
    around: Snapshot
    """What the plan was made of, and who is first in the job's group without it. The job may be in its line."""


def snapshot(
    session: Session,
    heads: Sequence[Waiting],
    observed: Mapping[str, Sequence[DeviceReport]],
    *,
    max_stop_grace: timedelta,
    newcomer: Waiting | None = None,
) -> Snapshot:
    """Returns the cluster with the first jobs of each group. `newcomer`: not in it, but its owner is.

    `observed`: devices as they are now, by worker; those of the others are as they were reported last.
    """
    now, hosts, pools = cluster.read_places(session, observed)
    displacements = cluster.displacements(session, max_stop_grace=max_stop_grace)
    reserved = reservations.kept_places(session)
    favoured = {one.job_id for one in displacements} | {one.job_id for one in reserved}
    line = {job.id: job for job in _for_limits(hosts, (*heads, *waiting.waiting_among(session, favoured)))}
    running = cluster.running(session)
    waiting_owners = {job.owner for job in line.values()} | ({newcomer.owner} if newcomer else set())
    owners = waiting_owners | {job.owner for job in running}
    return Snapshot(
        now=now,
        hosts=hosts,
        running=running,
        line=tuple(line.values()),
        pools=pools,
        displacements=displacements,
        reservations=tuple(reserved),
        allowances=quotas.allowances(session, waiting_owners),
        uses=cluster.uses(session, owners, now=now),
        recorded=RecordedReasons(reasons.by_shape(session), reasons.of_favoured(session, favoured)),
    )


def with_successors(seen: Snapshot, groups: Groups, *, at_once: int) -> tuple[Snapshot, Plan]:
    """Adds the next jobs of each group whose first ones do not wait, `at_once` in a statement. Returns the plan, too.

    Only a plan knows whether the first jobs of a group wait.
    """
    known = {job.id for job in seen.line}
    most = len(known) + _MOST_SUCCESSORS
    planned = plan(seen)
    while len(known) < most and (more := groups.going_on(planned.used_up)):
        for group in more:
            new = tuple(
                job for job in _for_limits(seen.hosts, groups.more(group, limit=at_once)) if job.id not in known
            )
            known.update(job.id for job in new)
            seen = replace(seen, line=seen.line + new)
        planned = plan(seen)
    return seen, planned


def outlook_of(session: Session, job: Waiting, *, max_stop_grace: timedelta) -> Outlook:
    """Returns what the plan says of a job of the line, or of one that joined it now. Nothing is stored.

    A newcomer is the last of its group: while others of it wait, it waits for the same. It costs two plans of what the
    workers have reported, beside those of the jobs that could start now.
    """
    groups = Groups(session)
    heads = groups.heads(also=job.group)
    seen = snapshot(session, heads, {}, max_stop_grace=max_stop_grace, newcomer=job)
    seen = replace(seen, crowded=groups.crowded)
    [job] = _for_limits(seen.hosts, [job])
    seen, planned = with_successors(seen, groups, at_once=_READ_AT_ONCE)
    if all(one.id != job.id for one in seen.line):
        others = any(one.group == job.group for one in seen.line)
        if others and (job.group not in planned.used_up or groups.going_on({job.group})):
            return Outlook(planned.reasons.by_shape.get(job.shape, WAITING), seen)
        seen = replace(seen, line=(*seen.line, job))
        planned = plan(seen)
    start = next((one for one in planned.starts if one.job.id == job.id), None)
    if start is None:
        return Outlook(planned.reasons.of(job) or WAITING, _with_next(seen, groups, job))
    # The service gives it to the pool at once. The cluster's own scheduler decides when it starts.
    return Outlook(None if start.placement.devices else next_for(job.resources), seen)


def _with_next(seen: Snapshot, groups: Groups, job: Waiting) -> Snapshot:
    """Adds who is first in the job's group without it."""
    if not groups.going_on({job.group}) or sum(one.group == job.group for one in seen.line) > 1:
        return seen
    known = {one.id for one in seen.line}
    following = tuple(one for one in _for_limits(seen.hosts, groups.more(job.group, limit=1)) if one.id not in known)
    return replace(seen, line=seen.line + following)


def _for_limits(hosts: Sequence[Host], jobs: Sequence[Waiting]) -> Sequence[Waiting]:
    """Tells jobs of different owners apart, where a host takes only those of some."""
    if all(host.users is None for host in hosts):
        return jobs
    return [replace(job, needs=replace(job.needs, owner=job.owner)) for job in jobs]
