"""The plan of all workers for a snapshot: which jobs start, which stop, which places are kept, and why others wait."""

from collections.abc import Generator

from scheduling import reservation
from scheduling.cluster import Cluster, rooms_of
from scheduling.line import Line
from scheduling.snapshot import Snapshot
from scheduling.steps import Plan
from scheduling.taking import names_pool, refusal
from scheduling.walk import Walk


def plan(snapshot: Snapshot) -> Plan:
    """Returns what all workers do. Equal snapshots give equal plans, in whatever order they list.

    A worker carries out the steps on its own devices and jobs. While `used_up` names groups that have more jobs, the
    line is not complete: the plan must be made again with their next ones.
    """
    slices = planning(snapshot)
    while True:
        try:
            next(slices)
        except StopIteration as ended:
            return ended.value


def planning(snapshot: Snapshot) -> Generator[None, None, Plan]:
    """Makes the plan in small pieces, and returns it."""
    walk = yield from walk_of(snapshot)
    yield from walk.walking()
    yield
    return walk.plan()


def walk_of(snapshot: Snapshot) -> Generator[None, None, Walk]:
    """Builds the walk of a plan in small pieces: what was kept and set aside is so still."""
    cluster = Cluster(snapshot, (yield from rooms_of(snapshot)))
    jobs = {job.id: job for job in snapshot.line}
    holders = [jobs[one.job_id] for one in snapshot.reservations if one.job_id in jobs]
    able = {job.id: job for job in holders if refusal(job, snapshot.allowances) is None and not names_pool(job)}
    reservation.restore(cluster, snapshot.reservations, able)
    yield
    alone = {keep.job.id for keep in cluster.keeps.values()} | {one.job_id for one in snapshot.displacements}
    line = Line(snapshot, alone & jobs.keys())
    yield
    return Walk(snapshot, cluster, line)
