"""The hosts while a plan is made, with what is kept and set aside on them."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scheduling.belief import believed_left, believed_length, limit_left, most_left
from scheduling.forecast import Forecast, forecast
from scheduling.requests import Request
from scheduling.room import Holder, Room, Sort
from scheduling.snapshot import Device, Place, Running, Snapshot, Waiting


@dataclass(slots=True)
class Keep:
    """A place that is kept for a job, its holder."""

    job: Waiting
    room: Room
    place: Place
    since: int
    _known: tuple[int, Forecast] | None = None

    def forecast(self, now: int) -> Forecast:
        """Returns when the holder can start here. Its guests make way."""
        if self._known is None or self._known[0] != self.room.changes:
            estimate = forecast(self.room, self.job, now=now, guests_since=self.since)
            self._known = self.room.changes, estimate
        return self._known[1]

    def guests(self) -> list[Holder]:
        """Returns the guests of the holder that run."""
        return [
            holder
            for holder in self.room.holders.values()
            if holder.guest_since is not None and holder.guest_since >= self.since and not holder.stopping
        ]


@dataclass(slots=True)
class Aside:
    """Devices of a host that are set aside for a job for which others stop."""

    job: Waiting
    room: Room
    devices: list[Device]
    """The free ones among them."""
    borrowed: list[tuple[Holder, Sort, int]] = field(default_factory=list[tuple[Holder, Sort, int]])
    """The others, which the victims hold still."""


class Cluster:
    """All hosts while a plan is made. Free devices are only taken, never added."""

    def __init__(self, snapshot: Snapshot, rooms: dict[str, Room]) -> None:
        """`rooms`: as `rooms_of` builds them."""
        self.now = snapshot.now
        self._later_us = 0 if snapshot.waits_count_until is None else snapshot.now - snapshot.waits_count_until
        self.running = {job.job_id: job for job in snapshot.running}
        self.keeps: dict[Place, Keep] = {}
        self._keep_of: dict[str, Keep] = {}
        """By holder."""
        self.asides: dict[str, Aside] = {}
        self.preemptible: list[Holder] | None = None
        """Who may stop for a higher priority, once it is known."""
        self.settled: list[Holder] | None = None
        """Who may stop for an equal priority, once it is known."""
        self.rooms = rooms
        self._fitting: dict[Request, list[Room]] = {}
        """Where each request fits now, as far as it is known."""

    def waited_us(self, job: Waiting) -> int:
        """Returns how long the job waited in all, until now."""
        return job.waited_us + self._later_us

    def fitting(self, job: Waiting) -> list[Room]:
        """Returns the hosts on which the job fits now."""
        rooms = self._fitting.get(job.request)
        if rooms is None:
            rooms = [room for room in self.rooms.values() if room.fits(room.want(job))]
            self._fitting[job.request] = rooms
        return rooms

    def take(self, room: Room, holder: Holder, counts: Mapping[Sort, int]) -> list[Device]:
        """Gives free devices of the host to the holder, of each sort so many."""
        self._fitting.clear()
        return room.take(holder, counts)

    def keep(self, job: Waiting, room: Room, *, since: int) -> None:
        """Keeps the place of the host that the job can use for it, and no other."""
        self.release(job.id)
        place = room.host.id, room.kind(job.resources)
        if place in self.keeps:
            self.release(self.keeps[place].job.id)
        self.keeps[place] = self._keep_of[job.id] = Keep(job, room, place, since)

    def release(self, job_id: str) -> bool:
        """Keeps no place for the job any more. Returns whether one was kept."""
        keep = self._keep_of.pop(job_id, None)
        if keep is not None:
            del self.keeps[keep.place]
        return keep is not None

    def kept_for(self, job_id: str) -> Keep | None:
        return self._keep_of.get(job_id)

    def before(self, job: Waiting, room: Room) -> list[Keep]:
        """Returns the keeps that the job must respect on this host: of other jobs whose priority is not lower."""
        kind, asks = room.kind(job.resources), _asks_for_rest(job)
        return [
            keep
            for keep in self._keeps_of(room)
            if keep.job.id != job.id
            and keep.job.priority >= job.priority
            and (keep.place[1] == kind or (asks and _asks_for_rest(keep.job)))
        ]

    def holder_of(self, job: Waiting, *, late_us: int = 0, guest: bool = False) -> Holder:
        """Returns the waiting job as one that holds devices from now on. `late_us`: how much later it may start."""
        return Holder(
            job_id=job.id,
            resources=job.resources,
            believed_end=self.now + believed_length(job) + late_us,
            limit_end=self.now + most_left(job) + late_us,
            guest_since=self.now if guest else None,
        )

    def set_aside(self, job: Waiting, room: Room, victims: Iterable[Holder]) -> None:
        """Sets devices of the host aside for the job: free ones, and then those that the victims hold still."""
        want, holder = room.want(job), self.holder_of(job)
        aside = Aside(job, room, self.take(room, holder, room.pick(want)))
        missing = want.count - len(aside.devices)
        for victim in victims:
            victim.stopping, victim.believed_end, victim.limit_end = True, self.now, self.now
            for sort in want.sorts:
                count = min(victim.counts.get(sort, 0), missing)
                if count:
                    victim.counts[sort] -= count
                    holder.counts[sort] = holder.counts.get(sort, 0) + count
                    aside.borrowed.append((victim, sort, count))
                    missing -= count
        self.asides[job.id] = aside

    def aside_places(self) -> Iterator[tuple[str, Place]]:
        """Yields for whom devices are set aside, and where."""
        for aside in self.asides.values():
            yield aside.job.owner, (aside.room.host.id, aside.room.kind(aside.job.resources))

    def drop_aside(self, job_id: str) -> Aside | None:
        """Sets nothing aside for the job any more, and returns what was."""
        aside = self.asides.pop(job_id, None)
        if aside is not None:
            self._fitting.clear()
            aside.room.give_back(job_id, aside.devices)
            for victim, sort, count in aside.borrowed:
                victim.counts[sort] += count
        return aside

    def is_complete(self, aside: Aside) -> bool:
        """Returns whether the job can start on what is set aside for it."""
        want = aside.room.want(aside.job)
        cpus, memory_gb = aside.room.rest_held()
        cpus, memory_gb = cpus - want.cpus, memory_gb - want.memory_gb  # its own are among them
        return len(aside.devices) == want.count and aside.room.has_rest(want, cpus, memory_gb)

    def _keeps_of(self, room: Room) -> Iterator[Keep]:
        for kind in ("cuda", "cpu"):
            keep = self.keeps.get((room.host.id, kind))
            if keep is not None:
                yield keep


def rooms_of(snapshot: Snapshot) -> Generator[None, None, dict[str, Room]]:
    """Builds the hosts of a plan by their ids, and yields after each."""
    by_host: dict[str, dict[str, Holder]] = defaultdict(dict)
    for job in snapshot.running:
        by_host[job.worker_id][job.job_id] = _holder(job, snapshot.now, believed_left(job, snapshot.now))
    yield
    rooms: dict[str, Room] = {}
    # All workers must consider the hosts in the same order.
    for host in sorted(snapshot.hosts, key=lambda host: host.id):
        rooms[host.id] = Room(host, by_host[host.id])
        yield
    return rooms


def delays(keeps: Iterable[Keep], added: Holder, *, now: int, without: tuple[str, ...] = ()) -> bool:
    """Returns whether any holder could start later if the job `added` started now, and took all that its limit allows.

    `without`: jobs that end now.
    """
    longest = Holder(added.job_id, added.resources, added.limit_end, added.limit_end, added.counts)
    for keep in keeps:
        before = keep.forecast(now)
        after = forecast(keep.room, keep.job, now=now, guests_since=keep.since, without=without, added=longest)
        if after.due > before.due or after.bound > before.bound:
            return True
    return False


def spare_sorts(room: Room, keeps: Iterable[Keep]) -> set[Sort]:
    """Returns the sorts of devices that suit a holder: others better leave them."""
    return {sort for keep in keeps for sort in room.want(keep.job).sorts}


def _holder(job: Running, now: int, left_us: int) -> Holder:
    return Holder(
        job_id=job.job_id,
        resources=job.resources,
        believed_end=now + left_us,
        limit_end=now + (0 if job.stopping else limit_left(job, now)),
        guest_since=job.since if job.guest else None,
        stopping=job.stopping,
    )


def _asks_for_rest(job: Waiting) -> bool:
    return bool(job.resources.cpus or job.resources.memory_gb)
