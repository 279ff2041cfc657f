"""Injects faults: a seed determines the plan, which is applied to the processes that exist at that moment."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
import os
from random import Random
import shutil
import signal
import threading
import time
from typing import Literal, get_args

from redis import Redis, RedisError

from tests.chaos import estimates, job_processes
from tests.chaos.deployment import Deployment
from tests.chaos.job_history import Damage
from tests.chaos.jobs import JobSubmitter
from torchyard.contract.errors import TorchyardError
from torchyard.contract.files.views import CheckpointView
from torchyard.contract.states import JobState

Target = Literal[
    "api",
    "api process",
    "controller",
    "worker",
    "leaseholder",
    "warm process",
    "redis",
    "postgresql",
    "supervisor",
    "torchrun",
    "rank",
    "box",
    "join",
]
Fault = Literal[
    "worker stopped for seconds",
    "worker stopped past its lease",
    "worker told to leave",
    "worker drained",
    "rank stopped for good",
    "redis wiped",
    "redis killed and wiped",
    "postgresql restarted",
    "disk full",
    "connections cut",
    "connections slow",
    "partition",
    "checkpoint damaged",
    "link down for seconds",
    "link down past a lease",
    "box asleep for seconds",
    "box asleep past its lease",
]

_KILLS: dict[Target, int] = {
    "rank": 6,
    "worker": 5,
    "leaseholder": 3,
    "warm process": 4,
    "supervisor": 4,
    "torchrun": 3,
    "api": 2,
    "api process": 3,
    "controller": 3,
    "redis": 2,
    "postgresql": 2,
}
"""Relative frequency of each target."""
_KILLS_OF_BOXES: dict[Target, int] = {"box": 5, "join": 3}
_FAULTS_OF_BOXES: tuple[Fault, ...] = (
    "link down for seconds",
    "link down past a lease",
    "box asleep for seconds",
    "box asleep past its lease",
)
_PAST_LEASE_S = (33.0, 40.0)
_LONG: dict[Fault, float] = {
    "rank stopped for good": 180.0,
    "worker stopped past its lease": 120.0,
    "link down past a lease": 120.0,
    "box asleep past its lease": 120.0,
}
"""Shortest run, in seconds, for faults that take long."""
_TICK_S = 0.1
_HEAL_S = 60.0
_LOOKS = 30
"""Ticks to wait for a missing target before another one is taken."""


@dataclass(frozen=True, order=True)
class PlannedFault:
    """A fault `at` seconds after the start of the run."""

    at: float
    what: str
    kill: bool


def plan(*, seed: int, kills: int, seconds: float, boxes: bool = False) -> list[PlannedFault]:
    """Plans `kills` kills and one other fault for every three of them. No fault repeats before each has occurred.

    Faults that need more than `seconds`, or `boxes` where there are none, are omitted.
    """
    random = Random(f"nemesis {seed}")
    weights = _KILLS | (_KILLS_OF_BOXES if boxes else {})
    targets = random.choices(list(weights), weights=list(weights.values()), k=kills)
    possible = [name for name in get_args(Fault) if boxes or name not in _FAULTS_OF_BOXES]
    faults: list[Fault] = []
    while len(faults) < max(kills // 3, 1):
        kinds = [name for name in possible if seconds >= _LONG.get(name, 0.0)]
        random.shuffle(kinds)
        faults += kinds
    chosen = [(target, True) for target in targets] + [(name, False) for name in faults[: max(kills // 3, 1)]]
    return sorted(PlannedFault(random.uniform(0, seconds), what, kill) for what, kill in chosen)


@dataclass(frozen=True)
class Kill:
    """A kill whose recovery is measured. `at` is in seconds since the epoch."""

    target: Target
    at: float
    worker: str | None = None
    job_id: str | None = None
    attempt: int = 0


@dataclass
class InjectedFaults:
    """The injected faults."""

    kills: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    damaged: list[Damage] = field(default_factory=list[Damage])
    impossible: set[str] = field(default_factory=set[str])
    """Faults that are not possible on this machine or database."""


class FaultInjector(threading.Thread):
    """Injects the planned faults, and undoes what it can at the end or after `close`.

    `wounded` is called for each kill, `say` with a line for each fault. `failure` is an unexpected exception.
    """

    def __init__(
        self,
        deployment: Deployment,
        stream: JobSubmitter,
        planned: Sequence[PlannedFault],
        *,
        seed: int,
        on_kill: Callable[[Kill], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="nemesis", daemon=True)
        self.injected = InjectedFaults()
        self.failure: BaseException | None = None
        self._deployment, self._stream, self._planned = deployment, stream, planned
        self._random = Random(f"victims {seed}")
        self._on_kill, self._say = on_kill, say
        self._undo: list[tuple[float, Callable[[], object]]] = []
        self._stopped: dict[str, int] = {}
        """Stopped workers with their pids."""
        self._closing = threading.Event()
        self._client = deployment.client(patience=0)
        self._actions: dict[str, Callable[[], bool]] = {
            "worker stopped for seconds": lambda: self._stop_worker(self._random.uniform(2, 8)),
            "worker stopped past its lease": lambda: self._stop_worker(self._random.uniform(*_PAST_LEASE_S)),
            "worker told to leave": self._leave,
            "worker drained": self._drain,
            "rank stopped for good": self._stop_rank,
            "redis wiped": self._wipe,
            "redis killed and wiped": self._lose_redis,
            "postgresql restarted": self._restart,
            "disk full": self._fill,
            "connections cut": self._cut,
            "connections slow": self._slow,
            "partition": self._hold,
            "checkpoint damaged": self._damage,
            "link down for seconds": lambda: self._cut_link(self._random.uniform(2, 12)),
            "link down past a lease": lambda: self._cut_link(self._random.uniform(*_PAST_LEASE_S)),
            "box asleep for seconds": lambda: self._sleep_box(self._random.uniform(2, 8)),
            "box asleep past its lease": lambda: self._sleep_box(self._random.uniform(*_PAST_LEASE_S)),
        }

    def close(self) -> None:
        """Injects no further faults."""
        self._closing.set()

    def run(self) -> None:
        began = time.monotonic()
        try:
            for fault in self._planned:
                if not self._wait_until(began + fault.at):
                    break
                if fault.kill:
                    self._kill(fault.what)
                else:
                    self._inject(fault.what)
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error
        finally:
            self._heal()

    def _wait_until(self, fault: float) -> bool:
        """Waits, and undoes faults that are due. Returns False after `close`."""
        while True:
            now = time.monotonic()
            for due, undo in [item for item in self._undo if item[0] <= now]:
                self._undo.remove((due, undo))
                undo()
            if now >= fault:
                return not self._closing.is_set()
            if self._closing.wait(min(_TICK_S, fault - now)):
                return False

    def _heal(self) -> None:
        deadline = time.monotonic() + _HEAL_S
        while self._undo and time.monotonic() < deadline:  # an undo that fails is added again
            for item in list(self._undo):
                self._undo.remove(item)
                item[1]()
            time.sleep(_TICK_S)

    def _undo_after(self, seconds: float, undo: Callable[[], object]) -> None:
        self._undo.append((time.monotonic() + seconds, undo))

    def _kill(self, first: str) -> None:
        others = [target for target in _KILLS if target != first]
        self._random.shuffle(others)
        for target in (first, *others):
            for _ in range(_LOOKS if target == first else 1):
                kill = self._kill_target(target)
                if kill is not None:
                    self.injected.kills[kill.target] += 1
                    self._on_kill(kill)
                    return
                if not self._wait_until(time.monotonic() + _TICK_S):
                    return

    def _kill_target(self, target: str) -> Kill | None:
        if target in {"supervisor", "torchrun", "rank"}:
            return self._kill_job_process(target)
        if target == "warm process":
            return self._kill_warm_process()
        if target == "api process":
            return self._kill_api_process()
        if target in {"worker", "leaseholder"}:
            return self._kill_worker(target)
        if target in {"box", "join"}:
            return self._kill_box(target)
        return self._kill_component(target, target)

    def _kill_worker(self, target: str) -> Kill | None:
        """Kills any worker, or the one that makes the estimates."""
        name = (
            self._random.choice(self._deployment.workers) if target == "worker" else estimates.holder(self._deployment)
        )
        return None if name is None else self._kill_component(name, target, worker=self._deployment.worker_id(name))

    def _kill_component(self, name: str, target: str, *, worker: str | None = None) -> Kill | None:
        component = self._deployment.components.get(name)
        pid = component.send(signal.SIGKILL) if component is not None else None
        if pid is None:
            return None
        self._stopped.pop(name, None)
        self._say(f"kill {name}{', the leaseholder' if target == 'leaseholder' else ''} (pid {pid})")
        return Kill(_target(target), time.time(), worker=worker)

    def _kill_box(self, target: str) -> Kill | None:
        """Kills all that runs in a box, or what starts its worker and ends with it."""
        if not self._deployment.boxes:
            return None
        name, box = self._random.choice(list(self._deployment.boxes.items()))
        if target == "box" and not box.crash(rest=self._random.uniform(0.5, 6)):
            return None
        if target == "join" and box.kill_join() is None:
            return None
        self._stopped.pop(name, None)
        self._say(f"kill {name if target == 'box' else f'join of {name}'}")
        return Kill(_target(target), time.time(), worker=box.worker_id)

    def _kill_warm_process(self) -> Kill | None:
        name = self._random.choice(self._deployment.workers)
        worker = self._deployment.components[name].pid
        pid = job_processes.warm_process_of(worker) if worker is not None else None
        if pid is None:
            return None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._say(f"kill the warm process of {name} (pid {pid})")
        return Kill("warm process", time.time(), worker=self._deployment.worker_id(name))

    def _kill_api_process(self) -> Kill | None:
        """Kills one of those that the API's parent has started."""
        parent = self._deployment.components["api"].pid
        running = job_processes.children(parent) if parent is not None else []
        if not running:
            return None
        pid = self._random.choice(running)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._say(f"kill a process of the api (pid {pid})")
        return Kill("api process", time.time())

    def _kill_job_process(self, target: str) -> Kill | None:
        victim = self._random_process(target)
        if victim is None:
            return None
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        self._say(f"kill {target} of {victim.job_id} attempt {victim.attempt} (pid {victim.pid})")
        return Kill(_target(target), time.time(), job_id=victim.job_id, attempt=victim.attempt)

    def _random_process(self, role: str) -> job_processes.JobProcess | None:
        jobs = {chaos_job.job_id for chaos_job in list(self._stream.chaos_jobs) if not chaos_job.over}
        found = [process for process in job_processes.find(jobs) if process.role == role]
        return self._random.choice(found) if found else None

    def _inject(self, name: str) -> None:
        for _ in range(_LOOKS):
            if self._actions[name]():
                self._say(name)
                self.injected.faults[name] += 1
                return
            if name in self.injected.impossible or not self._wait_until(time.monotonic() + _TICK_S):
                return

    def _impossible(self, name: Fault) -> bool:
        self.injected.impossible.add(name)
        return False

    def _stop_worker(self, seconds: float) -> bool:
        if self._stopped:
            return False  # another worker must run
        name = self._random.choice(self._deployment.workers)
        pid = self._deployment.components[name].send(signal.SIGSTOP)
        if pid is None:
            return False
        self._stopped[name] = pid
        self._undo_after(seconds, lambda: self._continue(name, pid))
        return True

    def _continue(self, name: str, pid: int) -> None:
        if self._stopped.get(name) == pid:
            del self._stopped[name]
            if self._deployment.components[name].pid == pid:
                self._deployment.components[name].send(signal.SIGCONT)

    def _cut_link(self, seconds: float) -> bool:
        box = self._random.choice(list(self._deployment.boxes.values()))
        if not box.cut():
            return False
        self._undo_after(seconds, box.mend)
        return True

    def _sleep_box(self, seconds: float) -> bool:
        if self._stopped:
            return False  # another worker must run
        name, box = self._random.choice(list(self._deployment.boxes.items()))
        if not box.sleep():
            return False
        self._stopped[name] = 0
        self._undo_after(seconds, lambda: (self._stopped.pop(name, None), box.wake()))
        return True

    def _leave(self) -> bool:
        name = self._random.choice(self._deployment.workers)
        return name not in self._stopped and self._deployment.components[name].send(signal.SIGTERM) is not None

    def _drain(self) -> bool:
        worker = self._deployment.worker_id(self._random.choice(self._deployment.workers))
        try:
            self._client.workers.drain(worker)
        except TorchyardError:
            return False
        self._undo_after(self._random.uniform(2, 8), lambda: self._undrain(worker))
        return True

    def _undrain(self, worker: str) -> None:
        try:
            self._client.workers.undrain(worker)
        except TorchyardError:
            self._undo_after(_TICK_S, lambda: self._undrain(worker))

    def _stop_rank(self) -> bool:
        victim = self._random_process("rank")
        if victim is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGSTOP)
            return True
        return False

    def _wipe(self) -> bool:
        password = (self._deployment.folder / "redis-password").read_text()
        try:
            with Redis(port=self._deployment.proxies["redis"].port, password=password, socket_timeout=1) as redis:
                redis.flushall()
        except RedisError:
            return False
        return True

    def _lose_redis(self) -> bool:
        if self._deployment.components["redis"].send(signal.SIGKILL, rest=self._random.uniform(1, 6)) is None:
            return False
        for path in (self._deployment.folder / "redis").iterdir():
            if path.name.startswith("appendonly"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return True

    def _restart(self) -> bool:
        if "postgresql" not in self._deployment.components:
            return self._impossible("postgresql restarted")
        rest = self._random.uniform(1, 6)
        return self._deployment.components["postgresql"].send(signal.SIGINT, rest=rest) is not None

    def _fill(self) -> bool:
        if not self._deployment.disk.mounted:
            return self._impossible("disk full")
        self._deployment.disk.fill()
        self._undo_after(self._random.uniform(2, 6), self._deployment.disk.empty)
        return True

    def _cut(self) -> bool:
        return sum(proxy.cut() for proxy in self._deployment.proxies.values()) > 0

    def _slow(self) -> bool:
        for proxy in self._deployment.proxies.values():
            proxy.latency = self._random.uniform(0.01, 0.1)
        self._undo_after(self._random.uniform(3, 8), self._heal_network)
        return True

    def _hold(self) -> bool:
        proxy = self._random.choice(list(self._deployment.proxies.values()))
        proxy.hold()
        self._undo_after(self._random.uniform(2, 10), self._heal_network)
        return True

    def _heal_network(self) -> None:
        for proxy in self._deployment.proxies.values():
            proxy.heal()

    def _damage(self) -> bool:
        """Overwrites the newest checkpoint of a running job and kills one of its ranks, so that it is read."""
        victim = self._random_process("rank")
        newest = self._newest(victim) if victim is not None else None
        if victim is None or newest is None:
            return False
        path = self._deployment.blobs / newest.sha256[:2] / newest.sha256
        for box in self._deployment.boxes.values():
            box.forget(newest.sha256)
        try:
            with path.open("r+b") as file:
                file.seek(newest.size // 2)
                file.write(bytes(64))
            os.kill(victim.pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        self.injected.damaged.append(Damage(newest.id, newest.sha256, time.time()))
        self._say(f"damaged {newest.id} (step {newest.step}) of {victim.job_id}")
        return True

    def _newest(self, process: job_processes.JobProcess) -> CheckpointView | None:
        """Returns the newest checkpoint of a job whose current attempt runs, so that it has already resumed."""
        try:
            job = self._client.get(process.job_id).view
            newest = next(self._client.jobs.checkpoints(process.job_id), None)
        except TorchyardError:
            return None
        return newest if job.state is JobState.RUNNING and job.attempt == process.attempt else None


def _target(name: str) -> Target:
    found: dict[str, Target] = {target: target for target in (*_KILLS, *_KILLS_OF_BOXES)}
    return found[name]
