"""An engine without processes: a test decides what happens to each attempt."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
import socket

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.reach.orders import Call
from torchyard.contract.states import EndReason
from worker.devices.inventory import Inventory
from worker.engines import base
from worker.engines.base import AttemptPlan, Handle, RankStacks, StrayMemory
from worker.host.attempt_key import AttemptKey


@dataclass
class Simulated:
    """One attempt without processes."""

    plan: AttemptPlan
    ranks: int = 0
    stops_on_request: bool = True
    """Whether it ends as soon as it is asked to stop. Otherwise it ends only if the grace is zero."""
    requests: list[tuple[EndReason, timedelta]] = field(default_factory=list[tuple[EndReason, timedelta]])
    report: ExitReport | None = None
    supervised: bool = True
    unkillable: bool = False
    unknown: bool = False
    stacks: list[RankStacks] = field(default_factory=list[RankStacks])
    """What its ranks answer when they are asked for their stacks."""
    stacks_requests: int = 0
    stray: list[StrayMemory] = field(default_factory=list[StrayMemory])
    """What its ranks hold on each other's devices."""
    waiting: base.Waiting = field(default_factory=lambda: base.Waiting("the test has set no ranks"))
    """What it waits for while it has no ranks."""
    nodes: tuple[base.NodeDevices, ...] = ()
    """What a cluster has given to it."""
    reached: list[tuple[Call, socket.socket]] = field(default_factory=list[tuple[Call, socket.socket]])
    """What was called in it, each with the end of its handler."""
    watchers: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def end(self, reason: EndReason = EndReason.COMPLETED, message: str = "") -> None:
        self.report = ExitReport(reason=reason, message=message)
        for changed in list(self.watchers):
            changed()


class MemoryEngine:
    """Remembers what was started for the whole test, even if a daemon leaves."""

    def __init__(self, inventory: Inventory) -> None:
        self.attempts: dict[AttemptKey, Simulated] = {}
        self.announces = False
        """Whether it wants a handle to be stored before each start, as a cluster does."""
        self.refusals: list[Exception] = []
        """What the next starts raise."""
        self.before_start: Callable[[], object] = lambda: None
        """Called by each start."""
        self._inventory = inventory

    def announce(self, plan: AttemptPlan) -> Handle | None:
        return _handle(plan) if self.announces else None

    def start(self, plan: AttemptPlan) -> Handle:
        self.before_start()
        if self.refusals:
            raise self.refusals.pop(0)
        self.attempts.setdefault(plan.key, Simulated(plan))
        return _handle(self.attempts[plan.key].plan)

    def find(self, key: AttemptKey, *, world_size: int, claimed_at: int) -> Handle | None:
        found = self.attempts.get(key)
        return _handle(found.plan) if found is not None and found.plan.claimed_at == claimed_at else None

    def adopt(self, handle: Handle) -> None:
        pass

    def poll(self, handle: Handle) -> base.Observation:
        found = self.attempts.get(handle.key)
        if found is None:
            return base.Absent()
        if found.unknown:
            return base.Unknown("set by the test")
        if found.report is not None:
            return base.Ended(found.report)
        if not found.ranks and found.supervised:
            return found.waiting
        return base.Running(found.ranks, found.plan.world_size, supervised=found.supervised, nodes=found.nodes)

    def watch(self, handle: Handle, changed: Callable[[], None]) -> Callable[[], None]:
        found = self.attempts.get(handle.key)
        if found is None:  # it was announced, and not started
            return lambda: None
        found.watchers.append(changed)
        if found.report is not None:
            changed()
        return lambda: found.watchers.remove(changed)

    def request_stop(self, handle: Handle, reason: EndReason, grace: timedelta) -> None:
        found = self.attempts[handle.key]
        if not found.requests or found.requests[-1] != (reason, grace):
            found.requests.append((reason, grace))
        if (found.stops_on_request or not grace) and found.report is None:
            found.end(reason)

    def request_stacks(self, handle: Handle) -> Callable[[], list[RankStacks]]:
        found = self.attempts[handle.key]
        found.stacks_requests += 1
        return lambda: list(found.stacks)

    def reach(self, handle: Handle, call: Call) -> socket.socket:
        given, kept = socket.socketpair()
        self.attempts[handle.key].reached.append((call, kept))
        return given

    def stray_memory(self, handle: Handle, devices: Sequence[str]) -> list[StrayMemory]:
        found = self.attempts[handle.key]
        assert tuple(devices) == found.plan.devices
        return list(found.stray)

    def kill(self, handle: Handle) -> str | None:
        found = self.attempts.get(handle.key)
        if found is None or found.report is not None:
            return None
        if found.unkillable:
            return "these processes cannot be killed, and keep the devices of the attempt until they end: 4121"
        found.end(EndReason.WORKER_LOST, "killed")
        return None

    def end_processes(self, key: AttemptKey) -> str | None:
        found = self.attempts.get(key)
        if found is not None and found.report is None:
            found.end(EndReason.KILLED)
        return None

    def runs(self, key: AttemptKey) -> bool:
        return key in self.attempts and self.attempts[key].report is None

    def kill_others(self, keep: Collection[AttemptKey]) -> None:
        for key, found in self.attempts.items():
            if key not in keep and found.report is None:
                found.end(EndReason.WORKER_LOST, "killed")

    def starts(self) -> StartsReport:
        return StartsReport(mode="warm", forks=len(self.attempts))

    def usage(self) -> dict[AttemptKey, float]:
        return dict.fromkeys(self.attempts, 0.25)

    def capacity(self) -> list[DeviceReport]:
        return self._inventory.observe(own_pids=set())


def _handle(plan: AttemptPlan) -> Handle:
    return Handle(plan.key, plan.world_size, {"engine": "memory", "number": plan.key.number})
