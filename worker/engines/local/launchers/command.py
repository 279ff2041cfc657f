"""A command of the job as the launcher: it is started once, in the sandbox, and starts its own ranks."""

from pathlib import Path
from typing import Literal

from worker.engines.base import AttemptPlan
from worker.engines.local.launchers import rank_start
from worker.engines.local.launchers.torchrun import TorchrunAgent


class CommandLauncher:
    """Launches the job's command with a rank's variables, but without those that number the ranks."""

    @property
    def name(self) -> Literal["command"]:
        return "command"

    def command(self, plan: AttemptPlan, *, folder: Path) -> list[str]:
        option, *program = plan.program
        return [plan.python, "-I", "-S", str(Path(rank_start.__file__)), option, str(len(plan.devices)), *program]


class CommandAgent(TorchrunAgent):
    """The command. It asks for the secrets, as a rank of torchrun does. Raises OSError if it cannot be started."""

    def failures(self) -> list[tuple[int, int]]:
        return failures_of(self.exit_code)


def failures_of(exit_code: int | None) -> list[tuple[int, int]]:
    """Returns the failure of a command, which counts as rank 0, or none."""
    return [(0, exit_code)] if exit_code else []
