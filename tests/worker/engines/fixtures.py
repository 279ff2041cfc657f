"""Engines for the conformance suite, with programs of known behaviour."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
import signal
from typing import Literal, Protocol
import uuid

from tests.worker.attempt import confinement, wait_for
from tests.worker.engines.memory import MemoryEngine
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from worker.devices.inventory import Device, Inventory
from worker.engines.base import AttemptPlan, Engine, Handle
from worker.engines.local.engine import LocalEngine
from worker.engines.local.warm.manager import WarmProcess
from worker.host import process
from worker.host.attempt_key import AttemptKey

Program = Literal["waits", "ignores SIGTERM", "completes", "fails"]
"""`waits` exits on SIGTERM."""

SLOTS = tuple(Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(2))
_SCRIPTS: dict[Program, str] = {
    "waits": (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nREADY\n"
        "while True: time.sleep(0.05)"
    ),
    "ignores SIGTERM": (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nREADY\nwhile True: time.sleep(1)"
    ),
    "completes": "READY",
    "fails": "READY\nwhile not all(path.exists() for path in ALL): pass\nraise ValueError('no luck')",
}
_READY = """
import os, pathlib
ALL = [pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], f"ready-{rank}") for rank in range(2)]
ALL[int(os.environ["RANK"])].touch()
"""


class EngineFixture(Protocol):
    @property
    def engine(self) -> Engine: ...
    @property
    def devices(self) -> list[str]:
        """The devices of this host that the engine uses."""
        ...

    @property
    def is_ended_by_others(self) -> bool:
        """Whether a cluster ends what has lost its supervisor."""
        ...

    def plan(self, program: Program) -> AttemptPlan: ...
    def later_engine(self) -> Engine:
        """Returns the engine of a later daemon."""
        ...

    def wait_for_ranks(self, handle: Handle) -> None:
        """Waits until every rank of the attempt runs or has run."""
        ...

    def wait_for_program(self, handle: Handle) -> None:
        """Waits until a program that ends by itself has ended."""
        ...

    def kill_supervisor(self, handle: Handle) -> None: ...
    def has_ended(self, handle: Handle) -> bool: ...


def _new_key() -> AttemptKey:
    return AttemptKey(f"job_{uuid.uuid4()}", 1)


def plan_of(key: AttemptKey, folder: Path, program: Sequence[str], env: dict[str, str]) -> AttemptPlan:
    return AttemptPlan(
        job_id=key.job_id,
        attempt=key.number,
        claimed_at=1_000_000,
        program=tuple(program),
        owner="ada",
        env=env,
        job_env={},
        cwd=folder,
        devices=("cpu-0", "cpu-1"),
        time_limit=timedelta(minutes=10),
        stall_timeout=timedelta(minutes=10),
        stop_grace=timedelta(seconds=30),
        reports=False,
    )


def write_program(folder: Path, program: Program) -> Path:
    """Writes a program of known behaviour. Returns its path."""
    script = folder / f"{program.replace(' ', '-')}.py"
    script.write_text(_SCRIPTS[program].replace("READY", _READY))
    return script


class MemoryEngineFixture:
    devices = ["cpu-0", "cpu-1"]
    is_ended_by_others = False

    def __init__(self, folder: Path) -> None:
        self.engine = MemoryEngine(Inventory(SLOTS))
        self._folder = folder

    def plan(self, program: Program) -> AttemptPlan:
        return plan_of(_new_key(), self._folder, [program], {})

    def later_engine(self) -> Engine:
        return self.engine

    def wait_for_ranks(self, handle: Handle) -> None:
        found = self.engine.attempts[handle.key]
        found.ranks, found.stops_on_request = 2, found.plan.program != ("ignores SIGTERM",)

    def wait_for_program(self, handle: Handle) -> None:
        found = self.engine.attempts[handle.key]
        if found.plan.program == ("fails",):
            found.end(EndReason.USER_ERROR, "ValueError: no luck")
        else:
            found.end()

    def kill_supervisor(self, handle: Handle) -> None:
        self.engine.attempts[handle.key].supervised = False

    def has_ended(self, handle: Handle) -> bool:
        return self.engine.attempts[handle.key].report is not None


class LocalEngineFixture:
    """The engine of one host: with the stand-in for torchrun, or with `warm` alone."""

    devices = ["cpu-0", "cpu-1"]
    is_ended_by_others = False

    def __init__(self, folder: Path, *, warm: WarmProcess | None = None) -> None:
        self._runs = folder / "data" / "runs"
        self._warm = warm
        self._code = folder / "code"
        self._code.mkdir()
        self._confinement = confinement(folder / "data", readable=(self._code,))
        self.engine: Engine = self.later_engine()

    def plan(self, program: Program) -> AttemptPlan:
        script = write_program(self._code, program)
        key = _new_key()
        run = self._run(key)
        run.create()
        env = {Env.JOB_ID: key.job_id, Env.ATTEMPT: "1", Env.RUN_DIR: str(run.job)}
        plan = plan_of(key, self._code, [str(script)], {str(name): value for name, value in env.items()})
        return replace(plan, launcher="torchrun" if self._warm is None else "warm")

    def later_engine(self) -> Engine:
        return LocalEngine(
            self._runs, Inventory(SLOTS), launcher=TorchrunStandIn(), warm=self._warm, confinement=self._confinement
        )

    def wait_for_ranks(self, handle: Handle) -> None:
        run = self._run(handle.key)
        wait_for(lambda: all((run.job / f"ready-{rank}").exists() for rank in range(2)), "the ranks")

    def wait_for_program(self, handle: Handle) -> None:
        wait_for(lambda: self.has_ended(handle), "the end of all processes")

    def kill_supervisor(self, handle: Handle) -> None:
        supervisor = ProcessIdentity.from_dict(handle.stored)
        process.send(supervisor, signal.SIGKILL)
        wait_for(lambda: not process.is_alive(supervisor), "the supervisor's end")

    def has_ended(self, handle: Handle) -> bool:
        return not process.find(handle.key.job_id, handle.key.number)

    def clean_up(self) -> None:
        self.later_engine().kill_others(set())

    def _run(self, key: AttemptKey) -> RunDir:
        return RunDir(self._runs / key.job_id / str(key.number))
