"""The records in the JSON files of a run directory."""

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Annotated, Any, Literal

from torchyard.contract.attempts.events import CardValues, Epoch, MetricName, Step, Time
from torchyard.contract.files.paths import MOST_FILES, check_path
from torchyard.contract.states import EndReason
from torchyard.contract.wire.codec import Record, at_most, between, cut_at, matching

Pid = Annotated[int, between(0, 2**31 - 1)]
Rank = Annotated[int, between(0, 2**31 - 1)]
ExitCode = Annotated[int, between(-(2**31), 2**31 - 1)]
"""Of a process, or minus the number of the signal that ended it."""
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 digits of a sha256")]
_ReportText = Annotated[str, cut_at(100_000)]


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity(Record):
    """Identifies one process, even after its pid was reused or the host rebooted."""

    pid: Pid
    start_time: Annotated[int, between(0, 2**63 - 1)]
    """Clock ticks from boot to start: field 22 of `/proc/<pid>/stat`."""
    boot_id: Annotated[str, at_most(100)]


@dataclass(frozen=True, kw_only=True)
class Strict(Record):
    """Who starts an attempt at the level `strict`, and for whom."""

    helper: str
    """The socket of the helper."""
    owner: Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", "letters, digits, . _ @ -")]
    """The job's owner, who has a user of their own on the host."""
    bundles: list[Sha256] = field(default_factory=list[str])
    """The owner's unpacked bundles that the attempt reads."""


@dataclass(frozen=True, kw_only=True)
class Sandbox(Record):
    """What the processes of an attempt may touch besides each other."""

    landlock: bool
    """Whether Landlock enforces the three lists."""
    own_mounts: bool
    """Whether the attempt has shared memory of its own, and mounts where all but `writable` is read-only."""
    own_pids: bool = False
    """Whether the attempt has a pid namespace of its own, which needs `own_mounts`."""
    filtered: bool = False
    """Whether system calls are filtered that reach beyond the attempt."""
    namespaces: bool = False
    """Whether the attempt may make namespaces of its own inside, where system calls are filtered."""
    names_threads: bool = False
    """Whether to its processes the naming of other threads seems to succeed, which `/proc` forbids: CUDA needs it."""
    closed: list[str] = field(default_factory=list[str])
    """Folders of the service. No path of the three lists may be or contain one."""
    data_dir: str = ""
    """The service's data directory. No path of the three lists may lie in it, but for those of `own`."""
    own: list[str] = field(default_factory=list[str])
    """Canonical paths of what is the attempt's own, and of the worker's Python. All below them is, too."""
    readable: list[str]
    """Files, and folders with all below them, by canonical paths. So are the next two."""
    writable: list[str]
    devices: list[str]
    """May be read, written and controlled."""
    temporary: str
    """The attempt's own temporary folder, one of `writable`. It is removed at the end."""
    temporary_at: list[str] = field(default_factory=list[str])
    """Folders of the system, such as `/tmp`, that show the temporary folder instead, where mounts are its own."""
    shown: list[str] = field(default_factory=list[str])
    """Canonical paths that the service has chosen, which processes of the attempt see there besides."""
    strict: Strict | None = None
    """If set, a helper makes the sandbox, and decides itself what is in it: the lists are empty."""


@dataclass(frozen=True, kw_only=True)
class NodePart(Record):
    """The part that one node has in an attempt over several nodes."""

    nodes: Annotated[int, between(2, 10_000)]
    rank: Annotated[int, between(0, 9_999)]
    """The node's number, from 0."""
    first_rank: Rank
    """The lowest of its ranks, which are numbered over all nodes."""
    ranks: Annotated[int, between(1, 1024)]
    """How many ranks it has."""
    interface: str
    """The network interface of the nodes by which ranks reach each other, such as `eth0`."""
    address: str
    """The node's IP address there."""
    master: str
    """That of node 0, where all ranks meet."""
    port: Annotated[int, between(1, 65_535)]
    """The port at which they meet."""


