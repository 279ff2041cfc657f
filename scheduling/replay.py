"""When waiting jobs start, if all jobs run as long as they are believed to: the plan, run forward."""

from collections.abc import Collection, Generator, Mapping
from dataclasses import replace
from typing import NamedTuple

from scheduling.cluster import Cluster
from scheduling.future import Future
from scheduling.snapshot import Snapshot
from scheduling.walk import Walk


class Reached(NamedTuple):
    """How far a replay is."""

    at: int
    """The moment that it has reached."""
    starts: Mapping[str, int]
    """When each job starts first. It grows while the replay goes on."""


def replay(
    snapshot: Snapshot, *, only: Collection[str] | None = None, by_limits: bool = False
) -> Generator[Reached, None, Mapping[str, int]]:
    """Runs the plan forward, and returns when each waiting job starts first; those that never do are not in it.

    Running jobs end when they are believed to, and waiting ones run as long as they are believed to; each end makes a
    new plan. Nobody submits anything meanwhile. It yields after each small piece of work, and ends when all of `only`
    have started (None: all that wait), or when nothing more can start.

    `by_limits`: jobs run as long as they may.
    """
    future = Future(_by_limits(snapshot) if by_limits else snapshot)
    missing = _possible(snapshot) if only is None else _possible(snapshot) & {*only}
    while missing:
        again_at = yield from _plan(future)
        missing -= future.starts.keys()
        at = future.next_moment(again_at)
        if at is None:
            break
        future.pass_to(at)
    return future.starts


def _plan(future: Future) -> Generator[Reached, None, int | None]:
    """Carries out plans until one does nothing. Returns when the next one must be made at the latest."""
    while True:
        walk = Walk(future.snapshot())
        for _ in walk.walking():
            yield Reached(future.now, future.starts)
        steps, reservations = walk.decided()
        future.carry_out(steps, reservations)
        yield Reached(future.now, future.starts)
        if not steps:
            return walk.again_at()


def _possible(snapshot: Snapshot) -> set[str]:
    """Returns the waiting jobs that fit somewhere when nothing else runs there."""
    rooms = [*Cluster(snapshot).rooms.values()]
    pools = {pool.name for pool in snapshot.pools}
    possible = {
        request: any(room.want(job).possible for room in rooms)
        if job.resources.pool is None
        else job.resources.pool in pools
        for request, job in {job.request: job for job in snapshot.line}.items()
    }
    return {job.id for job in snapshot.line if possible[job.request]}


def _by_limits(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot in which nobody tells anything but limits."""
    return replace(
        snapshot,
        running=tuple(replace(job, fraction=None, usual_us=None) for job in snapshot.running),
        line=tuple(replace(job, fraction=None, usual_us=None) for job in snapshot.line),
    )
