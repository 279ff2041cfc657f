"""The JSON of trainers, workers and their devices, and of the service's health."""

from datetime import datetime
from typing import Any, Literal

from torchyard.contract.cluster.devices import DeviceProcess, PoolChoices, PoolNodes, StartsReport
from torchyard.contract.states import JobState
from torchyard.contract.wire.view import View


class TrainerView(View):
    name: str
    description: str
    config_schema: dict[str, Any]


class HolderView(View):
    """The job on a device. Another user's private job shows only these fields."""

    owner: str
    state: JobState
    since: datetime
    name: str | None = None
    guest: bool = False
    """Whether it runs on devices reserved for another job. It is preempted when that job can start."""


class DeviceView(View):
    index: int
    uuid: str
    name: str
    kind: Literal["cuda", "cpu"]
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization: float | None = None
    """Utilization, 0…1: the fraction of the last sample period in which a kernel ran. For a CPU slot: the fraction of
    the host's CPUs that its job used since the previous report.
    """
    power_watts: float | None = None
    """Power draw in watts. Null for a CPU slot, or if the driver does not report it."""
    processes: list[DeviceProcess] = []
    blocked: str | None = None
    """Why no job can use the free device."""
    returning: bool = False
    """Whether it is `blocked` only until the memory of an ended job is freed."""
    job_id: str | None = None
    """The job on the device; null if there is none, or you may not see it."""
    holder: HolderView | None = None
    """The job on the device."""


class KeptView(View):
    """A reservation: devices of a worker that are reserved for a waiting job."""

    kind: Literal["cuda", "cpu"]
    owner: str
    """The owner of the job."""
    job_id: str | None = None
    """Null if you may not see the job; `name` too."""
    name: str | None = None


class PoolView(View):
    """A pool: a partition of a Slurm cluster. The cluster's scheduler starts the jobs."""

    engine: Literal["slurm"]
    partition: str
    kind: Literal["cuda", "cpu"]
    nodes: PoolNodes
    max_time_s: int | None = None
    """The maximum `time_limit` in seconds; null: no limit."""
    ahead: int
    """Maximum number of one owner's jobs in the cluster's queue."""
    rules: PoolChoices
    state: str
    """State of the partition, as Slurm reports it."""
    obstacle: str | None = None
    """Why no job can start there now; null: nothing prevents it."""
    waiting: int = 0
    """Jobs that wait in the cluster's queue."""
    running: int = 0


class WorkerView(View):
    id: str
    name: str
    state: Literal["ready", "draining", "lost"]
    started_at: datetime
    seen_at: datetime
    devices: list[DeviceView]
    starts: StartsReport | None = None
    """How it starts jobs; null until its first heartbeat."""
    kept: list[KeptView] = []
    """Reservations: devices for waiting jobs."""
    pool: PoolView | None = None
    """The Slurm pool that it serves; it then has no devices of its own."""
    remote: bool = False
    """Whether it joined from another machine and uses only HTTPS."""
    users: list[str] | None = None
    """Users whose jobs it takes; null: all users."""


class DeviceColumns(View):
    """The utilization of a device by time slot, oldest first. Slots without a report are omitted; null is unknown."""

    time: list[float]
    """Start of each slot, in seconds since the epoch."""
    utilization: list[float | None]
    """Mean utilization in each slot, 0…1."""
    utilization_max: list[float | None]
    memory_used: list[int | None]
    """Mean memory use in bytes."""
    power_watts: list[float | None]
    """Mean power draw in watts. Null for a CPU slot, or if the driver does not report it."""
    job_id: list[str | None]
    """The job that used the device longest in the slot; null if you may not see it."""


class DeviceHistory(View):
    uuid: str
    index: int
    name: str
    kind: Literal["cuda", "cpu"]
    columns: DeviceColumns


class HistoryJobView(View):
    """A job that used a device."""

    id: str
    name: str
    owner: str


class WorkerHistoryView(View):
    """The utilization of a worker's current devices over time."""

    worker_id: str
    resolution_seconds: int
    """Length of a slot in seconds."""
    devices: list[DeviceHistory]
    jobs: list[HistoryJobView] = []
    """Names and owners of the jobs in the columns."""


class HealthView(View):
    status: Literal["ok"] = "ok"


class ReadyView(View):
    """The state of the database and of Redis: `ok`, or the problem."""

    status: Literal["ok", "degraded", "unavailable"]
    database: str
    redis: str