@dataclass(frozen=True, kw_only=True)
class AttemptTerms:
    """What each plan of an attempt has, from that of its worker to that of its ranks."""

    job_id: str
    attempt: int
    claimed_at: int
    """Microseconds, as in the attempt's row. Attempt numbers are used again after an older database was restored."""
    time_limit: timedelta
    """The part of the job's time limit that is left for this attempt."""
    stall_timeout: timedelta
    stop_grace: timedelta
    reports: bool = False
    """Whether the program is known to write events: then `stall_timeout` counts from the start, otherwise from its
    first event."""
    cpus: Annotated[float, between(0, 10**6)] | None = None
    """CPUs of the host that it may use, where an engine or its sandbox can limit them."""
    memory_bytes: Annotated[int, between(1, 2**62)] | None = None
    """Memory of the host that it may use, as `cpus`."""

    @property
    def terms(self) -> dict[str, Any]:
        """They alone, by name, for another plan of the same attempt."""
        return {field.name: getattr(self, field.name) for field in fields(AttemptTerms)}


@dataclass(frozen=True, kw_only=True)
class LaunchPlan(AttemptTerms, Record):
    """What the supervisor starts."""

    launcher: Literal["torchrun", "warm", "command"] = "torchrun"
    """What starts the ranks: torchrun, the supervisor by forking itself, or a command of the job."""
    argv: list[str]
    """The command of the launcher. For `warm` it is the rank's program: `SCRIPT [ARGS…]` or `-m MODULE [ARGS…]`."""
    env: dict[str, str]
    """The whole environment of launcher and ranks. Nothing else is inherited."""
    rank_env: dict[str, str] = field(default_factory=dict[str, str])
    """The job's own variables: only its ranks get them."""
    cwd: str
    umask: int = 0o077
    """That of the launcher and the ranks."""
    world_size: int
    """The number of ranks, on all nodes."""
    node: NodePart | None = None
    """None: one node has all ranks, which meet on loopback."""
    sandbox: Sandbox | None = None
    """None: the attempt may touch what its user may."""

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        if self.node is None:
            return range(self.world_size)
        return range(self.node.first_rank, self.node.first_rank + self.node.ranks)


@dataclass(frozen=True, kw_only=True)
class StopRequest(Record):
    reason: EndReason
    grace: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class ExitReport(Record):
    """How an attempt ended. When this record exists, no process of the attempt is left."""

    reason: EndReason
    message: _ReportText = ""
    rank: Rank | None = None
    exit_code: ExitCode | None = None
    """That of the failing rank."""
    traceback: _ReportText | None = None
    exited_well: bool = False
    """Whether the program exited with 0 after it was asked to stop: it has closed what it wrote."""
    may_retry: bool = True
    """False: the next attempt would end in the same way, so the job fails whatever `max_restarts` says."""


@dataclass(frozen=True, kw_only=True)
class RankError(Record):
    """An exception that a rank's program did not catch. The job may forge it, so what is too long is cut."""

    rank: Rank
    time: Time
    reason: Literal[
        EndReason.USER_ERROR,
        EndReason.OUT_OF_MEMORY,
        EndReason.DATA_ERROR,
        EndReason.CONFIG_ERROR,
        EndReason.DEVICE_FAULT,
        EndReason.WORKER_LOST,
    ]
    type: Annotated[str, cut_at(200)]
    message: Annotated[str, cut_at(4_000)]
    traceback: Annotated[str, cut_at(33_000)]


@dataclass(frozen=True, kw_only=True)
class Collective(Record):
    """A call of a process group. The job may forge it, so what is too long is cut."""

    name: Annotated[str, cut_at(100)]
    number: Annotated[int, between(0, 2**63 - 1)]
    """Counts the collectives of the group: a rank whose number is lower is behind."""
    group: Annotated[str, cut_at(100)]
    sizes: Annotated[str, cut_at(200)]
    """The shapes of its inputs."""


@dataclass(frozen=True, kw_only=True)
class RankCollectives(Record):
    """Where one rank is in its collectives."""

    waits_for: Collective | None = None
    """The oldest one that has begun and not ended."""
    ended: Collective | None = None
    """The newest one that has ended."""


@dataclass(frozen=True, kw_only=True)
class ManifestFile(Record):
    path: Annotated[str, check_path]
    size: Annotated[int, between(0, 2**63 - 1)]
    sha256: Sha256


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """Lists a checkpoint. It is written last, so a checkpoint with a manifest is whole."""

    step: Step
    epoch: Epoch | None = None
    end_of_epoch: bool = True
    """Whether `epoch` had ended. A checkpoint saved inside an epoch has no `epoch-N` alias."""
    metrics: Annotated[dict[MetricName, float], at_most(1000)] = field(default_factory=dict[str, float])
    files: Annotated[list[ManifestFile], at_most(MOST_FILES)]
    card: CardValues | None = None
    """The run's card when this was saved."""
