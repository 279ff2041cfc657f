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

from torchyard.rundir import LaunchPlan, RunDir
from worker.engines.base import Plan
from worker.engines.local import logtail

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
        python = [sys.executable, "-P"]
        rank = ["--no-python", *python, "-u", "-m", "torchyard.rank", *plan.program]
        here = [f"--nproc-per-node={len(plan.devices)}", f"--log-dir={folder}"]
        return [*python, "-m", "trainer.torchrun", *_ELASTIC, *here, *rank]

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
    """The launcher as a child of the supervisor. Raises OSError where it cannot be started."""

    def __init__(self, plan: LaunchPlan, run: RunDir) -> None:
        self.exit: int | None = None
        self._run = run
        with run.log("launcher", "stdout").open("ab") as stdout, run.log("launcher", "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                plan.argv,
                env=plan.env,
                cwd=plan.cwd,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self._ends = os.pidfd_open(self._process.pid)

    @property
    def keeper(self) -> int:
        return self._process.pid

    def descriptors(self) -> Sequence[int]:
        return [self._ends] if self.exit is None else []

    def tend(self) -> None:
        pass

    def note(self, pid: int, code: int) -> None:
        if pid == self._process.pid:
            self.exit = self._process.returncode = code

    def deaths(self) -> list[tuple[int, int]]:
        return deaths(logtail.quote(self._run, "launcher"))

    def close(self) -> None:
        os.close(self._ends)


def deaths(stderr: str) -> list[tuple[int, int]]:
    """Rank and exit code of each failure in torchrun's summary, the one that it saw first in front."""
    found = [(int(rank), int(code)) for rank, code in _DEATH.findall(stderr)]
    return found[-1:] + found[:-1]
