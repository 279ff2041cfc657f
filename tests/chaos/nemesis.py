"""What goes wrong, and when: a plan that a seed decides, carried out on whatever is there at the moment."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
import os
from random import Random
import signal
import threading
import time
from typing import Literal, get_args

from redis import Redis, RedisError

from tests.chaos import crew
from tests.chaos.history import Damage
from tests.chaos.jobs import Stream
from tests.chaos.yard import WORKERS, Yard
from torchyard.contract.errors import TorchyardError
from torchyard.contract.job import JobState
from torchyard.contract.views import CheckpointView

Target = Literal["api", "worker", "warm process", "redis", "postgresql", "supervisor", "torchrun", "rank"]
Trouble = Literal[
    "worker stopped for seconds",
    "worker stopped past its lease",
    "worker told to leave",
    "worker drained",
    "rank stopped for good",
    "redis wiped",
    "postgresql restarted",
    "disk full",
    "connections cut",
    "connections slow",
    "partition",
    "checkpoint damaged",
]

_KILLS: dict[Target, int] = {
    "rank": 6,
    "worker": 5,
    "warm process": 4,
    "supervisor": 4,
    "torchrun": 3,
    "api": 4,
    "redis": 2,
    "postgresql": 2,
}
"""How often each is chosen, beside the others."""
_PAST_LEASE_S = (33.0, 40.0)
_LONG: dict[Trouble, float] = {"rank stopped for good": 180.0, "worker stopped past its lease": 120.0}
"""Troubles that only a run of so many seconds has time for."""
_TICK_S = 0.1
_HEAL_S = 60.0
_LOOKS = 30
"""Ticks for which a target that is not there is waited for, before another is taken."""


@dataclass(frozen=True, order=True)
class Moment:
    """Something that goes wrong `at` so many seconds after the beginning."""

    at: float
    what: str
    kill: bool


def plan(*, seed: int, kills: int, seconds: float) -> list[Moment]:
    """`kills` kills, and for every three of them another trouble, each kind of which comes before one comes again.

    Troubles that a run of so many `seconds` has no time for are left out.
    """
    random = Random(f"nemesis {seed}")
    targets = random.choices(list(_KILLS), weights=list(_KILLS.values()), k=kills)
    troubles: list[Trouble] = []
    while len(troubles) < max(kills // 3, 1):
        kinds = [name for name in get_args(Trouble) if seconds >= _LONG.get(name, 0.0)]
        random.shuffle(kinds)
        troubles += kinds
    chosen = [(target, True) for target in targets] + [(name, False) for name in troubles[: max(kills // 3, 1)]]
    return sorted(Moment(random.uniform(0, seconds), what, kill) for what, kill in chosen)


@dataclass(frozen=True)
class Wound:
    """A kill, by which somebody measures how long it takes to recover. `at` is by the wall clock."""

    target: Target
    at: float
    worker: str | None = None
    job_id: str | None = None
    attempt: int = 0


@dataclass
class Deeds:
    """What was done."""

    kills: Counter[str] = field(default_factory=Counter[str])
    troubles: Counter[str] = field(default_factory=Counter[str])
    damaged: list[Damage] = field(default_factory=list[Damage])
    impossible: set[str] = field(default_factory=set[str])
    """Troubles that this machine, or this database, does not allow."""


class Nemesis(threading.Thread):
    """Carries out `moments`, and takes back what it can when it is over or `close` was called.

    `wounded` is told of each kill, `say` gets a line for each deed. `failure` is what it could not cope with.
    """

    def __init__(
        self,
        yard: Yard,
        stream: Stream,
        moments: Sequence[Moment],
        *,
        seed: int,
        wounded: Callable[[Wound], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="nemesis", daemon=True)
        self.deeds = Deeds()
        self.failure: BaseException | None = None
        self._yard, self._stream, self._moments = yard, stream, moments
        self._random = Random(f"victims {seed}")
        self._wounded, self._say = wounded, say
        self._undo: list[tuple[float, Callable[[], object]]] = []
        self._stopped: dict[str, int] = {}
        """Workers that are stopped, and their pids."""
        self._closing = threading.Event()
        self._client = yard.client(patience=0)
        self._troubles: dict[str, Callable[[], bool]] = {
            "worker stopped for seconds": lambda: self._stop_worker(self._random.uniform(2, 8)),
            "worker stopped past its lease": lambda: self._stop_worker(self._random.uniform(*_PAST_LEASE_S)),
            "worker told to leave": self._leave,
            "worker drained": self._drain,
            "rank stopped for good": self._stop_rank,
            "redis wiped": self._wipe,
            "postgresql restarted": self._restart,
            "disk full": self._fill,
            "connections cut": self._cut,
            "connections slow": self._slow,
            "partition": self._hold,
            "checkpoint damaged": self._damage,
        }

    def close(self) -> None:
        """Do nothing more."""
        self._closing.set()

    def run(self) -> None:
        began = time.monotonic()
        try:
            for moment in self._moments:
                if not self._wait_until(began + moment.at):
                    break
                if moment.kill:
                    self._kill(moment.what)
                else:
                    self._trouble(moment.what)
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error
        finally:
            self._heal()

    def _wait_until(self, moment: float) -> bool:
        """False as soon as it is to end. Meanwhile troubles end that have a length."""
        while True:
            now = time.monotonic()
            for due, undo in [item for item in self._undo if item[0] <= now]:
                self._undo.remove((due, undo))
                undo()
            if now >= moment:
                return not self._closing.is_set()
            if self._closing.wait(min(_TICK_S, moment - now)):
                return False

    def _heal(self) -> None:
        deadline = time.monotonic() + _HEAL_S
        while self._undo and time.monotonic() < deadline:  # what has no effect yet comes again
            for item in list(self._undo):
                self._undo.remove(item)
                item[1]()
            time.sleep(_TICK_S)

    def _for(self, seconds: float, undo: Callable[[], object]) -> None:
        self._undo.append((time.monotonic() + seconds, undo))

    def _kill(self, first: str) -> None:
        others = [target for target in _KILLS if target != first]
        self._random.shuffle(others)
        for target in (first, *others):
            for _ in range(_LOOKS if target == first else 1):
                wound = self._strike(target)
                if wound is not None:
                    self.deeds.kills[wound.target] += 1
                    self._wounded(wound)
                    return
                if not self._wait_until(time.monotonic() + _TICK_S):
                    return

    def _strike(self, target: str) -> Wound | None:
        if target in {"supervisor", "torchrun", "rank"}:
            return self._strike_crew(target)
        if target == "warm process":
            return self._strike_warm_process()
        name = self._random.choice(WORKERS) if target == "worker" else target
        worker = self._yard.worker_id(name) if target == "worker" else None
        part = self._yard.parts.get(name)
        pid = part.send(signal.SIGKILL) if part is not None else None
        if pid is None:
            return None
        self._stopped.pop(name, None)
        self._say(f"kill {name} (pid {pid})")
        return Wound(_target(target), time.time(), worker=worker)

    def _strike_warm_process(self) -> Wound | None:
        name = self._random.choice(WORKERS)
        worker = self._yard.parts[name].pid
        pid = crew.warm_process_of(worker) if worker is not None else None
        if pid is None:
            return None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._say(f"kill the warm process of {name} (pid {pid})")
        return Wound("warm process", time.time(), worker=self._yard.worker_id(name))

    def _strike_crew(self, target: str) -> Wound | None:
        victim = self._victim(target)
        if victim is None:
            return None
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        self._say(f"kill {target} of {victim.job_id} attempt {victim.attempt} (pid {victim.pid})")
        return Wound(_target(target), time.time(), job_id=victim.job_id, attempt=victim.attempt)

    def _victim(self, role: str) -> crew.Member | None:
        jobs = {errand.job_id for errand in list(self._stream.errands) if not errand.over}
        found = [member for member in crew.muster(jobs) if member.role == role]
        return self._random.choice(found) if found else None

    def _trouble(self, name: str) -> None:
        for _ in range(_LOOKS):
            if self._troubles[name]():
                self._say(name)
                self.deeds.troubles[name] += 1
                return
            if name in self.deeds.impossible or not self._wait_until(time.monotonic() + _TICK_S):
                return

    def _impossible(self, name: Trouble) -> bool:
        self.deeds.impossible.add(name)
        return False

    def _stop_worker(self, seconds: float) -> bool:
        if self._stopped:
            return False  # the other one goes on
        name = self._random.choice(WORKERS)
        pid = self._yard.parts[name].send(signal.SIGSTOP)
        if pid is None:
            return False
        self._stopped[name] = pid
        self._for(seconds, lambda: self._continue(name, pid))
        return True

    def _continue(self, name: str, pid: int) -> None:
        if self._stopped.get(name) == pid:
            del self._stopped[name]
            if self._yard.parts[name].pid == pid:
                self._yard.parts[name].send(signal.SIGCONT)

    def _leave(self) -> bool:
        name = self._random.choice(WORKERS)
        return name not in self._stopped and self._yard.parts[name].send(signal.SIGTERM) is not None

    def _drain(self) -> bool:
        worker = self._yard.worker_id(self._random.choice(WORKERS))
        try:
            self._client.drain(worker)
        except TorchyardError:
            return False
        self._for(self._random.uniform(2, 8), lambda: self._undrain(worker))
        return True

    def _undrain(self, worker: str) -> None:
        try:
            self._client.undrain(worker)
        except TorchyardError:
            self._for(_TICK_S, lambda: self._undrain(worker))

    def _stop_rank(self) -> bool:
        victim = self._victim("rank")
        if victim is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGSTOP)
            return True
        return False

    def _wipe(self) -> bool:
        password = (self._yard.folder / "redis-password").read_text()
        try:
            with Redis(port=self._yard.proxies["redis"].port, password=password, socket_timeout=1) as redis:
                redis.flushall()
        except RedisError:
            return False
        return True

    def _restart(self) -> bool:
        if "postgresql" not in self._yard.parts:
            return self._impossible("postgresql restarted")
        rest = self._random.uniform(1, 6)
        return self._yard.parts["postgresql"].send(signal.SIGINT, rest=rest) is not None

    def _fill(self) -> bool:
        if not self._yard.disk.mounted:
            return self._impossible("disk full")
        self._yard.disk.fill()
        self._for(self._random.uniform(2, 6), self._yard.disk.empty)
        return True

    def _cut(self) -> bool:
        return sum(proxy.cut() for proxy in self._yard.proxies.values()) > 0

    def _slow(self) -> bool:
        for proxy in self._yard.proxies.values():
            proxy.latency = self._random.uniform(0.01, 0.1)
        self._for(self._random.uniform(3, 8), self._heal_network)
        return True

    def _hold(self) -> bool:
        proxy = self._random.choice(list(self._yard.proxies.values()))
        proxy.hold()
        self._for(self._random.uniform(2, 10), self._heal_network)
        return True

    def _heal_network(self) -> None:
        for proxy in self._yard.proxies.values():
            proxy.heal()

    def _damage(self) -> bool:
        """Overwrites the newest checkpoint of a job that runs, and kills a rank of it, so that it is looked at."""
        victim = self._victim("rank")
        newest = self._newest(victim) if victim is not None else None
        if victim is None or newest is None:
            return False
        path = self._yard.blobs / newest.sha256[:2] / newest.sha256
        try:
            with path.open("r+b") as file:
                file.seek(newest.size // 2)
                file.write(bytes(64))
            os.kill(victim.pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        self.deeds.damaged.append(Damage(newest.id, newest.sha256, time.time()))
        self._say(f"damaged {newest.id} (step {newest.step}) of {victim.job_id}")
        return True

    def _newest(self, member: crew.Member) -> CheckpointView | None:
        """Of a job whose current attempt runs, and so has chosen what it resumes from."""
        try:
            job = self._client.get(member.job_id)
            newest = next(self._client.checkpoints(member.job_id), None)
        except TorchyardError:
            return None
        return newest if job.state is JobState.RUNNING and job.attempt == member.attempt else None


def _target(name: str) -> Target:
    found: dict[str, Target] = {target: target for target in _KILLS}
    return found[name]
