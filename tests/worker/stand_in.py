"""A stand-in for torchrun, for tests that need no torch."""

from collections.abc import Sequence
from pathlib import Path
import sys

from torchyard.contract.attempts.records import NodePart
from worker.engines.base import AttemptPlan
from worker.engines.local.launchers.torchrun import TorchrunLauncher

_PROGRAM = Path(__file__).with_name("launcher.py")


class TorchrunStandIn(TorchrunLauncher):
    """Starts the plan's program, or `argv` instead, as torchrun starts ranks."""

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self._argv = argv

    def command(self, plan: AttemptPlan, *, folder: Path, node: NodePart | None = None) -> list[str]:
        if self._argv is not None:
            return list(self._argv)
        ranks = str(len(plan.devices)) if node is None else f"{node.first_rank}-{node.first_rank + node.ranks - 1}"
        return [sys.executable, "-I", "-S", str(_PROGRAM), f"{ranks}@{plan.python}", *plan.program]
