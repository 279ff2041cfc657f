"""What a worker reports about its devices and about how it starts jobs.

The database keeps it as JSON, and answers about workers have it as it is.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from torchyard.contract.wire.codec import Record, cut_at


@dataclass(frozen=True, kw_only=True)
class DeviceProcess(Record):
    """A process that uses memory of a device."""

    pid: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class DeviceReport(Record):
    """A device of a worker, at one moment."""

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
    processes: list[DeviceProcess] = field(default_factory=list)
    blocked: str | None = None
    """Why no job can use the free device."""
    returning: bool = False
    """Whether it is `blocked` only until the memory of an ended job is freed."""
    job_id: str | None = None
    """The job that holds it."""


@dataclass(frozen=True, kw_only=True)
class IsolationReport(Record):
    """How a worker isolates jobs from the service and from each other."""

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
    lacks: list[str] = field(default_factory=list)
    """What this host cannot do, and what it would need."""


@dataclass(frozen=True, kw_only=True)
class CachesReport(Record):
    """The caches of a host, as last measured. The least recently used entries are removed first."""

    packages_bytes: int
    """Environments of packages, and what was downloaded for them."""
    total_bytes: int
    """With the owners' homes and the bundles that are unpacked."""
    limit_bytes: int
    """Of all together."""


@dataclass(frozen=True, kw_only=True)
class TroubleReport(Record):
    """A problem in the work of a worker."""

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


EnvironmentKind = Literal["venv", "conda"]


@dataclass(frozen=True, kw_only=True)
class EnvironmentReport(Record):
    """A Python environment on a worker in which jobs may run. The worker reads its files and runs nothing in it."""

    name: Annotated[str, cut_at(100)]
    path: Annotated[str, cut_at(1000)]
    kind: EnvironmentKind = "venv"
    python: Annotated[str, cut_at(50)] = ""
    """The version, such as `3.10.13`. Empty where it is not known: so are the next two."""
    torch: Annotated[str, cut_at(50)] = ""
    cuda: Annotated[str, cut_at(50)] = ""
    """The version of CUDA that torch was built for."""
    packages: int = 0
    """How many packages it has."""
    digest: Annotated[str, cut_at(64)] = ""
    """The first 16 hexadecimal digits of the sha256 of its packages with their versions."""
    obstacle: Annotated[str, cut_at(500)] = ""
    """Why no job can run in it."""


@dataclass(frozen=True, kw_only=True)
class StartsReport(Record):
    """How a worker starts jobs."""

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
    isolation: IsolationReport | None = None
    """None if the worker's engine has none of its own. So is the next one."""
    cpus: float | None = None
    """CPUs that the worker's jobs may use together."""
    memory_gb: float | None = None
    """Memory of the host, in GiB, that they may use together."""
    caches: CachesReport | None = None
    """What its host keeps for the next jobs. None until it was measured, and where nothing limits it."""
    environments: list[EnvironmentReport] = field(default_factory=list)
    """Those that jobs may name as `config.python`."""
    folders: list[str] = field(default_factory=list)
    """The folders below which jobs may name `file://` data and code, by absolute paths."""
    troubles: list[TroubleReport] = field(default_factory=list)
    """What goes wrong in the worker's own work now, or did within the last hour."""


@dataclass(frozen=True, kw_only=True)
class PoolChoices(Record):
    """The values that jobs may request from a pool's cluster. An empty list allows none."""

    accounts: list[str] = field(default_factory=list)
    qos: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    reservations: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PoolRules(PoolChoices):
    """What jobs may ask of a pool's cluster, and what else its operator has said."""

    account_of: dict[str, str] = field(default_factory=dict)
    """The account of jobs that name none, by owner."""


@dataclass(frozen=True, kw_only=True)
class PoolNodes(Record):
    """The nodes of a pool that are not down or drained. Sizes are those of the smallest node."""

    count: int
    devices: int
    """The most devices that one node has."""
    gpus: list[str] = field(default_factory=list)
    """The names of the GPUs, as the cluster's operator has called them."""
    cpus: int | None = None
    memory_gb: float | None = None
    """In GiB."""


@dataclass(frozen=True, kw_only=True)
class PoolReport(Record):
    """A pool: a partition of a Slurm cluster. The cluster's scheduler starts the jobs."""

    engine: Literal["slurm"] = "slurm"
    partition: str
    kind: Literal["cuda", "cpu"]
    nodes: PoolNodes
    max_time_s: int | None = None
    """The longest time limit of a job there. None: there is no limit."""
    ahead: int = 10
    """Maximum number of one owner's jobs in the cluster's queue."""
    rules: PoolRules = PoolRules()
    state: str = "up"
    """State of the partition, as Slurm reports it."""
    obstacle: str | None = None
    """Why no job can start there now; null: nothing prevents it."""
