"""The records that the engine, its coordinator and its nodes share in a run directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from torchyard.contract.attempts.records import AttemptTerms, ExitReport
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import DeviceReport, IsolationReport
from torchyard.contract.wire.codec import Record, at_most, between, cut_at
from worker.engines.base import NamedEnvironment

Node = Annotated[int, between(0, 9_999)]
Seconds = Annotated[float, between(0, 86_400)]


@dataclass(frozen=True, kw_only=True)
class Timing(Record):
    """How the parts of one attempt notice that another one is gone. Those that look wait longer than those that act."""

    beat_s: Seconds = 5.0
    """How often a part shows that it lives."""
    silence_s: Seconds = 30.0
    """After such a silence of the coordinator a node ends its ranks, and the coordinator counts a node as lost."""
    kill_s: Seconds = 35.0
    """How long a node may take to end its ranks."""
    disk_s: Seconds = 60.0
    """A coordinator that could not write its heartbeat for so long ends the attempt."""
    fresh_s: Seconds = 120.0
    """A heartbeat that has changed within this time is of a running attempt. It may be shown 60 s late."""
    gather_s: Seconds = 300.0
    """How long the nodes may take to come up."""


@dataclass(frozen=True, kw_only=True)
class NodeRules(Record):
    """How each node prepares itself."""

    root: str
    """The folder of the pool, beside whose run directories the attempt's folders are."""
    isolation: Literal["off", "auto", "require"] = "auto"
    readable: list[str] = field(default_factory=list[str])
    """What the operator allows all jobs to read."""
    writable: list[str] = field(default_factory=list[str])
    namespaces: bool = False
    umask: int = 0o077
    interface: str = ""
    """The network interface between the nodes. Empty: the one that has the address of the node's own name."""


@dataclass(frozen=True, kw_only=True)
class ClusterPlan(AttemptTerms, Record):
    """What the nodes start: `ctl/plan.json` of an attempt in a cluster. It has no secret."""

    name: str
    """That of the job in Slurm."""
    version: str
    """Of Torchyard. A node with another one starts nothing."""
    uid: int
    nodes: Annotated[int, between(1, 10_000)]
    devices_per_node: Annotated[int, between(1, 1024)]
    kind: Literal["cuda", "cpu"]
    program: list[str]
    owner: str
    env: dict[str, str]
    job_env: dict[str, str]
    environ: dict[str, str]
    """The variables of the worker that a job inherits."""
    cwd: str
    launcher: Literal["auto", "warm", "torchrun"] = "auto"
    bundles: dict[str, str] = field(default_factory=dict[str, str])
    environment: str | None = None
    named: NamedEnvironment | None = None
    rules: NodeRules
    timing: Timing = Timing()


@dataclass(frozen=True, kw_only=True)
class SealedSecrets(Record):
    """`ctl/secrets-START.json`: what `sealing.seal` has returned, in base64."""

    content: Annotated[str, at_most(1 << 20)]


@dataclass(frozen=True, kw_only=True)
class NodeFacts(Record):
    """What a node says of itself when it comes up."""

    node: Node
    host: Annotated[str, cut_at(255)]
    version: Annotated[str, cut_at(100)]
    uid: int
    devices: Annotated[list[DeviceReport], at_most(1024)] = field(default_factory=list[DeviceReport])
    isolation: IsolationReport
    interface: Annotated[str, cut_at(100)] = ""
    port: Annotated[int, between(0, 65_535)] = 0
    """Where all ranks meet: node 0 listens there."""
    problem: Annotated[str, cut_at(2_000)] | None = None
    """Why nothing can be started there."""
    may_pass: bool = False
    """Whether the problem is one of the host, such as a full disk, and the next attempt may not meet it."""


@dataclass(frozen=True, kw_only=True)
class NodeEnd(Record):
    """How a node's part of an attempt ended."""

    report: ExitReport
    finished: bool = False
    """Whether the programs of all its ranks have done all their work."""


@dataclass(frozen=True, kw_only=True)
class HostDevices(Record):
    """As `NodeFacts`, for the daemon."""

    host: str
    devices: Annotated[list[DeviceReport], at_most(1024)]


@dataclass(frozen=True, kw_only=True)
class NodesReport(Record):
    """`ctl/nodes.json`: what Slurm has given."""

    nodes: Annotated[list[HostDevices], at_most(10_000)]
    isolation: str = ""
    """How the attempt is isolated, where it is least."""


@dataclass(frozen=True, kw_only=True)
class StacksRequest(Record):
    """`ctl/stacks.json`: asks all ranks for their stacks. A request that was seen before has the same number."""

    number: int


@dataclass(frozen=True)
class ClusterFiles:
    """The control files that only attempts in a cluster have."""

    run: RunDir

    @property
    def plan(self) -> Path:
        return self.run.launch

    def secrets(self, start: str) -> Path:
        """The encrypted secrets of one start: of two, the earlier one may run all the same."""
        return self.run.ctl / f"secrets-{start}.json"

    @property
    def lock(self) -> Path:
        """Made by the coordinator, once: what it says is for people."""
        return self.run.ctl / "batch.lock"

    @property
    def log(self) -> Path:
        """The output of the batch job."""
        return self.run.ctl / "batch.log"

    @property
    def heartbeat(self) -> Path:
        """Its modification time changes while the coordinator lives."""
        return self.run.ctl / "heartbeat"

    @property
    def nodes(self) -> Path:
        return self.run.ctl / "nodes.json"

    @property
    def stacks(self) -> Path:
        return self.run.ctl / "stacks.json"
