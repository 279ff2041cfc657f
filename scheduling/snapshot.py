"""What is known of the cluster at one moment, as `scheduling.plan` needs it.

All times are integer microseconds: moments since the epoch, by the database's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Literal

from scheduling.needs import NO_NEEDS, NOTHING, Needs, Offer, meets
from scheduling.pools import Pool
from scheduling.quotas import Allowance
from scheduling.requests import Request, request_of
from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import Reason

Kind = Literal["cuda", "cpu"]
"""Of a device, and of what a job asks for."""
Place = tuple[str, Kind]
"""Where a job can start: the devices of one kind of one worker, by its id."""
Group = tuple[str, int]
"""Shape and priority of jobs that wait for the same thing."""

OVERDUE_AFTER = timedelta(seconds=90)
"""The end of a job that was asked to stop has failed if it still holds its devices this long after its grace."""


@dataclass(frozen=True)
class Device:
    """A device of a worker, and the job that holds it or why it can not be used."""

    index: int
    uuid: str
    name: str
    kind: Kind
    memory_bytes: int | None = None
    job_id: str | None = None
    blocked: str | None = None
    """Why no job can use it, although no job holds it."""
    returning: bool = False
    """Whether it is `blocked` for some seconds only, until the memory of a job that has just ended is freed."""

    def held_by(self, job_id: str) -> "Device":
        """Returns the device as held by the job.

        A held device is not blocked: in a container, the driver may report foreign pids for our own job.
        """
        return replace(self, job_id=job_id, blocked=None)


@dataclass(frozen=True)
class Host:
    """A worker that is alive."""

    id: str
    name: str
    devices: tuple[Device, ...]
    draining: bool = False
    cpus: float | None = None
    """What its jobs may request together. None: unknown, and no job that requests any fits."""
    memory_gb: float | None = None
    """As `cpus`."""
    offer: Offer = NOTHING
    known: Offer = NOTHING
    """What all hosts have together, those that do not answer among them."""
    users: frozenset[str] | None = None
    """The users whose jobs it takes. None: all."""

    def admits(self, job: "Waiting") -> bool:
        """Returns whether a job may start here, whatever devices it asks for."""
        if job.resources.worker not in {None, self.name}:
            return False
        if self.users is not None and job.owner not in self.users:
            return False
        return job.needs is NO_NEEDS or meets(self.offer, job.needs, known=self.known)


@dataclass(frozen=True)
class Placement:
    """The devices of one worker that a node of a job gets."""

    worker_id: str
    devices: tuple[Device, ...]
    """None in a pool: its cluster chooses them."""
    node_rank: int = 0


@dataclass(frozen=True)
class Running:
    """A job that holds devices of a worker."""

    job_id: str
    owner: str
    priority: int
    preemptible: bool
    since: int
    """When the attempt started."""
    stopping: bool
    """Whether a stop was requested."""
    worker_id: str
    resources: Resources
    submitted: int
    limit_us: int
    """What all attempts together may run."""
    ran_us: int = 0
    """How long the earlier attempts ran."""
    waited_us: int = 0
    """How long the job waited after its first start: what its stops have cost it."""
    fraction: float | None = None
    """How much of the whole run is done, as the job tells: no more than a hint."""
    usual_us: int | None = None
    """The mean of its owner's last two runs of this trainer."""
    saved_at: int | None = None
    """The newest checkpoint of this attempt."""
    guest: bool = False
    """Whether it runs on a kept place because it was believed to end in time: it is stopped when the place is due."""
    ends: int | None = None
    """When it ends, whatever it tells: in a replay, which knows."""


@dataclass(frozen=True)
class Waiting:
    """A queued job that is not held back."""

    id: str
    owner: str
    priority: int
    shape: str
    resources: Resources
    submitted: int
    limit_us: int
    preemptible: bool = False
    ran_us: int = 0
    waited_us: int = 0
    """How long it waited in all, until now."""
    fraction: float | None = None
    usual_us: int | None = None
    home: str | None = None
    """The worker whose host has what the job left in its working folder: it starts there, if it can start there now."""
    needs: Needs = NO_NEEDS

    @property
    def group(self) -> Group:
        return self.shape, self.priority

    @cached_property
    def request(self) -> Request:
        return request_of(self.resources, self.needs)


@dataclass(frozen=True)
class OwnerUse:
    """What an owner had of the devices of one kind."""

    owner: str
    kind: Kind
    used_s: float
    """Device seconds until now, each halved for every `scheduling.usage.HALF_LIFE` that has passed since."""
    weight: int = 100
    """The owner's part in the devices, compared to others'."""


@dataclass(frozen=True)
class Displacement:
    """A job was asked to stop, so that a waiting one gets devices of its worker.

    It lasts until the waiting job has started, also when the victim has ended, or until `until`.
    """

    job_id: str
    """The waiting job."""
    owner: str
    """The waiting job's."""
    victim: str
    victim_owner: str
    worker_id: str
    worker: str
    """The worker's name."""
    until: int
    """When the end of the victim has failed: then others may have the devices."""


