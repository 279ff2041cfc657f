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
    """Whether it runs on a place that is kept for another job, and leaves when that can start."""


class DeviceView(View):
    index: int
    uuid: str
    name: str
    kind: Literal["cuda", "cpu"]
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization: float | None = None
    """Share of the last sample period in which a kernel ran, 0…1. Of a CPU slot: the share of the host's processors
    that the job which holds it has used, since the worker's previous report."""
    power_watts: float | None = None
    """What it draws now. None for a CPU slot, and where the driver does not tell."""
    processes: list[DeviceProcess] = []
    blocked: str | None = None
    """Why no job can use the device, although no job holds it."""
    returning: bool = False
    """Whether it is `blocked` for some seconds only, until the memory of a job that has just ended is freed."""
    job_id: str | None = None
    """The job that holds it, if the caller may see which."""
    holder: HolderView | None = None
    """Who holds it."""


class KeptView(View):
    """A reservation: devices of a worker that are reserved for a waiting job."""

    kind: Literal["cuda", "cpu"]
    owner: str
    """The job's."""
    job_id: str | None = None
    """None if the caller may not see which job it is. So is its name."""
    name: str | None = None


class PoolView(View):
    """A pool: a partition of a Slurm cluster. The cluster's scheduler starts the jobs."""

    engine: Literal["slurm"]
    partition: str
    kind: Literal["cuda", "cpu"]
    nodes: PoolNodes
    max_time_s: int | None = None
    """The longest time limit of a job there. Null: there is no limit."""
    ahead: int
    """How many jobs of one owner may wait in the cluster's queue."""
    rules: PoolChoices
    state: str
    """The partition's state in the cluster's own words."""
    obstacle: str | None = None
    """Why no job starts there now, such as that the cluster does not answer."""
    waiting: int = 0
    """Jobs that were given to the cluster and do not run yet."""
    running: int = 0


class WorkerView(View):
    id: str
    name: str
    state: Literal["ready", "draining", "lost"]
    started_at: datetime
    seen_at: datetime
    devices: list[DeviceView]
    starts: StartsReport | None = None
    """None until the worker's first heartbeat."""
    kept: list[KeptView] = []
    """For whom its devices are kept, until that job can start there."""
    pool: PoolView | None = None
    """Set if it gives jobs to a cluster. Then it has no devices of its own."""
    remote: bool = False
    """Whether it is on a machine that has joined, and reaches the service over HTTPS alone."""
    users: list[str] | None = None
    """The users whose jobs it takes. None: all."""


class DeviceColumns(View):
    """The utilization of a device by time slot, oldest first. Slots without a report are omitted; null is unknown."""

    time: list[float]
    """The beginning of each slot, in seconds since the epoch."""
    utilization: list[float | None]
    """The mean, as in a worker's devices."""
    utilization_max: list[float | None]
    memory_used: list[int | None]
    """The mean, in bytes."""
    power_watts: list[float | None]
    """The mean. Null for a CPU slot, and where the driver does not tell."""
    job_id: list[str | None]
    """The job that held it for the longest time, if the caller may see which."""


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
    """The length of a slot."""
    devices: list[DeviceHistory]
    jobs: list[HistoryJobView] = []
    """The jobs that the columns name."""


class HealthView(View):
    status: Literal["ok"] = "ok"


class ReadyView(View):
    """The state of the database and of Redis: `ok`, or the problem."""

    status: Literal["ok", "degraded", "unavailable"]
    database: str
    redis: str
