"""How ranks are brought up on one host. A launcher writes the plan in the worker, and starts it in the supervisor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from worker.engines.base import Plan


class Launcher(Protocol):
    """The worker's side."""

    @property
    def name(self) -> Literal["torchrun", "warm"]: ...

    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        """The plan's `argv`. `folder` is the launcher's own, in the run directory."""
        ...

    def environment(self, plan: Plan, *, slots: int) -> tuple[dict[str, str], dict[str, str]]:
        """What the job may change, and what it may not. `slots`: devices of the host, which share its cores."""
        ...


class Launch(Protocol):
    """The supervisor's side: what was started, until it has ended."""

    @property
    def exit(self) -> int | None:
        """The launcher's exit code, or minus the number of the signal that ended it; None while it works."""
        ...

    @property
    def keeper(self) -> int | None:
        """The pid of the process that the ranks need until they have ended: it is killed last."""
        ...

    def descriptors(self) -> Sequence[int]:
        """Those that become readable when a process of the launch ends, or wants something."""
        ...

    def tend(self) -> None:
        """Does what has become due. Raises OSError."""
        ...

    def note(self, pid: int, code: int) -> None:
        """A child of the supervisor has ended, and was reaped."""
        ...

    def deaths(self) -> list[tuple[int, int]]:
        """Rank and exit code of each failure that the launcher saw, the first one in front."""
        ...

    def close(self) -> None:
        """Nothing of it runs any more."""
        ...
