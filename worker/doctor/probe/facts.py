"""What the nodes of a probe job are asked, and what each has found out. All of it lies in one shared folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from torchyard.contract.attempts.records import Rank
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.wire.codec import Record, at_most, between, cut_at, matching

_Text = Annotated[str, cut_at(500)]
Port = Annotated[int, between(1, 65_535)]
Token = Annotated[str, matching(r"[0-9a-f]{64}", "64 hexadecimal digits")]


@dataclass(frozen=True, kw_only=True)
class ProbeRequest(Record):
    """What the nodes are asked. The doctor writes it before it submits the job."""

    token: Token
    """By it the nodes know each other: others that connect to them are answered nothing."""
    nodes: Annotated[int, between(1, 64)]
    interface: str
    isolation: str
    folders: list[str]
    """Folders that each node must have at the same path."""
    wait_s: float
    """How long the nodes wait for each other."""


@dataclass(frozen=True, kw_only=True)
class Listener(Record):
    """Where the first node waits for the others."""

    address: Annotated[str, at_most(100)]
    port: Port


@dataclass(frozen=True, kw_only=True)
class Hello(Record):
    """What a node says first to one that it connects to."""

    token: Token
    rank: Rank
    listener: Listener
    """Where it can be connected to itself."""


@dataclass(frozen=True, kw_only=True)
class Reached(Record):
    """How a node has reached another one."""

    rank: Rank
    """That of the other."""
    error: _Text | None = None
    """Why it could not connect to the other."""
    clock_ahead_s: float | None = None
    """By how much the other's clock is ahead of its own; None if that is not known."""
    uncertainty_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Versions(Record):
    """What is installed on a host."""

    python: _Text
    torchyard: _Text
    torch: _Text = "none"


@dataclass(frozen=True, kw_only=True)
class Met(Record):
    """What a node has found out of the other nodes: whom it reaches, and whose locks it meets."""

    reached: Annotated[list[Reached], at_most(64)] = field(default_factory=list[Reached])
    locks: Literal["refused", "granted"] | None = None
    """How it fared when it locked a file that the first node held locked. None: not tried."""
    no_locks: _Text | None = None
    """Why files cannot be locked at all."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts(Record):
    """What one node has found out."""

    rank: Rank
    host: _Text
    uid: int
    versions: Versions
    time: float
    """By the node's clock, in seconds since the epoch."""
    address: _Text | None = None
    no_address: _Text | None = None
    """Why it has no address at which others reach it."""
    isolation: IsolationReport | None = None
    """How jobs would be isolated there."""
    no_isolation: _Text | None = None
    """Why no job starts there."""
    unusable: Annotated[dict[str, _Text], at_most(200)] = field(default_factory=dict[str, str])
    """Those of the folders that it cannot read, and why."""
    was_first: bool
    """Whether it has created a file that only one of them can create."""
    met: Met = Met()


@dataclass(frozen=True)
class Outcome:
    """What has become of a probe job."""

    facts: Sequence[NodeFacts] = ()
    """Of the nodes that have reported something, by their ranks."""
    log: str = ""
    """The end of what the job has printed."""
    waits: str | None = None
    """It has not started in time, for this reason."""
    refused: str | None = None
    """Slurm has said no, or nothing."""
    state: str | None = None
    """Slurm's word for the job, when it was last listed."""
    began: float = 0.0
    """By this host's clock, in seconds since the epoch, as is the next one."""
    ended: float = 0.0


@dataclass(frozen=True)
class ProbeFolder:
    """The paths in the folder of a probe."""

    root: Path

    @property
    def request(self) -> Path:
        return self.root / "request.json"

    @property
    def log(self) -> Path:
        """What the job and its nodes print."""
        return self.root / "job.log"

    @property
    def listener(self) -> Path:
        return self.root / "listener.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def first(self) -> Path:
        return self.root / "first"

    def facts(self, rank: int) -> Path:
        return self.root / f"node-{rank}.json"

    def names(self) -> set[str]:
        """Lists the folder: for a name alone, a network file system may answer an old "there is none"."""
        return {path.name for path in self.root.iterdir()}
