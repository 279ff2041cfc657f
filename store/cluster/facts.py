"""What is known of workers and the use of their devices. Times are microseconds since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.contract.states import JobState


@dataclass(frozen=True, slots=True)
class Sample:
    """The devices of a worker as they were `age_s` seconds ago: each is a `DeviceReport` as JSON."""

    age_s: float
    devices: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class HolderFacts:
    """A job that holds a device."""

    job_id: str
    name: str
    owner: str
    visibility: str
    state: JobState
    since: int
    guest: bool = False
    """Whether it leaves when the job for which the place is kept can start."""


@dataclass(frozen=True, slots=True)
class KeptFacts:
    """The devices of one kind of a worker, which are reserved for a waiting job."""

    kind: str
    job_id: str
    name: str
    owner: str
    visibility: str


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The pool that a worker stands for."""

    report: Mapping[str, Any]
    """A `torchyard.contract.cluster.devices.PoolReport`, as JSON."""
    waiting: int
    """Jobs that were given to it and do not run yet."""
    running: int


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker."""

    id: str
    name: str
    alive: bool
    """Whether it was seen within one lease."""
    draining: bool
    started_at: int
    seen_at: int
    devices: Sequence[Mapping[str, Any]]
    """One `torchyard.contract.cluster.devices.DeviceReport` for each device, as JSON."""
    starts: Mapping[str, Any] | None
    """How it starts jobs: a `torchyard.contract.cluster.devices.StartsReport`, as JSON."""
    holders: Mapping[str, HolderFacts]
    """The jobs that hold its devices, by their uuids."""
    kept: Sequence[KeptFacts] = ()
    pool: PoolFacts | None = None
    """None: it has devices of its own."""
    remote: bool = False
    """Whether it reaches the service over HTTPS alone."""
    users: Sequence[str] | None = None
    """The users whose jobs it takes. None: all."""


@dataclass(frozen=True, slots=True)
class NamedJob:
    """Which job it is."""

    id: str
    name: str
    owner: str


@dataclass(frozen=True)
class Use:
    """How one device was used in a slot. None: not known, or no job held it."""

    utilization: float | None
    """The mean, 0…1."""
    utilization_max: float | None
    memory_used: int | None
    """The mean, in bytes."""
    job_id: str | None
    """The job that held it for the longest time."""
    power_watts: float | None = None
    """The mean. Last, as slots of older programs lack it."""


Slots = Mapping[int, Mapping[str, Use]]
"""The use of each device by its uuid, by the beginning of the slot, in seconds since the epoch."""


@dataclass(frozen=True)
class History:
    """Slots of one length, in seconds. What has no slot is not known."""

    resolution: int
    slots: Slots


@dataclass(frozen=True)
class WorkerHistory:
    """How the devices that a worker has now were used."""

    worker_id: str
    devices: Sequence[Mapping[str, Any]]
    history: History
    listed_jobs: Mapping[str, NamedJob]
    """Those of the jobs in it that the caller may list, by their ids."""
