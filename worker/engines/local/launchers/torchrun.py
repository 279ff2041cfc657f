"""torchrun as the launcher: its command, its process, and the failures in its summary.

Rendezvous and collectives stay on loopback, on ports that the kernel chooses: any number of jobs can share the host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import os
from pathlib import Path
import re
import subprocess
import sys
from typing import Literal

from torchyard.contract.records import LaunchPlan
from torchyard.contract.rundir import Env, RunDir
from worker.engines.base import Plan
from worker.engines.local import logtail, process
from worker.engines.local.secrets import SecretServer
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
_FAILURE = re.compile(r"^ +rank +: (\d{1,6}) .*\n +exitcode +: (-?\d{1,5}) ", re.MULTILINE)


class TorchrunLauncher:
    """Launches the ranks with torchrun's agent, which `trainer.torchrun` runs."""

    @property
    def name(self) -> Literal["torchrun"]:
        return "torchrun"

    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        rank = ["--no-python", *_PYTHON, "-u", "-m", "torchyard.run.rank", *plan.program]
        of_plan = [f"--nproc-per-node={len(plan.devices)}", f"--log-dir={folder}"]
        return [*_PYTHON, "-m", _MODULE, *_ELASTIC, *of_plan, *rank]


class TorchrunAgent:
    """torchrun's agent as a child of the supervisor. Raises OSError if it cannot be started.

    Its ranks ask the supervisor for the secrets, so that the agent never has them.

    If the supervisor is a fork of the warm process, the agent is a fork too, which saves the import of torch. Its ranks
    are programs of their own in any case.
    """

    def __init__(self, plan: LaunchPlan, run: RunDir, secrets: Mapping[str, str]) -> None:
        self.exit_code: int | None = None
        self._run = run
        self._secrets = SecretServer(run.secrets, secrets) if secrets else None
        if self._secrets is not None:
            plan = replace(plan, env=plan.env | {Env.SECRETS.value: str(run.secrets.absolute())})
        logs = (run.log("launcher", "stdout"), run.log("launcher", "stderr"))
        if fork.has_preloaded() and plan.argv[:4] == [*_PYTHON, "-m", _MODULE]:
            self._pid = fork.fork(lambda: fork.run_module(plan, logs=logs))
        else:
            self._pid = _execute(plan, logs)
        self._pidfd = os.pidfd_open(self._pid)

    @property
    def last_killed(self) -> int:
        return self._pid

    def descriptors(self) -> Sequence[int]:
        agent = [self._pidfd] if self.exit_code is None else []
        return agent if self._secrets is None else [*agent, self._secrets.fileno()]

    def handle_events(self) -> None:
        if self._secrets is not None and process.readable([self._secrets.fileno()]):
            self._secrets.answer()

    def child_exited(self, pid: int, code: int) -> None:
        if pid == self._pid:
            self.exit_code = code

    def failures(self) -> list[tuple[int, int]]:
        return parse_failures(logtail.tail_of_stderr(self._run, "launcher"))

    def close(self) -> None:
        os.close(self._pidfd)
        if self._secrets is not None:
            self._secrets.close()


def _execute(plan: LaunchPlan, logs: tuple[Path, Path]) -> int:
    with logs[0].open("ab") as stdout, logs[1].open("ab") as stderr:
        agent = subprocess.Popen(
            plan.argv,
            env=plan.env,
            cwd=plan.cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            umask=plan.umask,
        )
    agent.returncode = 0  # the supervisor reaps it
    return agent.pid


def parse_failures(stderr: str) -> list[tuple[int, int]]:
    """Returns the rank and the exit code of each failure in torchrun's summary, the first failure in front."""
    found = [(int(rank), int(code)) for rank, code in _FAILURE.findall(stderr)]
    return found[-1:] + found[:-1]
