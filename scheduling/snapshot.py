"""What is known of the cluster at one moment, as `scheduling.plan` needs it. Times are of the database's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from scheduling.quotas import Allowance
from torchyard.contract.job import Reason
from torchyard.contract.spec import Resources

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
    kind: Literal["cuda", "cpu"]
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


@dataclass(frozen=True)
class Placement:
    """The devices of one worker that a node of a job gets."""

    worker_id: str
    devices: tuple[Device, ...]
    node_rank: int = 0


@dataclass(frozen=True)
class Running:
    """A job that holds devices of a worker."""

    job_id: str
    owner: str
    priority: int
    preemptible: bool
    since: int
    """Microseconds since the epoch at which the attempt started."""
    stopping: bool
    """Whether a stop was requested."""
    worker_id: str = ""


@dataclass(frozen=True)
class Waiting:
    """A queued job that is not held back."""

    id: str
    priority: int
    shape: str
    resources: Resources
    owner: str

    @property
    def group(self) -> Group:
        return self.shape, self.priority

    @property
    def order(self) -> tuple[int, str]:
        """The place in the line: the highest priority first, then the oldest job."""
        return -self.priority, self.id


@dataclass(frozen=True)
class Reservation:
    """A job was asked to stop, so that a waiting one gets devices of its worker."""

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
    """When the end of the victim has failed, in microseconds since the epoch: then others may have the devices."""


@dataclass(frozen=True)
class RecordedReasons:
    """What is stored of why jobs wait."""

    by_shape: Mapping[str, Reason] = field(default_factory=dict[str, Reason])
    messages: Mapping[str, str] = field(default_factory=dict[str, str])
    """By job, of those for which others are or were asked to stop."""


@dataclass(frozen=True)
class Snapshot:
    """The cluster as one worker reads it, `here`: it starts jobs on its own devices, and stops only its own."""

    here: str
    now: int
    """Microseconds since the epoch."""
    hosts: tuple[Host, ...]
    running: tuple[Running, ...]
    line: tuple[Waiting, ...]
    """The first job of each group, the next ones of groups whose first ones start, and those with reservations."""
    reservations: tuple[Reservation, ...] = ()
    allowances: Mapping[str, Allowance] = field(default_factory=dict[str, Allowance])
    """Of the owners in the line whose running jobs are limited."""
    recorded: RecordedReasons = RecordedReasons()
    refused: frozenset[Resources] = frozenset()
    """Requests for which this worker could not carry out a step of an earlier plan: they wait for the next snapshot."""

    def after_start(self, job: Waiting, placement: Placement) -> "Snapshot":
        """Returns the snapshot after the job has started. It is not among the running jobs, so no other may stop it."""
        hosts = tuple(
            _with_job(host, placement, job.id) if host.id == placement.worker_id else host for host in self.hosts
        )
        allowances = dict(self.allowances)
        if job.owner in allowances:
            allowances[job.owner] = allowances[job.owner].with_job(len(placement.devices))
        return replace(self.without(job.id), hosts=hosts, allowances=allowances)

    def after_stop(self, reservations: tuple[Reservation, ...], *, message: str) -> "Snapshot":
        """Returns the snapshot after jobs were asked to stop for another, whose reason became `message`."""
        victims = {reservation.victim for reservation in reservations}
        running = tuple(replace(job, stopping=True) if job.job_id in victims else job for job in self.running)
        messages = {**self.recorded.messages, **{reservation.job_id: message for reservation in reservations}}
        recorded = replace(self.recorded, messages=messages)
        return replace(self, running=running, reservations=self.reservations + reservations, recorded=recorded)

    def without(self, job_id: str) -> "Snapshot":
        """Returns the snapshot after the job has left the line."""
        return replace(self, line=tuple(job for job in self.line if job.id != job_id))

    def refusing(self, resources: Resources) -> "Snapshot":
        """Returns the snapshot in which jobs with this request wait for the next one."""
        return replace(self, refused=self.refused.union((resources,)))

    def after_drain(self) -> "Snapshot":
        """Returns the snapshot after the worker was asked to drain."""
        return replace(
            self, hosts=tuple(replace(host, draining=host.draining or host.id == self.here) for host in self.hosts)
        )


def _with_job(host: Host, placement: Placement, job_id: str) -> Host:
    taken = {device.uuid for device in placement.devices}
    return replace(
        host, devices=tuple(device.held_by(job_id) if device.uuid in taken else device for device in host.devices)
    )
