"""Which places are kept for jobs that fit nowhere yet."""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from scheduling.cluster import Cluster, Keep
from scheduling.forecast import Forecast, forecast
from scheduling.room import Room
from scheduling.snapshot import Reservation, Waiting

_US = timedelta(microseconds=1)
_GAIN_US = timedelta(minutes=1) // _US
"""A place is given up for another only if the job gains so much."""
_LEAST_NEWS = 0.1
"""The stored times of a place are replaced if they are wrong by this part of what is left of them."""


def restore(cluster: Cluster, stored: Iterable[Reservation], line: Mapping[str, Waiting]) -> None:
    """Keeps the stored places. One is given up whose holder left the line, or whose host can not run it any more."""
    for one in sorted(stored, key=lambda one: (one.place, one.job_id)):
        job, room = line.get(one.job_id), cluster.rooms.get(one.worker_id)
        if job is None or room is None or room.kind(job.resources) != one.kind:
            continue
        if room.want(job).possible:
            cluster.keep(job, room, since=one.since)


def reserve(cluster: Cluster, job: Waiting) -> bool:
    """Keeps the place for the job where it can start first. Returns False if one that could run it is kept already."""
    rooms = _able(cluster, job)
    if not rooms or any(cluster.before(job, room) for room in rooms):
        return False
    room, _ = _best(cluster, job, rooms)
    cluster.keep(job, room, since=_after_guests(cluster, room))
    return True


def move(cluster: Cluster, keep: Keep) -> bool:
    """Keeps another place for the holder, if it can start earlier there, and no later at the latest."""
    job, here = keep.job, keep.forecast(cluster.now)
    kept = {other.room.host.id for other in cluster.keeps.values()}
    rooms = [room for room in _able(cluster, job) if room.host.id not in kept]
    better: list[Room] = []
    for room in rooms:
        there = forecast(room, job, now=cluster.now)
        if there.due <= here.due and there.bound <= here.bound and _gain(here, there) >= _GAIN_US:
            better.append(room)
    if not better:
        return False
    room, _ = _best(cluster, job, better)
    cluster.keep(job, room, since=_after_guests(cluster, room))
    return True


def wanted(cluster: Cluster, stored: Iterable[Reservation], started: Collection[str]) -> tuple[Reservation, ...]:
    """Returns all places that are kept from now on. Stored times that are nearly right stay, so rows rarely change.

    `started`: the jobs that start by this plan. Their places stay kept until their claims are stored: whoever is to
    have one then gets it by the next plan, and has until then what was kept for it before.
    """
    before = {one.place: one for one in sorted(stored, key=lambda one: (one.place, one.job_id))}
    of_job = {one.job_id: one for one in before.values()}
    by_place = {place: _wanted(cluster, keep, before.get(place)) for place, keep in cluster.keeps.items()}
    staying = [one for one in before.values() if one.job_id in started]
    while staying:
        one = staying.pop()
        next_holder = by_place.get(one.place)
        by_place[one.place] = one
        if next_holder is not None and next_holder.job_id in of_job:
            staying.append(of_job[next_holder.job_id])
    return tuple(by_place[place] for place in sorted(by_place))


def _able(cluster: Cluster, job: Waiting) -> list[Room]:
    return [room for room in cluster.rooms.values() if room.want(job).possible]


def _best(cluster: Cluster, job: Waiting, rooms: Iterable[Room]) -> tuple[Room, Forecast]:
    forecasts = [(room, forecast(room, job, now=cluster.now)) for room in rooms]
    return min(forecasts, key=lambda one: (one[1].due, one[1].bound, one[0].host.id))


def _after_guests(cluster: Cluster, room: Room) -> int:
    """Returns from when on guests of the host are those of a new holder: those that run are of an earlier one."""
    guests = (holder.guest_since for holder in room.holders.values())
    return max([cluster.now, *(since + 1 for since in guests if since is not None)])


def _gain(here: Forecast, there: Forecast) -> int:
    return max(here.due - there.due, here.bound - there.bound)


def _wanted(cluster: Cluster, keep: Keep, stored: Reservation | None) -> Reservation:
    at = keep.forecast(cluster.now)
    same = stored is not None and (stored.job_id, stored.since) == (keep.job.id, keep.since)
    if stored is not None and same and _near(stored, at, cluster.now):
        return stored
    return Reservation(
        worker_id=keep.place[0],
        kind=keep.place[1],
        job_id=keep.job.id,
        owner=keep.job.owner,
        due=at.due,
        bound=at.bound,
        since=keep.since,
        version=1 if stored is None else stored.version + 1,
    )


def _near(stored: Reservation, at: Forecast, now: int) -> bool:
    pairs = (stored.due, at.due), (stored.bound, at.bound)
    return all(abs(old - new) <= max(_GAIN_US, _LEAST_NEWS * (max(old, new) - now)) for old, new in pairs)
