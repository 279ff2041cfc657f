"""The line of one plan: the waiting jobs in their order, and which of each group are still to be considered."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Set

from scheduling.belief import believed_left
from scheduling.credit import OwnerKind, credits_of, kind_of, order_key
from scheduling.snapshot import Group, Kind, OwnerUse, Running, Snapshot, Waiting

MOST_CONSIDERED = 1_000
"""Jobs of one plan. The others wait for the next one."""

Key = tuple[int, int, str]


class Line:
    """The jobs that wait. A job that waits stands for those of its group that are behind it."""

    def __init__(self, snapshot: Snapshot, alone: Set[str]) -> None:
        """`alone`: jobs with a kept place or devices set aside, which are considered apart from their groups."""
        devices: Counter[Kind] = Counter(device.kind for host in snapshot.hosts for device in host.devices)
        self._any_gpu = devices["cuda"] > 0
        for pool in snapshot.pools:
            devices[pool.kind] += pool.devices
        owners: set[OwnerKind] = {(job.owner, self.kind(job)) for job in snapshot.line}
        credit = credits_among(
            devices, snapshot.running, snapshot.uses, owners, now=snapshot.now, any_gpu=self._any_gpu
        )
        self._keys = {job.id: order_key(job, credit[job.owner, self.kind(job)]) for job in snapshot.line}
        ordered = sorted(snapshot.line, key=self.key)
        self.alone = {job.id: job for job in ordered if job.id in alone}
        others = [job for job in ordered if job.id not in alone][:MOST_CONSIDERED]
        self.considered = sorted((*self.alone.values(), *others), key=self.key)
        self._groups: dict[Group, deque[Waiting]] = defaultdict(deque)
        for job in others:
            self._groups[job.group].append(job)

    def key(self, job: Waiting) -> Key:
        return self._keys[job.id]

    def kind(self, job: Waiting) -> Kind:
        """Returns the kind of devices that the job counts as."""
        return kind_of(job.resources, any_gpu=self._any_gpu)

    def serve(self, job: Waiting) -> None:
        """Notes that the job waits no longer: the next one of its group is the first."""
        if self.alone.pop(job.id, None) is None:
            self._groups[job.group].remove(job)

    def set_alone(self, job: Waiting) -> None:
        """Notes that the job waits, and does not stand for its group any more."""
        self.serve(job)
        self.alone[job.id] = job

    def first_of(self, group: Group) -> Waiting | None:
        """Returns the first waiting job of the group."""
        jobs = self._groups.get(group)
        return jobs[0] if jobs else None

    def is_first(self, job: Waiting) -> bool:
        """Returns whether the job waits, and none of its group before it."""
        if job.id in self.alone:
            return True
        first = self.first_of(job.group)
        return first is not None and first.id == job.id

    def firsts(self) -> list[Waiting]:
        """Returns the first waiting job of each group and those that are alone, in their order."""
        heads = [group[0] for group in self._groups.values() if group]
        return sorted((*heads, *self.alone.values()), key=self.key)

    def waiting_groups(self) -> set[Group]:
        return {name for name, group in self._groups.items() if group}


def credits_among(
    devices: Mapping[Kind, int],
    running: Iterable[Running],
    uses: Iterable[OwnerUse],
    waiting: Set[OwnerKind],
    *,
    now: int,
    any_gpu: bool,
) -> dict[OwnerKind, int]:
    """Returns the credits, in microseconds, of the owners that wait or run, by the kind of devices.

    `devices`: how many of each kind there are. `any_gpu`: whether a live worker has a GPU.
    """
    needs: dict[OwnerKind, list[float]] = defaultdict(list)
    for job in running:
        need = job.resources.total_devices * believed_left(job, now) / 1e6
        needs[job.owner, kind_of(job.resources, any_gpu=any_gpu)].append(need)
    # Sums of floats depend on their order.
    sums = {one: sum(sorted(each)) for one, each in needs.items()}
    return credits_of(devices, uses, sums, waiting)
