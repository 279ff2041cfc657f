"""torchrun as the launcher: its command, its environment, and how its failures are read.

Rendezvous and collectives stay on loopback, on ports that the kernel chooses, so any number of jobs share the host.
"""

from collections.abc import Sequence
import os
from pathlib import Path
import re
import subprocess
import sys
from typing import Literal

from torchyard.contract.records import LaunchPlan
from torchyard.contract.rundir import RunDir
from worker.engines.base import Plan
from worker.engines.local import logtail
from worker.engines.local.warm import fork

_PYTHON = (sys.executable, "-P")
_MODULE = "trainer.torchrun"
_ELASTIC = (
    "--nnodes=1",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=127.0.0.1:0",
    "--local-addr=127.0.0.1",
    "--max-restarts=0",
)
_DEATH = re.compile(r"^ +rank +: (\d{1,6}) .*\n +exitcode +: (-?\d{1,5}) ", re.MULTILINE)


class Torchrun:
    """torchrun's agent, as `trainer.torchrun` runs it."""

    @property
    def name(self) -> Literal["torchrun"]:
        return "torchrun"

    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        rank = ["--no-python", *_PYTHON, "-u", "-m", "torchyard.run.rank", *plan.program]
        here = [f"--nproc-per-node={len(plan.devices)}", f"--log-dir={folder}"]
        return [*_PYTHON, "-m", _MODULE, *_ELASTIC, *here, *rank]

    def environment(self, plan: Plan, *, slots: int) -> tuple[dict[str, str], dict[str, str]]:
        threads = max(1, len(os.sched_getaffinity(0)) // max(slots, len(plan.devices)))
        gpus = [uuid for uuid in plan.devices if not uuid.startswith("cpu-")]
        return {"OMP_NUM_THREADS": str(threads)}, {
            "PYTHONUNBUFFERED": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
        }


class Agent:
    """The launcher as a child of the supervisor. Raises OSError where it cannot be started.

    A supervisor that is a fork of the warm process forks it, too: that spares it the import of torch. Its ranks are
    programs of their own in any case.
    """

    def __init__(self, plan: LaunchPlan, run: RunDir) -> None:
        self.exit: int | None = None
        self._run = run
        logs = (run.log("launcher", "stdout"), run.log("launcher", "stderr"))
        if fork.is_fork() and plan.argv[:4] == [*_PYTHON, "-m", _MODULE]:
            self._pid = fork.child(lambda: fork.become_module(plan.argv, env=plan.env, cwd=plan.cwd, logs=logs))
        else:
            self._pid = _execute(plan, logs)
        self._ends = os.pidfd_open(self._pid)

    @property
    def keeper(self) -> int:
        return self._pid

    def descriptors(self) -> Sequence[int]:
        return [self._ends] if self.exit is None else []

    def tend(self) -> None:
        pass

    def note(self, pid: int, code: int) -> None:
        if pid == self._pid:
            self.exit = code

    def deaths(self) -> list[tuple[int, int]]:
        return deaths(logtail.quote(self._run, "launcher"))

    def close(self) -> None:
        os.close(self._ends)


def _execute(plan: LaunchPlan, logs: tuple[Path, Path]) -> int:
    with logs[0].open("ab") as stdout, logs[1].open("ab") as stderr:
        process = subprocess.Popen(
            plan.argv,
            env=plan.env,
            cwd=plan.cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    process.returncode = 0  # the supervisor reaps it
    return process.pid


def deaths(stderr: str) -> list[tuple[int, int]]:
    """Rank and exit code of each failure in torchrun's summary, the one that it saw first in front."""
    found = [(int(rank), int(code)) for rank, code in _DEATH.findall(stderr)]
    return found[-1:] + found[:-1]
