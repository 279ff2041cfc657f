"""The JSON of trainers, workers and their devices, and of the service's health."""

from datetime import datetime
from typing import Any, Literal

from torchyard.contract.states import JobState
from torchyard.contract.wire.view import View


class TrainerView(View):
    name: str
    description: str
    config_schema: dict[str, Any]


class HolderView(View):
    """The job that holds a device, of which another user's private job shows no more than this."""

    owner: str
    state: JobState
    since: datetime
    name: str | None = None
    guest: bool = False
    """Whether it runs on a place that is kept for another job, and leaves when that can start."""


class DeviceProcessView(View):
    """A process that holds memory of a device."""

    pid: int
    memory_bytes: int


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
    processes: list[DeviceProcessView] = []
    blocked: str | None = None
    """Why no job can use the device, although no job holds it."""
    returning: bool = False
    """Whether it is `blocked` for some seconds only, until the memory of a job that has just ended is freed."""
    job_id: str | None = None
    """The job that holds it, if the caller may see which."""
    holder: HolderView | None = None
    """Who holds it."""


class IsolationView(View):
    """What keeps a worker's jobs away from the service and from each other."""

    level: Literal["off", "basic", "landlock", "strict"]
    """`off`: nothing; `basic`: no inspection of other processes, no privileges; `landlock`: the kernel also restricts
    their files and signals; `strict`: a user for each owner, and namespaces for each attempt."""
    own_mounts: bool = False
    """Whether each attempt has shared memory and terminals of its own, and mounts where all but its own folders is
    read-only."""
    own_pids: bool = False
    """Whether each attempt sees and reaches its own processes alone, and the kernel ends them all with the first."""
    filtered: bool = False
    """Whether system calls are filtered that reach beyond the attempt: keyrings, limits and priorities of others."""
    lacks: list[str] = []
    """What this host cannot do, and what it would need."""


class CachesView(View):
    """What a host keeps for the next jobs of each owner, as it was measured last. What was not used for longest goes
    first."""

    packages_bytes: int
    """Environments of packages, and what was downloaded for them."""
    total_bytes: int
    """With the owners' homes and the bundles that are unpacked."""
    limit_bytes: int
    """Of all together."""


class TroubleView(View):
    """What goes wrong in a worker's own work."""

    work: str
    """Such as `the heartbeat`."""
    state: Literal["failed", "failing", "silent"]
    """`failing`: three times in a row or more, until now. `failed`: less often, or it works again. `silent`: it makes
    no turn, as what it calls hangs."""
    since: datetime
    """`failed`: the time of the last failure. `failing`, `silent`: the time at which that began."""
    problem: str
    """The newest error, in one line. The worker's log has its traceback."""
    times: int = 1
    """How often it failed in a row."""


class EnvironmentView(View):
    """An environment of a worker's host in which jobs may run, as its files say."""

    name: str
    path: str
    kind: Literal["venv", "conda"] = "venv"
    python: str = ""
    """The version, such as `3.10.13`. Empty where it is not known: so are the next two."""
    torch: str = ""
    cuda: str = ""
    """The version of CUDA that torch was built for."""
    packages: int = 0
    """How many packages it has."""
    digest: str = ""
    """The first 16 hexadecimal digits of the sha256 of its packages with their versions."""
    obstacle: str = ""
    """Why no job can run in it."""


class StartsView(View):
    """How a worker starts jobs now."""

    mode: Literal["warm", "cold"]
    """`warm`: as forks of a process that has imported torch; `cold`: by torchrun."""
    why: str = ""
    """Why jobs start cold."""
    since: datetime | None = None
    """When the warm process was started."""
    forks: int = 0
    """Jobs that this worker's warm processes have started since the worker was started."""
    memory_bytes: int | None = None
    """Resident memory of the warm process that is not shared with files."""
    isolation: IsolationView | None = None
    """None if the worker's engine has none of its own. So is the next one."""
    cpus: float | None = None
    """CPUs that the worker's jobs may use together."""
    memory_gb: float | None = None
    """Memory of the host, in GiB, that they may use together."""
    caches: CachesView | None = None
    """What its host keeps for the next jobs; null until it was measured, and where nothing limits it."""
    environments: list[EnvironmentView] = []
    """Those that jobs may name as `config.python`."""
    troubles: list[TroubleView] = []
    """What goes wrong in the worker's own work now, or did within the last hour."""


class KeptView(View):
    """The devices of one kind of a worker, which are kept for a waiting job that fits nowhere yet."""

    kind: Literal["cuda", "cpu"]
    owner: str
    """The job's."""
    job_id: str | None = None
    """None if the caller may not see which job it is."""


class PoolNodesView(View):
    """The nodes of a pool that are not down or drained. What they have is that of the smallest one."""

    count: int
    devices: int
    """The most devices that one node has."""
    gpus: list[str] = []
    """The names of the GPUs, as the cluster's operator has called them."""
    cpus: int | None = None
    memory_gb: float | None = None
    """In GiB."""


class PoolRulesView(View):
    """What jobs may ask of the pool's cluster besides devices. Empty: nothing."""

    accounts: list[str] = []
    qos: list[str] = []
    constraints: list[str] = []
    reservations: list[str] = []


class PoolView(View):
    """A partition of a cluster, whose own scheduler starts jobs on it."""

    engine: Literal["slurm"]
    partition: str
    kind: Literal["cuda", "cpu"]
    nodes: PoolNodesView
    max_time_s: int | None = None
    """The longest time limit of a job there. Null: there is no limit."""
    ahead: int
    """How many jobs of one owner may wait in the cluster's queue."""
    rules: PoolRulesView
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
    starts: StartsView | None = None
    """None until the worker's first heartbeat."""
    kept: list[KeptView] = []
    """For whom its devices are kept, until that job can start there."""
    pool: PoolView | None = None
    """Set if it gives jobs to a cluster. Then it has no devices of its own."""


class DeviceColumns(View):
    """The use of a device in slots of time, oldest first. A slot without a report is left out; null is not known."""

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
    """A job that held a device."""

    id: str
    name: str
    owner: str


class WorkerHistoryView(View):
    """How the devices that a worker has now were used."""

    worker_id: str
    resolution_seconds: int
    """The length of a slot."""
    devices: list[DeviceHistory]
    jobs: list[HistoryJobView] = []
    """The jobs that the columns name."""


class HealthView(View):
    status: Literal["ok"] = "ok"


class ReadyView(View):
    """The parts that the service needs. Each is `ok` or says what is wrong."""

    status: Literal["ok", "degraded", "unavailable"]
    database: str
    redis: str
