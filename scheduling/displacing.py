"""Which jobs stop so that a waiting one can start, and when they may be asked to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from scheduling.cluster import Cluster, delays
from scheduling.price import lost_us
from scheduling.room import Holder, Room, Sort, Want, gains
from scheduling.shapes import looked
from scheduling.snapshot import Running, Waiting

LONG_WAIT = timedelta(hours=12)
"""A holder that waited so long may displace jobs that were submitted later."""
SETTLED = timedelta(hours=2)
"""A job that started so recently is stopped for no equal priority."""
ENOUGH_WAITED = timedelta(hours=24)
"""A job that waited longer after its first start, in all, is stopped for no equal priority."""
RESTART = timedelta(seconds=60)
"""What each stop of a job costs, beside the work since its checkpoint."""

_US = timedelta(microseconds=1)
_SLACK_US = timedelta(minutes=3) // _US
"""The most that victims are expected to take to stop: by so much the other may start later."""


@dataclass(frozen=True)
class Victims:
    room: Room
    holders: list[Holder]
    cost: int


def for_priority(cluster: Cluster, job: Waiting) -> Victims | None:
    """Returns which jobs of lower priority stop for the job, if that helps: no priority that need not."""
    preemptible = _preemptible(cluster)
    priorities = {_running(cluster, holder).priority for holder in preemptible}
    for most in sorted(priority for priority in priorities if priority < job.priority):
        lower = [holder for holder in preemptible if _running(cluster, holder).priority <= most]
        victims = _cheapest(cluster, job, lower)
        if victims is not None:
            return victims
    return None


def for_first_look(cluster: Cluster, job: Waiting) -> Victims | None:
    """Returns which jobs stop so that this one, which hardly ran, can; None if it did run, or none may be stopped."""
    if looked(job.ran_us):
        return None
    return _cheapest(cluster, job, _displaceable(cluster, job))


def for_long_wait(cluster: Cluster, job: Waiting) -> Victims | None:
    """Returns which jobs that were submitted later stop for a holder that waited long."""
    if cluster.waited_us(job) < LONG_WAIT // _US:
        return None
    later = [holder for holder in _displaceable(cluster, job) if _running(cluster, holder).submitted > job.submitted]
    return _cheapest(cluster, job, later)


def guests_in_the_way(cluster: Cluster, job: Waiting) -> Victims | None:
    """Returns the guests that stop because the holder can start when they have; None if it cannot start yet."""
    keep = cluster.kept_for(job.id)
    if keep is None or keep.forecast(cluster.now).due > cluster.now:
        return None
    want = keep.room.want(job)
    costs = [(_cost(cluster, holder), holder) for holder in keep.guests() if holder.job_id in cluster.running]
    chosen = _cover(keep.room, want, costs)
    return Victims(keep.room, chosen, 0) if chosen else None


def again_at(cluster: Cluster, waiting: Sequence[Waiting]) -> int | None:
    """Returns when jobs may be stopped, by their times alone, that may not be stopped yet."""
    times: list[int] = []
    if any(not looked(job.ran_us) or cluster.kept_for(job.id) is not None for job in waiting):
        settled = [job.since + SETTLED // _US for job in cluster.running.values() if job.preemptible]
        times += [at for at in settled if at > cluster.now]
    left = [LONG_WAIT // _US - cluster.waited_us(keep.job) for keep in cluster.keeps.values()]
    times += [cluster.now + more for more in left if more > 0]
    return min(times, default=None)


def _displaceable(cluster: Cluster, job: Waiting) -> list[Holder]:
    """Returns who may stop for an equal priority."""
    if cluster.settled is None:
        cluster.settled = [holder for holder in _preemptible(cluster) if _is_settled(cluster, holder)]
    return [holder for holder in cluster.settled if _running(cluster, holder).priority <= job.priority]


def _is_settled(cluster: Cluster, holder: Holder) -> bool:
    running = _running(cluster, holder)
    return cluster.now - running.since >= SETTLED // _US and running.waited_us < ENOUGH_WAITED // _US


def _preemptible(cluster: Cluster) -> list[Holder]:
    """Returns the jobs that may be stopped at all. One that has just started is not, in the same pass."""
    if cluster.preemptible is None:
        cluster.preemptible = [
            holder
            for room in cluster.rooms.values()
            for holder in room.holders.values()
            if (running := cluster.running.get(holder.job_id)) is not None
            and running.preemptible
            and running.since < cluster.now
        ]
    return cluster.preemptible


def _cheapest(cluster: Cluster, job: Waiting, candidates: Sequence[Holder]) -> Victims | None:
    by_room: dict[str, list[Holder]] = {}
    for holder in candidates:
        if not holder.stopping:
            by_room.setdefault(_running(cluster, holder).worker_id, []).append(holder)
    if not by_room:
        return None
    choices: list[Victims] = []
    for name, room in cluster.rooms.items():
        want = room.want(job)
        if room.fits(want, soon=True):
            if not cluster.before(job, room):
                return None
            continue
        theirs = by_room.get(name)
        if theirs is None or not want.possible or not _suffice(room, want, theirs):
            continue
        theirs.sort(key=lambda holder: _preference(cluster, holder))
        chosen = _cover(room, want, [(_cost(cluster, holder), holder) for holder in theirs])
        if chosen and _respects_keeps(cluster, job, room, chosen):
            choices.append(Victims(room, chosen, sum(_cost(cluster, holder) for holder in chosen)))
    return min(choices, key=lambda victims: (victims.cost, victims.room.host.id), default=None)


def _suffice(room: Room, want: Want, holders: Sequence[Holder]) -> bool:
    """Returns whether enough devices are free when all of them have stopped."""
    free = room.count_free(want, soon=True)
    for holder in holders:
        free += gains(holder.counts, want.sorts)
    return free >= want.count


def _running(cluster: Cluster, holder: Holder) -> Running:
    return cluster.running[holder.job_id]


def _preference(cluster: Cluster, holder: Holder) -> tuple[int, int, str]:
    """Of victims that cost the same, the lowest priority stops, and then the job that began last."""
    running = cluster.running[holder.job_id]
    return running.priority, -running.since, running.job_id


def _cost(cluster: Cluster, holder: Holder) -> int:
    """Returns the device microseconds that a stop costs."""
    running = cluster.running[holder.job_id]
    devices = running.resources.total_devices
    lost = lost_us(now=cluster.now, since=running.since, saved_at=running.saved_at, devices=devices)
    return devices * (RESTART // _US) + lost


def _cover(room: Room, want: Want, costs: Sequence[tuple[int, Holder]]) -> list[Holder] | None:
    """Returns the set with the least cost whose end gives the job its devices; None if even all are not enough."""
    missing = want.count - room.count_free(want, soon=True)
    chosen = _least_cost(missing, [(cost, gains(holder.counts, want.sorts)) for cost, holder in costs])
    if chosen is None:
        return None
    victims = [costs[index][1] for index in chosen]
    for _, holder in sorted(costs, key=lambda one: one[0]):
        if _rest_suffices(room, want, victims):
            return victims
        if holder not in victims and (holder.resources.cpus or holder.resources.memory_gb):
            victims.append(holder)
    return victims if _rest_suffices(room, want, victims) else None


def _least_cost(missing: int, options: Sequence[tuple[int, int]]) -> list[int] | None:
    """Returns the indexes of the options, each a cost and a gain, that gain what is missing at the least cost."""
    if missing <= 0:
        return []
    best: list[tuple[int, list[int]] | None] = [(0, []), *[None] * missing]
    for index, (cost, gain) in enumerate(options):
        if gain <= 0:
            continue
        for have in range(missing - 1, -1, -1):
            one = best[have]
            if one is None:
                continue
            reached, total = min(missing, have + gain), one[0] + cost
            other = best[reached]
            if other is None or total < other[0]:
                best[reached] = total, [*one[1], index]
    least = best[missing]
    return None if least is None else least[1]


def _rest_suffices(room: Room, want: Want, victims: Sequence[Holder]) -> bool:
    if not (want.cpus or want.memory_gb):
        return True
    cpus, memory_gb = room.rest_held()
    cpus -= sum(holder.resources.cpus or 0.0 for holder in victims)
    memory_gb -= sum(holder.resources.memory_gb or 0.0 for holder in victims)
    return room.has_rest(want, cpus, memory_gb)


def _respects_keeps(cluster: Cluster, job: Waiting, room: Room, victims: Sequence[Holder]) -> bool:
    keeps = cluster.before(job, room)
    if not keeps:
        return True
    want = room.want(job)
    added = cluster.holder_of(job, late_us=_SLACK_US)
    added.counts = _counts_after(room, want, victims)
    return not delays(keeps, added, now=cluster.now, without=tuple(holder.job_id for holder in victims))


def _counts_after(room: Room, want: Want, victims: Sequence[Holder]) -> dict[Sort, int]:
    """Returns the devices that the job would have: free ones, and then the victims'."""
    counts = room.pick(want)
    missing = want.count - sum(counts.values())
    for victim in victims:
        for sort in want.sorts:
            more = min(victim.counts.get(sort, 0), missing)
            counts[sort] = counts.get(sort, 0) + more
            missing -= more
    return counts
