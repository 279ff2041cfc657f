"""Changes of a waiting job with which `plan` would start it now, without stopping anybody for it."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from scheduling.cluster import rooms_of
from scheduling.plan import planning
from scheduling.room import Room
from scheduling.shapes import limit_class, looked
from scheduling.snapshot import Snapshot, Waiting
from torchyard.contract.wire.units import format_duration, parse_duration

Change = Literal["time_limit", "devices", "preemptible"]

LIMITS = tuple(map(parse_duration, ("30m", "1h", "2h", "4h", "8h", "12h", "24h", "2d", "4d", "7d", "14d", "30d")))
"""The time limits that are tried, in rising order."""

_US = timedelta(microseconds=1)


@dataclass(frozen=True)
class Alternative:
    """A change with which the job would start now."""

    change: Change
    job: Waiting
    """With this change, and no other."""

    @property
    def value(self) -> str:
        """What to set: a duration, a number of devices of a node, or `true`."""
        match self.change:
            case "time_limit":
                return format_duration(self.job.limit_us * _US)
            case "devices":
                return str(self.job.resources.devices_per_node)
            case "preemptible":
                return "true"


def alternatives(snapshot: Snapshot, job: Waiting) -> Iterator[Alternative | None]:
    """Yields at most one change of each kind, and None after each piece of work, so that the caller can stop there.

    The longest time limit and the most devices are found by halving: the next longer limit of `LIMITS`, and one more
    device, do not start it.

    `snapshot`: all that `plan` needs. `job`: one that does not start, in the line or not. There are none for a job that
    a quota holds back, that names a pool, or for which others stop already.
    """
    if _is_held(snapshot, job):
        return
    others = replace(snapshot, line=tuple(one for one in snapshot.line if one.id != job.id))
    rooms = yield from rooms_of(snapshot)
    most = max((_free(room, job) for room in rooms.values()), default=0)
    yield None
    fits = most >= job.resources.total_devices
    tried: tuple[tuple[Change, Sequence[Waiting]], ...] = (
        ("time_limit", _with_limits(job) if fits else ()),
        ("devices", _with_devices(job, most)),
        ("preemptible", (replace(job, preemptible=True),) if fits and not job.preemptible else ()),
    )
    for change, variants in tried:
        value = yield from _last_to_start(others, variants)
        if value is not None:
            yield Alternative(change, value)


def _is_held(snapshot: Snapshot, job: Waiting) -> bool:
    allowance = snapshot.allowances.get(job.owner)
    if allowance is not None and allowance.refusal(job.resources.total_devices) is not None:
        return True
    return job.resources.pool is not None or any(one.job_id == job.id for one in snapshot.displacements)


def _free(room: Room, job: Waiting) -> int:
    """Returns how many free devices of the host suit the job: it starts on no more."""
    want = room.want(job)
    return 0 if room.host.draining or not room.hosts_rest(want) else room.count_free(want)


def _with_limits(job: Waiting) -> Sequence[Waiting]:
    limits = [limit // _US for limit in LIMITS]
    return [replace(job, limit_us=limit_us) for limit_us in limits if job.ran_us < limit_us < job.limit_us]


def _with_devices(job: Waiting, most: int) -> Sequence[Waiting]:
    counts = range(1, min(most, job.resources.devices_per_node - 1) + 1)
    return [replace(job, resources=job.resources.model_copy(update={"devices_per_node": count})) for count in counts]


def _last_to_start(others: Snapshot, variants: Sequence[Waiting]) -> Generator[None, None, Waiting | None]:
    """Returns the last of the variants that starts, if each one after it asks for more. It makes few plans."""
    first_failed, last_started = len(variants), -1
    at = 0  # most often none starts
    while last_started + 1 < first_failed:
        if (yield from _starts(others, variants[at])):
            last_started = at
        else:
            first_failed = at
        at = (last_started + first_failed) // 2
    return variants[last_started] if last_started >= 0 else None


def _starts(others: Snapshot, variant: Waiting) -> Generator[None, None, bool]:
    shape = next((one.shape for one in others.line if _are_alike(one, variant)), f"{variant.shape} changed")
    planned = yield from planning(replace(others, line=(*others.line, replace(variant, shape=shape))))
    starts = any(start.job.id == variant.id for start in planned.starts)
    return starts and not any(stop.job.id == variant.id for stop in planned.stops)


def _are_alike(one: Waiting, other: Waiting) -> bool:
    """Returns whether two jobs have one shape."""
    return (
        one.owner == other.owner
        and one.preemptible == other.preemptible
        and _terms(one) == _terms(other)
        and one.resources == other.resources
    )


def _terms(job: Waiting) -> tuple[int, bool]:
    return limit_class(max(0, job.limit_us - job.ran_us)), looked(job.ran_us)
