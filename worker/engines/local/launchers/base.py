"""The interfaces of a launcher: the worker's side writes the plan, and the supervisor's side starts the ranks."""

from collections.abc import Sequence
import os
from pathlib import Path
import signal
from typing import Literal, Protocol

from torchyard.contract.attempts.records import NodePart, ProcessIdentity
from torchyard.contract.attempts.rundir import Env, RunDir
from worker.engines.base import AttemptPlan


class Launcher(Protocol):
    """The worker's side of a launcher."""

    @property
    def name(self) -> Literal["torchrun", "warm", "command"]: ...

    def command(self, plan: AttemptPlan, *, folder: Path, node: NodePart | None = None) -> list[str]:
        """Returns the `argv` of the launch plan. `folder`: the launcher's own folder in the run directory.

        `plan` has the devices of this host, which is the `node` of an attempt over several. Raises ConfigError if the
        launcher cannot do that.
        """
        ...


class Launch(Protocol):
    """The supervisor's side of a launcher: one started launch."""

    @property
    def exit_code(self) -> int | None:
        """The launcher's exit code, or minus the number of the signal that killed it. None while it runs."""
        ...

    @property
    def last_killed(self) -> int | None:
        """The pid of the process that the ranks need until they have ended: it must be killed last."""
        ...

    def descriptors(self) -> Sequence[int]:
        """Returns descriptors that become readable when `handle_events` has something to do or a process ends."""
        ...

    def handle_events(self) -> None:
        """Does what has become due. Raises OSError."""
        ...

    def child_exited(self, pid: int, code: int) -> None:
        """Notes that a child of the supervisor has ended and was reaped."""
        ...

    def processes(self) -> list[ProcessIdentity]:
        """Returns the processes of the attempt that run and may not be descendants of the caller."""
        ...

    def send(self, target: ProcessIdentity, number: signal.Signals) -> bool:
        """Signals exactly that process, and for SIGKILL perhaps all. Returns False if it has ended. Raises OSError."""
        ...

    def stop(self) -> None:
        """Ends what users have started beside the ranks: the attempt is asked to stop."""
        ...

    def failures(self) -> list[tuple[int, int]]:
        """Returns the rank and the exit code of each failed rank, the first failure in front."""
        ...

    def close(self) -> None:
        """Releases what the launch holds, after all its processes have ended."""
        ...


def rank_environment(plan: AttemptPlan, *, slots: int, interface: str = "lo") -> tuple[dict[str, str], dict[str, str]]:
    """Returns the variables of launcher and ranks that the job may change, and those that it may not.

    `slots`: the devices of the host, which share its cores. `interface`: the one by which ranks reach each other.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // max(slots, len(plan.devices)))
    cpus = threads if plan.cpus is None else max(1, int(plan.cpus) // len(plan.devices))
    dump = RunDir.of_job(Path(plan.env[Env.RUN_DIR])).collectives / "nccl_trace_rank_"
    return {"OMP_NUM_THREADS": str(threads), "TORCH_FR_DUMP_TEMP_FILE": str(dump)}, {
        "PYTHONUNBUFFERED": "1",
        Env.CPUS: str(cpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(plan.gpus),
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
    }
