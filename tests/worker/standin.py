"""A launcher in torchrun's place, where torch is not the point."""

from collections.abc import Sequence
from pathlib import Path
import sys

from worker.engines.base import Plan
from worker.engines.local.launchers.torchrun import Torchrun

_PROGRAM = Path(__file__).with_name("launcher.py")


class StandIn(Torchrun):
    """Starts the plan's program, or `argv` in its place, as torchrun would start ranks."""

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self._argv = argv

    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        if self._argv is not None:
            return list(self._argv)
        return [sys.executable, "-P", str(_PROGRAM), str(len(plan.devices)), *plan.program]
