"""How ranks are brought up on one host. Each launcher is one file: its command, its environment, its failures."""

from pathlib import Path
from typing import Protocol

from worker.engines.base import Plan


class Launcher(Protocol):
    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        """The argv that brings the ranks up. `folder` is the launcher's own, in the run directory."""
        ...

    def environment(self, plan: Plan, *, slots: int) -> tuple[dict[str, str], dict[str, str]]:
        """What the job may change, and what it may not. `slots`: devices of the host, which share its cores."""
        ...

    def deaths(self, stderr: str) -> list[tuple[int, int]]:
        """Rank and exit code of each failure that the launcher tells of, the one that it saw first in front."""
        ...
