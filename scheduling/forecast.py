"""When a job can start on a host that is full now: by belief, and at the latest by time limits."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from scheduling.room import NEVER, Holder, Room, Want, gains
from scheduling.snapshot import Waiting


@dataclass(frozen=True, slots=True)
class Forecast:
    due: int
    """When the job can start, if those that hold its devices end as believed."""
    bound: int
    """When it can start at the latest. `NEVER`: nobody knows."""


def forecast(
    room: Room,
    job: Waiting,
    *,
    now: int,
    guests_since: int = NEVER,
    without: Collection[str] = (),
    added: Holder | None = None,
) -> Forecast:
    """Returns when the job can start here, if no other job starts before.

    `guests_since`: guests that started since then make way at once. `without`: jobs that end now. `added`: one more
    job that starts now; its `counts` are devices that are free, or held by `without`.
    """
    want = room.want(job)
    gone: list[Holder] = []
    staying: list[Holder] = [] if added is None else [added]
    for holder in room.holders.values():
        is_guest = holder.guest_since is not None and holder.guest_since >= guests_since
        (gone if is_guest or holder.job_id in without else staying).append(holder)
    free = room.count_free(want, soon=True) + sum(gains(holder.counts, want.sorts) for holder in gone)
    free -= 0 if added is None else gains(added.counts, want.sorts)
    rest = _rest_free(room, want, staying)
    return Forecast(
        _earliest(want, free, rest, staying, end=lambda holder: holder.believed_end, now=now),
        _earliest(want, free, rest, staying, end=lambda holder: holder.limit_end, now=now),
    )


def _rest_free(room: Room, want: Want, staying: Iterable[Holder]) -> tuple[float, float]:
    """Returns the CPUs and GiB of memory of the host that nobody holds."""
    if not (want.cpus or want.memory_gb):
        return 0.0, 0.0
    requests = [holder.resources for holder in staying]
    cpus = (room.host.cpus or 0.0) - sum(one.cpus or 0.0 for one in requests)
    return cpus, (room.host.memory_gb or 0.0) - sum(one.memory_gb or 0.0 for one in requests)


def _earliest(
    want: Want,
    free: int,
    rest: tuple[float, float],
    staying: Iterable[Holder],
    *,
    end: Callable[[Holder], int],
    now: int,
) -> int:
    """Returns the first end after which enough is free; `now` if that is so already."""
    cpus, memory_gb = rest
    at = now
    remaining = iter(sorted(staying, key=end))
    while free < want.count or cpus < want.cpus - 1e-9 or memory_gb < want.memory_gb - 1e-9:
        holder = next(remaining, None)
        if holder is None:
            return NEVER
        at = max(now, end(holder))
        free += gains(holder.counts, want.sorts)
        cpus += holder.resources.cpus or 0.0
        memory_gb += holder.resources.memory_gb or 0.0
    return at
