"""One host while a plan is made: its free devices, and who holds the others until when."""

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from scheduling.requests import Request
from scheduling.snapshot import Device, Host, Kind, Waiting
from torchyard.contract.cluster.fitting import suitable
from torchyard.contract.spec.resources import Resources

Sort = tuple[Kind, int, str]
"""Kind, memory and name: devices of one sort suit the same jobs."""
NEVER = 1 << 62
"""The end of a job of which nothing is known."""


@dataclass(slots=True)
class Holder:
    """A job that holds devices of the host, or for which some are set aside."""

    job_id: str
    resources: Resources
    believed_end: int
    limit_end: int
    counts: dict[Sort, int] = field(default_factory=dict[Sort, int])
    guest_since: int | None = None
    """When it started as a guest."""
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Want:
    """What a job asks for on this host: `sorts` are those of its devices that suit it, the smallest first."""

    count: int
    sorts: tuple[Sort, ...]
    cpus: float
    memory_gb: float
    possible: bool
    """Whether the job fits if nothing else runs here."""


class Room:
    """What one plan leaves of a host."""

    def __init__(self, host: Host, holders: Mapping[str, Holder]) -> None:
        self.host = host
        self.changes = 0
        """Rises when devices are taken or given back."""
        self.holders: dict[str, Holder] = {}
        self.free: dict[Sort, list[Device]] = {}
        """By sort, the lowest index first."""
        self.counts: dict[Sort, int] = {}
        """All devices."""
        self.usable: dict[Sort, int] = {}
        """How many devices no foreign process or fault blocks."""
        self.returning: dict[Sort, int] = {}
        self._wants: dict[Request, Want] = {}
        self._sorts: dict[object, tuple[Sort, ...]] = {}
        """The sorts of devices that suit a request, by its kind, memory and GPU names."""
        self._rest_held: tuple[float, float] | None = None
        self._examples: dict[Sort, Device] = {}
        for device in sorted(host.devices, key=attrgetter("index")):
            self._add(device, holders)
        self.has_gpus = any(sort[0] == "cuda" for sort in self._examples)

    def want(self, job: Waiting) -> Want:
        """Returns what the job asks for here."""
        want = self._wants.get(job.request)
        if want is None:
            want = self._wants[job.request] = self._new_want(job)
        return want

    def kind(self, resources: Resources) -> Kind:
        """Returns the kind of devices that the job would get here."""
        if resources.device == "auto":
            return "cuda" if self.has_gpus else "cpu"
        return resources.device

    def fits(self, want: Want, *, soon: bool = False) -> bool:
        """Returns whether the job fits now. `soon`: or as soon as GPUs have released their memory."""
        return not self.host.draining and self.count_free(want, soon=soon) >= want.count and self.hosts_rest(want)

    def count_free(self, want: Want, *, soon: bool = False) -> int:
        """Returns how many devices that suit the job are free."""
        free = 0
        for sort in want.sorts:
            free += len(self.free[sort])
            if soon:
                free += self.returning[sort]
        return free

    def hosts_rest(self, want: Want) -> bool:
        """Returns whether the CPUs and the memory that the job asks for are free."""
        if not (want.cpus or want.memory_gb):
            return True
        return self.has_rest(want, *self.rest_held())

    def has_rest(self, want: Want, cpus_held: float, memory_held: float) -> bool:
        """Returns whether the host has the CPUs and the memory that the job asks for, beside what is held of them."""
        cpus, memory_gb = self.host.cpus, self.host.memory_gb
        return _suffices(cpus, cpus_held, want.cpus) and _suffices(memory_gb, memory_held, want.memory_gb)

    def rest_held(self) -> tuple[float, float]:
        """Returns the CPUs and the memory that jobs hold, in GiB."""
        if self._rest_held is None:
            requests = [holder.resources for holder in self.holders.values()]
            self._rest_held = sum(one.cpus or 0.0 for one in requests), sum(one.memory_gb or 0.0 for one in requests)
        return self._rest_held

    def left_over(self, want: Want) -> tuple[int, str]:
        """Returns how good a place this is for a job that fits, the least first: what is left free of its kind."""
        kinds = {sort[0] for sort in want.sorts}
        free = sum(len(devices) for sort, devices in self.free.items() if sort[0] in kinds)
        return free - want.count, self.host.id

    def pick(self, want: Want, *, last: Collection[Sort] = ()) -> dict[Sort, int]:
        """Returns how many free devices of each sort the job gets. `last`: sorts that are better left to others."""
        picked: dict[Sort, int] = {}
        missing = want.count
        for sort in sorted(want.sorts, key=last.__contains__) if last else want.sorts:
            count = min(len(self.free[sort]), missing)
            if count:
                picked[sort] = count
                missing -= count
        return picked

    def take(self, holder: Holder, counts: Mapping[Sort, int]) -> list[Device]:
        """Gives free devices to the holder, of each sort so many."""
        taken: list[Device] = []
        for sort, count in counts.items():
            devices = self.free[sort]
            taken += devices[:count]
            del devices[:count]
            holder.counts[sort] = holder.counts.get(sort, 0) + count
        self.holders[holder.job_id] = holder
        self._note_change()
        return taken

    def give_back(self, job_id: str, devices: Iterable[Device]) -> None:
        """Undoes `take`."""
        del self.holders[job_id]
        self._note_change()
        for device in devices:
            insort(self.free[sort_of(device)], device, key=lambda device: device.index)

    def _new_want(self, job: Waiting) -> Want:
        resources = job.resources
        key = resources.device, resources.min_memory_gb, None if resources.gpu is None else tuple(resources.gpu)
        sorts = self._sorts.get(key)
        if sorts is None:
            suitable_sorts = {sort_of(device) for device in suitable(resources, [*self._examples.values()])}
            sorts = self._sorts[key] = tuple(sorted(suitable_sorts, key=lambda sort: sort[1:]))
        if not self.host.admits(job):
            sorts = ()
        count, cpus, memory_gb = resources.total_devices, resources.cpus or 0.0, resources.memory_gb or 0.0
        usable = sum([self.usable[sort] for sort in sorts])
        rest = _suffices(self.host.cpus, 0.0, cpus) and _suffices(self.host.memory_gb, 0.0, memory_gb)
        return Want(count, sorts, cpus, memory_gb, possible=rest and usable >= count and not self.host.draining)

    def _note_change(self) -> None:
        self.changes += 1
        self._rest_held = None

    def _add(self, device: Device, holders: Mapping[str, Holder]) -> None:
        sort = sort_of(device)
        if sort not in self.counts:
            self._examples[sort], self.free[sort] = device, []
            self.counts[sort] = self.usable[sort] = self.returning[sort] = 0
        self.counts[sort] += 1
        if (job_id := device.job_id) is not None:
            holder = self.holders.get(job_id)
            if holder is None:
                holder = self.holders[job_id] = holders.get(job_id) or _unknown(job_id)
            holder.counts[sort] = holder.counts.get(sort, 0) + 1
        elif device.blocked is None:
            self.free[sort].append(device)
        elif device.returning:
            self.returning[sort] += 1
        else:
            return
        self.usable[sort] += 1


def gains(counts: dict[Sort, int], sorts: Sequence[Sort]) -> int:
    """Returns how many of the devices are of these sorts."""
    gained = 0
    for sort in sorts:
        gained += counts.get(sort, 0)
    return gained


def sort_of(device: Device) -> Sort:
    """Returns what the device has in common with those that suit the same jobs."""
    return device.kind, device.memory_bytes or 0, device.name


def _suffices(there: float | None, held: float, wanted: float) -> bool:
    """Returns whether so much is free; where it is unknown, none is."""
    return not wanted or (there is not None and held + wanted <= there + 1e-9)


def _unknown(job_id: str) -> Holder:
    return Holder(job_id, Resources(), NEVER, NEVER)
