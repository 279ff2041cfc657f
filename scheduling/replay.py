"""When waiting jobs start, if all jobs run as long as they are believed to: the plan, run forward."""

from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from scheduling.future import Future
from scheduling.plan import walk_of
from scheduling.room import Room
from scheduling.snapshot import Snapshot

_T = TypeVar("_T")


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
    new plan. It ends before the first end of a job of which nobody knows how long it runs: later starts are unknown.
    Nobody submits anything meanwhile. It yields after each small piece of work, and ends when all of `only`
    have started (None: all that wait), or when nothing more can start.

    `by_limits`: jobs run as long as they may, so all ends are known.
    """
    future = Future(_by_limits(snapshot) if by_limits else snapshot)
    missing: set[str] = set()
    for reason_codes in _possible(snapshot):
        missing |= reason_codes
        yield Reached(future.now, future.starts)
    if only is not None:
        missing &= {*only}
    while missing:
        again_at = yield from _plan(future)
        missing -= future.starts.keys()
        at = future.next_moment(again_at)
        if at is None or (not by_limits and future.is_guess(at)):
            break
        future.pass_to(at)
        yield Reached(future.now, future.starts)
    return future.starts


def _plan(future: Future) -> Generator[Reached, None, int | None]:
    """Carries out plans until one does nothing. Returns when the next one must be made at the latest."""
    while True:
        building, reached = walk_of(future.snapshot()), Reached(future.now, future.starts)
        walk = yield from _reaching(building, reached)
        yield from _reaching(walk.walking(), reached)
        steps, reservations = walk.decided()
        future.carry_out(steps, reservations)
        yield reached
        if not steps:
            return walk.again_at()


def _reaching(pieces: Generator[None, None, _T], reached: Reached) -> Generator[Reached, None, _T]:
    """Returns what the pieces do, and yields `reached` after each."""
    while True:
        try:
            next(pieces)
        except StopIteration as ended:
            return ended.value
        yield reached


def _possible(snapshot: Snapshot) -> Iterator[set[str]]:
    """Yields, by pieces, the waiting jobs that fit somewhere when nothing else runs there."""
    pools = {pool.name for pool in snapshot.pools}
    yield {job.id for job in snapshot.line if job.resources.pool in pools}
    requests = {job.request: job for job in snapshot.line if job.resources.pool is None}
    for host in snapshot.hosts:
        room = Room(host, {})
        fitting = {request for request, job in requests.items() if room.want(job).possible}
        yield {job.id for job in snapshot.line if job.request in fitting}


def _by_limits(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot in which nobody tells anything but limits."""
    return replace(
        snapshot,
        running=tuple(replace(job, fraction=None, usual_us=None) for job in snapshot.running),
        line=tuple(replace(job, fraction=None, usual_us=None) for job in snapshot.line),
    )