@dataclass(frozen=True)
class Reservation:
    """A place is kept for a job of the line that fits nowhere yet."""

    worker_id: str
    kind: Kind
    job_id: str
    owner: str
    due: int
    """When the job can start, if those that run end when they are believed to."""
    bound: int
    """When the job can start at the latest, by time limits."""
    since: int
    """When the place was first kept for this job. Guests that started before are no guests of this job."""
    version: int = 1
    """Of the row of its place. Each change raises it by one; the first is 1."""

    @property
    def place(self) -> Place:
        return self.worker_id, self.kind


@dataclass(frozen=True)
class RecordedReasons:
    """What is stored of why jobs wait."""

    by_shape: Mapping[str, Reason] = field(default_factory=dict[str, Reason])
    messages: Mapping[str, str] = field(default_factory=dict[str, str])
    """By job, of those for which others are or were asked to stop."""


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment. All who read the same make the same plan, except for `refused`."""

    now: int
    hosts: tuple[Host, ...]
    running: tuple[Running, ...]
    line: tuple[Waiting, ...]
    """The waiting jobs that a plan needs: the first of each group, the next ones where the first ones start, and all
    that have a kept place or for which others are asked to stop."""
    pools: tuple[Pool, ...] = ()
    displacements: tuple[Displacement, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    allowances: Mapping[str, Allowance] = field(default_factory=dict[str, Allowance])
    """Of the owners in the line whose running jobs are limited."""
    uses: tuple[OwnerUse, ...] = ()
    """An owner without one has used nothing, and has the weight 100."""
    recorded: RecordedReasons = RecordedReasons()
    waits_count_until: int | None = None
    """Until when the `waited_us` of the line count; None: until `now`."""
    crowded: frozenset[str] = frozenset()
    """The owners of whose groups not all are in the line: they take turns."""
    refused: frozenset[Request] = frozenset()
    """Requests for which a step of an earlier plan could not be carried out: they wait for the next snapshot."""

    def version_of(self, place: Place) -> int | None:
        """Returns the version of the place's reservation; None if it is kept for nobody."""
        return next((one.version for one in self.reservations if one.place == place), None)

    def after_start(self, job: Waiting, placement: Placement, *, guest: bool = False) -> "Snapshot":
        """Returns the snapshot after the job has started, or was given to a pool."""
        allowances = dict(self.allowances)
        if job.owner in allowances:
            allowances[job.owner] = allowances[job.owner].with_job(job.resources.total_devices)
        after = replace(self.without(job.id), allowances=allowances)
        if not placement.devices:
            pools = tuple(one.with_job(job.owner) if one.id == placement.worker_id else one for one in self.pools)
            return replace(after, pools=pools)
        hosts = tuple(
            _with_job(host, placement, job.id) if host.id == placement.worker_id else host for host in self.hosts
        )
        running = (*self.running, started(job, placement.worker_id, now=self.now, guest=guest))
        return replace(after, hosts=hosts, running=running)

    def after_stop(self, displacements: tuple[Displacement, ...], *, message: str) -> "Snapshot":
        """Returns the snapshot after jobs were asked to stop for another, whose reason became `message`."""
        victims = {displacement.victim for displacement in displacements}
        running = tuple(replace(job, stopping=True) if job.job_id in victims else job for job in self.running)
        messages = {**self.recorded.messages, **{displacement.job_id: message for displacement in displacements}}
        recorded = replace(self.recorded, messages=messages)
        return replace(self, running=running, displacements=self.displacements + displacements, recorded=recorded)

    def without(self, job_id: str) -> "Snapshot":
        """Returns the snapshot after the job has left the line: nothing is kept for it."""
        return replace(
            self,
            line=tuple(job for job in self.line if job.id != job_id),
            displacements=tuple(one for one in self.displacements if one.job_id != job_id),
            reservations=tuple(one for one in self.reservations if one.job_id != job_id),
        )

    def refusing(self, request: Request) -> "Snapshot":
        """Returns the snapshot in which jobs with this request wait for the next one."""
        return replace(self, refused=self.refused.union((request,)))

    def after_drain(self, worker_id: str) -> "Snapshot":
        """Returns the snapshot after the worker was asked to drain."""
        hosts = tuple(replace(host, draining=host.draining or host.id == worker_id) for host in self.hosts)
        pools = tuple(replace(pool, draining=pool.draining or pool.id == worker_id) for pool in self.pools)
        return replace(self, hosts=hosts, pools=pools)


def started(job: Waiting, worker_id: str, *, now: int, guest: bool = False) -> Running:
    """Returns the job as one that runs since `now`."""
    return Running(
        job_id=job.id,
        owner=job.owner,
        priority=job.priority,
        preemptible=job.preemptible,
        since=now,
        stopping=False,
        worker_id=worker_id,
        resources=job.resources,
        submitted=job.submitted,
        limit_us=job.limit_us,
        ran_us=job.ran_us,
        fraction=job.fraction,
        usual_us=job.usual_us,
        guest=guest,
    )


def _with_job(host: Host, placement: Placement, job_id: str) -> Host:
    taken = {device.uuid for device in placement.devices}
    return replace(
        host, devices=tuple(device.held_by(job_id) if device.uuid in taken else device for device in host.devices)
    )
