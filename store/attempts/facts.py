"""What a worker knows of attempts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from store.reaches.facts import ReachOrder
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.queue.price import Saving, Stake
from torchyard.contract.states import EndReason, Reason

LEASE = timedelta(seconds=30)
"""So long an attempt belongs to its worker after a renewal, and a worker counts as alive after a heartbeat."""


@dataclass(frozen=True)
class Claim:
    """An open attempt that a worker owns."""

    attempt_id: int
    job_id: str
    number: int
    worker_id: str
    holder: str | None = None
    """In a pool, the daemon that may write for it. None: it is on a host, whose worker alone can."""


@dataclass(frozen=True, slots=True)
class NodeHeld:
    """What a node of a cluster gives to an attempt."""

    host: str
    devices: Sequence[DeviceReport]
    """By local rank."""


@dataclass(frozen=True, slots=True)
class Begun:
    """How far an attempt has come. The next write of the attempt stores it, too."""

    launcher: Mapping[str, Any] | None = None
    """The engine's handle (JSON), by which a later daemon finds the attempt's processes."""
    running: Reason | None = None
    """Set when every rank has come up: the job moves to `running` with this reason, unless it is running already."""

    nodes: Sequence[NodeHeld] = ()
    """In a pool, what the cluster has chosen, by the numbers of the nodes. Empty: not known yet."""

    def __bool__(self) -> bool:
        return self.launcher is not None or self.running is not None or bool(self.nodes)

    def without(self, stored: "Begun") -> "Begun":
        """Returns what was not in `stored`, or is something else by now."""
        return Begun(
            None if self.launcher == stored.launcher else self.launcher,
            None if self.running == stored.running else self.running,
            () if self.nodes == stored.nodes else self.nodes,
        )


NOTHING_BEGUN = Begun()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of an open attempt: by the job's owner, or for a job that preempts it."""

    end: EndReason | None = None
    grace: timedelta | None = None
    """The longest grace of that end, if it is not just the job's."""
    stacks_requested_at: int | None = None
    reaches: Sequence[ReachOrder] = ()
    """What is to be done for reaches into it. Empty where the attempt itself is read."""


@dataclass(frozen=True, slots=True)
class AttemptSecrets:
    """The secrets that the job's spec names.

    `values`: by variable. `problem`: why some of them are missing; the attempt cannot start then.
    """

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """An open attempt, and what its worker needs of its job. Times are microseconds since the epoch."""

    started_at: int
    """When it was claimed."""
    age: timedelta
    """How much of the time limit it has used, by the database's clock: the time since it was claimed, in a pool since
    it runs."""
    start_step: int
    """The step from which it resumes."""
    launcher: Mapping[str, Any] | None
    """The engine's handle, as JSON. None: nothing was started yet."""
    relay_seq: int
    """How many batches of its output are stored."""
    offsets: Mapping[str, int]
    """How far its output is stored: bytes of each file of the run directory, and what else the relay remembers."""
    cut: frozenset[str]
    """What is not stored any more, since a limit was reached, such as `log`."""
    owner: str
    spec: Mapping[str, Any]
    """The job's spec, as it was written."""
    stop_grace: timedelta
    time_left: timedelta
    """What the job's earlier attempts have left of its time limit."""
    devices: Sequence[str]
    """The UUIDs of its devices, by rank. None in a pool."""
    world_size: int
    """The number of its ranks."""
    in_pool: bool
    """Whether a cluster starts it, and chooses its devices."""
    secrets: AttemptSecrets
    wanted: Wanted
    inherited: "Inherited | None" = None
    """Set for a retry that finds anything of the other job in its working folder."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the environment of its ranks has beside the variables of every attempt: those of a trial."""
    worker: str = ""
    """The name of its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAttempt:
    """An attempt of the same job with a lower number."""

    number: int
    started_at: int
    """When it was claimed, in microseconds since the epoch."""
    ran: bool
    """Whether a process of it was started."""
    offsets: Mapping[str, int]
    """As of `AttemptFacts`."""
    environment: Mapping[str, Any] | None = None
    """The environment that its job names, as it was then: an `EnvironmentReport`."""


Inherits = Literal["folder", "files", "checkpoint"]
"""What the working folder of a retry begins with: a copy of the other job's folder, where that is on its host, or else
the files that are stored of that job; these alone; or the checkpoint that was asked for."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The job that this one retries, and what it finds of that."""

    job_id: str
    inherits: Inherits


@dataclass(frozen=True)
class KnownJob:
    """A job with a row, for which run directories may exist."""

    finished: bool
    attempts: dict[int, int | None]
    """By number: microseconds since the attempt ended; None while it is open."""
    age: int | None = None
    """Microseconds since the job has finished; None if it has not."""
    asked: bool = False
    """Whether somebody has asked for files of its working folder, which are not all stored yet."""

    @property
    def runs(self) -> bool:
        """Whether an attempt is open."""
        return None in self.attempts.values()


@dataclass(frozen=True, slots=True)
class KeepOrder:
    """A request to keep files of a working folder, as the worker reads it that is to answer."""

    job_id: str
    owner: str
    attempt: int
    paths: tuple[str, ...]
    requested_at: int


@dataclass(frozen=True, slots=True)
class StopPrice:
    """What stopping a running job would cost, now."""

    job_id: str
    name: str
    owner: str
    visibility: str
    devices: int
    stake: Stake
    saving: Saving
    """What it does when it is asked to stop."""
