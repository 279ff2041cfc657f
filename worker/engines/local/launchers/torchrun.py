"""torchrun as the launcher: its command, its process, and the failures in its summary.

Rendezvous and collectives of one host stay on loopback, on ports that the kernel chooses: any number of jobs can share
it. Those of several nodes go by the interface that their plan names, and all meet at a socket of node 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import importlib.util
import os
from pathlib import Path
import re
import socket
import sys
from typing import Literal, NoReturn

from torchyard.contract.attempts.records import LaunchPlan, NodePart
from torchyard.contract.attempts.rundir import Env, RunDir
from worker.engines.base import AttemptPlan
from worker.engines.local.launchers import fork, logtail, rank_start
from worker.engines.local.launchers.agent import AgentProcess, Work
from worker.engines.local.launchers.secrets import SecretServer
from worker.sandbox.door.variables import of_rank

_PYTHON = (sys.executable, "-P")
_MODULE = "trainer.torchrun"
_FAILURE = re.compile(r"^ +rank +: (\d{1,6}) .*\n +exitcode +: (-?\d{1,5}) ", re.MULTILINE)


class TorchrunLauncher:
    """Launches the ranks with torchrun's agent, which `trainer.torchrun` runs."""

    @property
    def name(self) -> Literal["torchrun"]:
        return "torchrun"

    def command(self, plan: AttemptPlan, *, folder: Path, node: NodePart | None = None) -> list[str]:
        rank = ["--no-python", *rank_command(plan.program, python=plan.python)]
        of_plan = [f"--nproc-per-node={len(plan.devices)}", f"--log-dir={folder}"]
        # With the worker's own torch, torchrun can be a fork of the warm process: its import takes as long as a rank's.
        python = plan.python if _has_own_torch(plan) else sys.executable
        torchrun = [python, "-P", "-m", _MODULE] if plan.named is None else [plan.python, "-I", _file_of_module()]
        return [*torchrun, *_meeting(node), "--max-restarts=0", *of_plan, *rank]


class TorchrunAgent(AgentProcess):
    """torchrun's agent. Raises OSError if it cannot be started. It gets the `listener` where several nodes meet.

    Its ranks ask the supervisor for the secrets, so that the agent never has them.

    If the supervisor is a fork of the warm process, the agent is a fork too, which saves the import of torch. Its ranks
    are programs of their own in any case.
    """

    def __init__(
        self, plan: LaunchPlan, run: RunDir, secrets: Mapping[str, str], *, listener: socket.socket | None = None
    ) -> None:
        self._secrets = SecretServer(run.secrets, secrets) if secrets else None
        started, keep = with_rank_variables(plan, run, secrets=bool(secrets)), list[int]()
        if listener is not None:
            listener.set_inheritable(True)
            keep = [listener.fileno()]
            started = replace(started, env=started.env | {Env.LISTENER.value: str(listener.fileno())})
        work = Work(run=lambda fork_door: _run_torchrun(started, fork_door), variables=lambda rank: of_rank(run, rank))
        super().__init__(started, run, lambda: work, keep=keep)

    def descriptors(self) -> Sequence[int]:
        return [*super().descriptors(), *([] if self._secrets is None else [self._secrets.fileno()])]

    def handle_events(self) -> None:
        super().handle_events()
        if self._secrets is not None:
            self._secrets.answer()

    def failures(self) -> list[tuple[int, int]]:
        return parse_failures(logtail.tail_of_stderr(self._run_dir, self._run_dir.launcher))

    def close(self) -> None:
        super().close()
        if self._secrets is not None:
            self._secrets.close()


def _meeting(node: NodePart | None) -> list[str]:
    """Returns how the ranks meet. Without an endpoint in front, `trainer.torchrun` chooses one on loopback."""
    if node is None:
        return ["--nnodes=1", "--local-addr=127.0.0.1"]
    master = f"[{node.master}]" if ":" in node.master else node.master
    of_node = [f"--nnodes={node.nodes}", f"--node-rank={node.rank}", f"--local-addr={node.address}"]
    return [f"--rdzv-endpoint={master}:{node.port}", *of_node]


def _file_of_module() -> str:
    """Returns the path of the module, which an environment that has none of our packages runs as a script."""
    spec = importlib.util.find_spec(_MODULE)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def _has_own_torch(plan: AttemptPlan) -> bool:
    """Returns whether the ranks import another torch than the worker: its store may not understand theirs."""
    if plan.environment is None:
        return False
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return os.path.lexists(plan.environment / "lib" / python / "site-packages" / "torch")


def with_rank_variables(plan: LaunchPlan, run: RunDir, *, secrets: bool) -> LaunchPlan:
    """Returns the plan with the job's own variables in torchrun's environment, under names that change nothing.

    `secrets`: whether the ranks ask the supervisor for secrets.
    """
    variables = {f"{rank_start.JOB_VARIABLE}{name}": value for name, value in plan.rank_env.items()}
    if secrets:
        variables[Env.SECRETS.value] = str(run.secrets.absolute())
    return replace(plan, env=plan.env | variables, rank_env={})


def _run_torchrun(plan: LaunchPlan, fork_door: Callable[[], None]) -> NoReturn:
    fork_door()
    if fork.has_preloaded() and plan.argv[:4] == [*_PYTHON, "-m", _MODULE]:
        fork.run_module(plan.argv[3:])
    os.execve(plan.argv[0], plan.argv, plan.env)  # noqa: S606 no shell is wanted


def rank_command(program: Sequence[str], *, python: str = sys.executable) -> list[str]:
    """Returns the `argv` of a rank that gets the job's variables when it starts."""
    return [python, "-I", "-S", str(Path(rank_start.__file__)), *program]


def parse_failures(stderr: str) -> list[tuple[int, int]]:
    """Returns the rank and the exit code of each failure in torchrun's summary, the first failure in front."""
    failures = [(int(rank), int(code)) for rank, code in _FAILURE.findall(stderr)]
    return failures[-1:] + failures[:-1]
