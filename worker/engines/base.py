"""What runs an attempt, as the worker sees it. An engine starts it, observes it, asks it to stop and ends it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from torchyard.contract.views import DeviceView, StartsView


@dataclass(frozen=True)
class AttemptKey:
    """Names an attempt on every host. A start with a key that was started before starts nothing more."""

    job_id: str
    number: int


@dataclass(frozen=True)
class Plan:
    """What an attempt runs, whichever engine runs it: one rank on each of `devices`."""

    key: AttemptKey
    claimed_at: int
    """Microseconds, as the attempt's row has it. A number is used again where an older database was restored."""
    program: tuple[str, ...]
    """A rank's program: `SCRIPT [ARGS…]`, or `-m MODULE [ARGS…]`."""
    env: Mapping[str, str]
    """The job's variables and the service's; the engine and its launcher add theirs."""
    cwd: Path
    devices: tuple[str, ...]
    """Their UUIDs, by rank."""
    time_limit: timedelta
    """What is left of the job's limit for this attempt."""
    stall_timeout: timedelta
    stop_grace: timedelta
    reports: bool
    """Whether the program is known to write events: without any, `stall_timeout` counts from the start."""
    launcher: Literal["auto", "warm", "torchrun"] = "auto"
    """How the job wants its ranks to be brought up, where the engine has a choice."""


@dataclass(frozen=True)
class Handle:
    """Where an attempt runs. The attempt's row keeps `stored`, so that a later daemon can adopt the attempt."""

    key: AttemptKey
    world_size: int
    stored: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON of the engine's own, with `engine` and `layout`. Empty: nothing is known to have been started."""
    note: str | None = field(default=None, compare=False)
    """What the job's owner is to be told of the start."""


@dataclass(frozen=True)
class Waiting:
    """It was started, and its ranks do not run yet."""

    reason: str
    eta_s: float | None = None


@dataclass(frozen=True)
class Running:
    ranks: int
    """How many of its ranks have come up so far."""
    of: int
    """Its world size."""
    supervised: bool = True
    """False: what obeys a stop request is gone, and processes are left. They have to be killed."""


@dataclass(frozen=True)
class Ended:
    """Nothing of it runs any more."""

    report: ExitReport


@dataclass(frozen=True)
class Absent:
    """The engine is sure that nothing was started."""


@dataclass(frozen=True)
class Unknown:
    """The engine cannot tell now. Never taken for `Absent` or `Ended`."""

    reason: str


Observation = Waiting | Running | Ended | Absent | Unknown


class Engine(Protocol):
    """Every method may be called from any thread, for different attempts at once."""

    def start(self, plan: Plan) -> Handle:
        """Starts the attempt, or finds the one that was started with this key.

        Raises OSError where it cannot, and ConfigError where the plan asks for what is not possible here.
        """
        ...

    def find(self, key: AttemptKey, *, world_size: int, claimed_at: int) -> Handle | None:
        """The attempt that was started with this key and claimed then, where its row has no handle yet."""
        ...

    def adopt(self, handle: Handle) -> None:
        """Takes over an attempt that an earlier daemon started."""
        ...

    def poll(self, handle: Handle) -> Observation:
        """How the attempt is now. Waits for nothing."""
        ...

    def watch(self, handle: Handle, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls `changed`, in any thread, when the attempt has ended: `poll` may be asked rarely. At once where it has.

        It may be called too often, or where the host is short of something not at all. Answers what takes the watch
        back.
        """
        ...

    def request_stop(self, handle: Handle, reason: EndReason, grace: timedelta) -> None:
        """Lets the attempt save and end within `grace`. A repeat changes nothing; of two requests, the stronger reason
        and the shorter grace count."""
        ...

    def kill(self, handle: Handle) -> str | None:
        """Ends whatever runs of the attempt. What it could not end, in a sentence for the owner; None: all ended."""
        ...

    def runs(self, key: AttemptKey) -> bool:
        """Whether anything of the attempt runs, whoever started it."""
        ...

    def kill_others(self, keep: Collection[AttemptKey]) -> None:
        """Ends what runs on this host of attempts that are not among `keep`."""
        ...

    def starts(self) -> StartsView:
        """How attempts start now."""
        ...

    def capacity(self) -> list[DeviceView]:
        """The devices as they are now. One that somebody else uses is blocked."""
        ...
