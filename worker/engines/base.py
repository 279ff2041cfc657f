"""The interface of an engine, which starts an attempt, observes it, asks it to stop and ends it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
import socket
import sys
from typing import Any, Literal, Protocol

from torchyard.contract.attempts.records import AttemptTerms, ExitReport
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.reach.orders import Call
from torchyard.contract.states import EndReason
from torchyard.contract.wire.codec import Record
from worker.host.attempt_key import AttemptKey

COMMAND_OPTION = "--command"
"""Begins a program that is started once, and starts its own ranks."""

_STRENGTHS = {EndReason.PREEMPTED: 0, EndReason.IDLE_TIMEOUT: 1, EndReason.PAUSED: 2, EndReason.CANCELLED: 4}
_STRENGTH_OF_OTHERS = 3  # the supervisor's own reasons, such as the time limit


def stronger(one: EndReason, other: EndReason) -> EndReason:
    """Returns which of two requested stops counts: preempted < idle_timeout < paused < time_limit < cancelled."""
    return max(one, other, key=lambda reason: _STRENGTHS.get(reason, _STRENGTH_OF_OTHERS))


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """What an attempt asks of a cluster, which chooses nodes and devices itself."""

    nodes: int
    devices_per_node: int
    kind: Literal["cuda", "cpu"]
    gpu: str | None = None
    """The name of the GPUs, as the cluster's operator has called them."""
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None


@dataclass(frozen=True, kw_only=True)
class NamedEnvironment(Record):
    """What an engine needs of the environment that the job names (`config.python`)."""

    python: str
    """Its interpreter."""
    variables: dict[str, str]
    """Those that it sets when it is activated, with PATH."""
    readable: list[str]
    """What its programs read. Nobody may write it."""
    run_package: str
    """A folder that has `torchyard.run` alone."""


@dataclass(frozen=True, kw_only=True)
class AttemptPlan(AttemptTerms):
    """What an attempt runs, for every engine: one rank on each of `devices`."""

    program: tuple[str, ...]
    """The program of a rank: `SCRIPT [ARGS…]`, or `-m MODULE [ARGS…]`. Or `COMMAND_OPTION EXECUTABLE [ARGS…]`: it is
    started once, and starts its own ranks."""
    owner: str
    """The job's owner, whose attempts share caches."""
    env: Mapping[str, str]
    """The variables of the service. The engine and its launcher add theirs."""
    job_env: Mapping[str, str]
    """The variables that the job wants. Its ranks alone get them."""
    cwd: Path
    devices: tuple[str, ...]
    """The UUIDs of the devices, by rank."""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables whose values no file, argument or launcher may have: the ranks get them in memory."""
    launcher: Literal["auto", "warm", "torchrun"] = "auto"
    """How the job wants its ranks to be started, if the engine has a choice."""
    source: Path | None = None
    """The code of a script as it came. Its copy in the working folder, `cwd`, may be another one by now."""

    bundles: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """The unpacked bundles that the program reads where they are, by sha256. Nobody may write them."""

    environment: Path | None = None
    """The virtual environment of the job, whose Python runs the program. None: the worker's. Nobody may write it."""

    named: NamedEnvironment | None = None
    """The environment of the host that the job names. None: as `environment` says."""

    cluster: ClusterRequest | None = None
    """Set for a cluster alone. Then `devices` is empty: each node learns its own when it runs."""

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job_id, self.attempt)

    @property
    def world_size(self) -> int:
        """The number of ranks, on all nodes."""
        return len(self.devices) if self.cluster is None else self.cluster.nodes * self.cluster.devices_per_node

    @property
    def python(self) -> str:
        """The interpreter that runs the program."""
        if self.named is not None:
            return self.named.python
        return sys.executable if self.environment is None else str(self.environment / "bin" / "python")

    @property
    def is_command(self) -> bool:
        return self.program[0] == COMMAND_OPTION

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs of those devices that are GPUs."""
        return tuple(uuid for uuid in self.devices if not uuid.startswith("cpu-"))


@dataclass(frozen=True)
class Handle:
    """Where an attempt runs. The attempt's row keeps `stored`, so that a later daemon can adopt the attempt."""

    key: AttemptKey
    world_size: int
    stored: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON that the engine chooses, with `engine`, and one line for the job's owner, `isolation`. Empty:
    nothing is known to have been started."""
    note: str | None = field(default=None, compare=False)
    """A message about the start for the job's owner."""


@dataclass(frozen=True)
class Waiting:
    """An observation: the attempt was started, and its ranks do not run yet."""

    reason: str
    eta: int | None = None
    """When the cluster expects to start it, in microseconds since the epoch."""
    queued: bool = False
    """Whether it waits in a cluster's queue: nothing of it runs, and the job's owner reads the reason."""


@dataclass(frozen=True)
class NodeDevices:
    """What one node of an attempt has, as the cluster chose it."""

    host: str
    devices: tuple[DeviceReport, ...]
    """By local rank. Their UUIDs differ over all nodes of the cluster."""


