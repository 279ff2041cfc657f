"""Faults of a Slurm and of the worker of a pool, drawn by a seed. Each is undone by the one who injects it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
import threading
import time

from tests.slurm.chaos.wrappers import Wrappers
from tests.slurm.service import PoolService

PREFIX = "ty-"
"""Begins the names of all jobs of a service in Slurm."""
KINDS = (
    *("controller forgets", "controller forgets", "controller dies", "slurmd dies", "node dies", "link is cut"),
    *("daemon dies", "daemon dies at sbatch", "daemon dies after sbatch", "requeue", "drain", "foreign scancel"),
    *("squeue is empty", "squeue is slow", "squeue fails", "sbatch answers nothing", "sbatch is refused"),
)
"""Each is as likely as it is often here."""
_AFTER_SBATCH_S = 6.0
_SUBMISSION_S = 10.0
_REST_S = 4.0


@dataclass
class Injector(threading.Thread):
    """Injects `count` faults, then ends. `failure` is what it could not cope with."""

    service: PoolService
    wrappers: Wrappers
    seed: int
    count: int
    say: Callable[[str], None]
    injected: Counter[str] = field(default_factory=Counter[str])
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(name="faults", daemon=True)
        self._random = Random(f"slurm {self.seed}")
        self._closing = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def close(self) -> None:
        """Injects nothing more."""
        self._closing.set()

    def run(self) -> None:
        kinds = [kind for _ in range(self.count // len(KINDS) + 1) for kind in self._random.sample(KINDS, len(KINDS))]
        try:
            for kind in kinds[: self.count]:
                self.say(kind)
                self._inject(kind)
                self.injected[kind] += 1
                if self._closing.wait(self._random.uniform(0, _REST_S)):
                    return
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error

    def _inject(self, kind: str) -> None:
        match kind:
            case "controller forgets" | "controller dies":
                self._kill_controller(lose_state=kind == "controller forgets")
            case "slurmd dies" | "node dies" | "link is cut":
                self._break_node(kind)
            case "daemon dies":
                self.service.kill("pool")
            case "daemon dies at sbatch" | "daemon dies after sbatch":
                self._arm("launch.start." + ("before" if kind.endswith("at sbatch") else "after"))
            case "drain":
                self._drain()
            case "requeue" | "foreign scancel":
                self._meddle(kind)
            case _:
                self._answer(kind)

    def _kill_controller(self, *, lose_state: bool) -> None:
        """Up to six seconds after a job was submitted, if one is submitted soon."""
        before = {job["id"] for job in self._jobs()}
        deadline = time.monotonic() + _SUBMISSION_S
        while time.monotonic() < deadline and {job["id"] for job in self._jobs()} <= before:
            time.sleep(0.05)
        time.sleep(self._random.uniform(0, _AFTER_SBATCH_S))
        self.service.lab.kill_controller(lose_state=lose_state)
        time.sleep(self._random.uniform(0, 5))
        self.service.lab.start_controller()

    def _break_node(self, kind: str) -> None:
        lab, number = self.service.lab, self._random.randint(1, len(self.service.lab.nodes))
        if kind == "link is cut":
            lab.cut_link(number)
            time.sleep(self._random.choice((3, 20, 45)))
            lab.mend_link(number)
            return
        lab.kill_node(number, whole=kind == "node dies")
        time.sleep(self._random.choice((1, 10, 25)))
        lab.start_node(number)

    def _arm(self, failpoint: str) -> None:
        """Has the worker kill itself when it submits a job; then an unarmed one is started."""
        self.service.arm_pool(f"{failpoint}=kill")
        time.sleep(self._random.uniform(5, 15))
        self.service.arm_pool("")

    def _drain(self) -> None:
        node = self._random.choice(self.service.lab.nodes)
        self.service.lab.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=chaos", check=False)
        time.sleep(self._random.uniform(1, 8))
        self.service.lab.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def _meddle(self, kind: str) -> None:
        """Somebody else requeues or cancels a job of ours."""
        jobs = [
            job for job in self._jobs() if job["name"].startswith(PREFIX) and job["state"] in ("RUNNING", "PENDING")
        ]
        if jobs:
            argv = ["scontrol", "requeue"] if kind == "requeue" else ["scancel"]
            self.service.lab.run(*argv, self._random.choice(jobs)["id"], check=False)

    def _answer(self, kind: str) -> None:
        command, _, how = kind.partition(" ")
        with self.wrappers.broken(command, how):
            time.sleep(self._random.uniform(2, 15))

    def _jobs(self) -> list[dict[str, str]]:
        return self.service.jobs_in_slurm()
