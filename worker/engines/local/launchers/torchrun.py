"""torchrun as the launcher: its command, its environment, and how its failures are read.

Rendezvous and collectives stay on loopback, on ports that the kernel chooses, so any number of jobs share the host.
"""

import os
from pathlib import Path
import re
import sys

from worker.engines.base import Plan

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

    def deaths(self, stderr: str) -> list[tuple[int, int]]:
        found = [(int(rank), int(code)) for rank, code in _DEATH.findall(stderr)]
        return found[-1:] + found[:-1]