@dataclass(frozen=True)
class Running:
    """An observation: processes of the attempt run."""

    ranks: int
    """The number of ranks that have come up so far."""
    world_size: int
    supervised: bool = True
    """False: the supervisor, which carries out stop requests, has ended. The processes that are left must be killed."""
    nodes: tuple[NodeDevices, ...] = ()
    """What each node has, by its number, where a cluster chose it. Empty: not known yet, or the plan's devices."""
    isolation: str = ""
    """How the attempt is isolated, where its nodes tell: one line for the job's owner. Empty: as its handle says."""


@dataclass(frozen=True)
class Ended:
    """An observation: all processes of the attempt have ended."""

    report: ExitReport


@dataclass(frozen=True)
class Absent:
    """An observation: the engine is sure that nothing was started."""


@dataclass(frozen=True)
class Unknown:
    """An observation: the engine cannot tell now. It is never treated as `Absent` or `Ended`."""

    reason: str


Observation = Waiting | Running | Ended | Absent | Unknown


class NotStartedYet(Exception):
    """Nothing was started, and the same start may succeed later: the cluster takes no jobs now. The text says why."""


@dataclass(frozen=True)
class RankStacks:
    """The answer of one rank that was asked for the stacks of its threads. The job may have written any text."""

    text: str | None = None
    """None: it has written nothing."""
    note: str | None = None
    """Why there is no text and will be none, or what is missing of it."""


@dataclass(frozen=True)
class StrayMemory:
    """Memory that a rank holds on the device of another one, such as the context of a GPU that it uses by mistake."""

    rank: int
    device_of: int
    """The rank whose device it is."""
    memory_bytes: int
    """0: the driver does not say."""


class Engine(Protocol):
    """Every method may be called from any thread, for different attempts at once."""

    def announce(self, plan: AttemptPlan) -> Handle | None:
        """Returns the handle to store before `start`, if the engine may not know afterwards whether that has succeeded.

        By it, `poll` finds what was started. None: nothing need be stored.
        """
        ...

    def start(self, plan: AttemptPlan) -> Handle:
        """Starts the attempt, or finds the one that was started with this key.

        Raises NotStartedYet if nothing was started and the caller is to try again later, OSError if the start fails,
        and ConfigError if the plan asks for what is not possible here.
        """
        ...

    def find(self, key: AttemptKey, *, world_size: int, claimed_at: int) -> Handle | None:
        """Finds the attempt that was started with this key and claimed at this time, if its row has no handle yet."""
        ...

    def adopt(self, handle: Handle) -> None:
        """Takes over an attempt that an earlier daemon started."""
        ...

    def poll(self, handle: Handle) -> Observation:
        """Returns the state of the attempt. Does not wait."""
        ...

    def watch(self, handle: Handle, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls `changed` from any thread as soon as the attempt has ended, so that the caller can poll rarely.

        `changed` may be called more than once, or never if the host lacks resources. Returns a function that cancels
        the watch.
        """
        ...

    def request_stop(self, handle: Handle, reason: EndReason, grace: timedelta) -> None:
        """Asks the attempt to save a checkpoint and end within `grace`.

        A repeated request changes nothing. Of two requests, the stronger reason and the shorter grace count.
        """
        ...

    def request_stacks(self, handle: Handle) -> Callable[[], list[RankStacks]]:
        """Asks every rank for the stacks of its threads. Returns a function that reads the answers so far, by rank.

        Neither waits for a rank. Both raise OSError.
        """
        ...

    def reach(self, handle: Handle, call: Call) -> socket.socket:
        """Returns a connection to what is started in the sandbox of the attempt, or was started before.

        It carries the frames of `torchyard.contract.reach`. Raises OSError, and ConfigError where nothing can be
        started in an attempt.
        """
        ...

    def stray_memory(self, handle: Handle, devices: Sequence[str]) -> list[StrayMemory]:
        """Returns what the ranks hold on each other's devices now, as far as it can tell. `devices`: UUIDs, by rank."""
        ...

    def kill(self, handle: Handle) -> str | None:
        """Kills all processes of the attempt. Returns a message for the owner if some cannot be killed, else None."""
        ...

    def end_processes(self, key: AttemptKey) -> str | None:
        """Kills the attempt's processes that this host lists, as `kill` does. Touches no file: the disk may hang."""
        ...

    def runs(self, key: AttemptKey) -> bool:
        """Returns whether any process of the attempt runs, whoever started it."""
        ...

    def kill_others(self, keep: Collection[AttemptKey]) -> None:
        """Kills the processes on this host of all attempts that are not among `keep`."""
        ...

    def starts(self) -> StartsReport:
        """Returns how attempts start now."""
        ...

    def usage(self) -> dict[AttemptKey, float]:
        """Returns the share of the host's processors, 0…1, that each attempt has used since the previous call.

        One that was not there at the previous call, or that the engine cannot measure, is left out.
        """
        ...

    def capacity(self) -> list[DeviceReport]:
        """Returns the devices as they are now. A device that a foreign process uses is blocked."""
        ...
