"""A command of the job as the launcher: it is started once, in the sandbox, and starts its own ranks."""

from pathlib import Path
from typing import Literal

from torchyard.contract.attempts.records import NodePart
from worker.engines.base import AttemptPlan
from worker.engines.local.launchers import rank_start
from worker.engines.local.launchers.torchrun import TorchrunAgent


class CommandLauncher:
    """Launches the job's command with a rank's variables, but without those that number the ranks."""

    @property
    def name(self) -> Literal["command"]:
        return "command"

    def command(self, plan: AttemptPlan, *, folder: Path, node: NodePart | None = None) -> list[str]:
        option, *program = plan.program
        ranks = [str(0 if node is None else node.first_rank), str(len(plan.devices))]
        return [plan.python, "-I", "-S", str(Path(rank_start.__file__)), option, *ranks, *program]


class CommandAgent(TorchrunAgent):
    """The command. It asks for the secrets, as a rank of torchrun does. Raises OSError if it cannot be started."""

    def failures(self) -> list[tuple[int, int]]:
        return failures_of(self.exit_code, rank=self.plan.ranks[0])


def failures_of(exit_code: int | None, *, rank: int = 0) -> list[tuple[int, int]]:
    """Returns the failure of a command, which counts as that of its first rank, or none."""
    return [(rank, exit_code)] if exit_code else []


def variables_of_node(node: NodePart) -> dict[str, str]:
    """Returns the variables that tell a command its node's part. Those with a prefix are for torchrun."""
    part = {
        "NNODES": node.nodes,
        "NODE_RANK": node.rank,
        "NPROC_PER_NODE": node.ranks,
        "MASTER_ADDR": node.master,
        "MASTER_PORT": node.port,
    }
    named = {f"{prefix}{name}": str(value) for name, value in part.items() for prefix in ("", "PET_")}
    return named | {"LOCAL_WORLD_SIZE": str(node.ranks)}
