"""Groups of processes with limits: cgroup v2, below a folder that was delegated to the helper. See cgroups(7)."""

import contextlib
from dataclasses import dataclass
import errno
import os
from pathlib import Path
import time

from torchyard.contract.errors import ConfigError

_LIMITS = {"memory": "memory.max", "pids": "pids.max"}
"""What the helper's operator limits for every attempt, by controller."""
_CONTROLLERS = {"cpu", *_LIMITS}
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000
"""The kernel takes no less."""
_POLL_S = 0.02


@dataclass(frozen=True)
class Group:
    """The group of one attempt."""

    folder: Path

    def add(self, pid: int) -> None:
        """Moves a process into the group. Its later children begin there. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """Kills all processes of the group, as far as the kernel can (Linux 5.14)."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "cgroup.kill").write_text("1")

    def remove(self, *, timeout: float = 10.0) -> None:
        """Removes the group once its processes have ended. Raises OSError if some have not."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)


@dataclass(frozen=True, kw_only=True)
class Cgroups:
    """The groups below `root`, or none if that is None. `memory`: bytes. `pids`: processes and threads."""

    root: Path | None
    memory: int | None = None
    pids: int | None = None

    def prepare(self) -> list[str]:
        """Makes the limits possible, and returns what is lacking. Raises ConfigError if a limit cannot be enforced."""
        if self.root is None:
            missing, why = set(_CONTROLLERS), "no --cgroup is given"
        else:
            missing, why = self._enable(self.root), f"{self.root} has no such controller"
        for name in sorted(missing):
            if self._limit(name) is not None:
                raise ConfigError(f"--{name} cannot be enforced: {why}. Delegate a cgroup v2 with it (Delegate=yes)")
        lacks = [f"a limit of {name} ({why})" for name in sorted(missing)]
        return lacks + [
            f"a limit of {name} (--{name})" for name in sorted(_LIMITS.keys() - missing) if not self._limit(name)
        ]

    def create(self, key: str, *, cpus: float | None = None, memory: int | None = None) -> Group | None:
        """Makes the group of an attempt, with its limits. Returns None without a root. Raises OSError.

        `cpus` and `memory` (in bytes) are what its job requests. No job is given more than the limits here.
        """
        if self.root is None:
            return None
        group = Group(self.root / key)
        group.folder.mkdir(exist_ok=True)  # a killed helper may have left it
        available = _available(self.root)
        limits = {name: self._limit(name) for name in _LIMITS}
        if memory is not None and "memory" in available:
            limits["memory"] = min(memory, limits["memory"] or memory)
        for name, limit in limits.items():
            if limit is not None:
                (group.folder / _LIMITS[name]).write_text(str(limit))
        if cpus is not None and "cpu" in available:
            quota = max(_LEAST_QUOTA_US, round(cpus * _PERIOD_US))
            (group.folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        return group

    def _limit(self, name: str) -> int | None:
        return {"memory": self.memory, "pids": self.pids}.get(name)

    def _enable(self, root: Path) -> set[str]:
        """Enables the controllers for the groups, and returns those that are missing."""
        try:
            if _own_group(root) == root:  # a group whose groups have limits may have no process of its own
                own = root / "helper"
                own.mkdir(exist_ok=True)
                (own / "cgroup.procs").write_text(str(os.getpid()))
            available = _available(root)
            for name in sorted(available):
                (root / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError as error:
            raise ConfigError(f"--cgroup {root} is not a cgroup v2 that the helper may use: {error}") from None
        return _CONTROLLERS - available


def _available(root: Path) -> set[str]:
    return set((root / "cgroup.controllers").read_text().split()) & _CONTROLLERS


def _own_group(root: Path) -> Path | None:
    """Returns the folder of this process's group, if it lies below the mount of `root`."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return None
    mount = next(path for path in (root, *root.parents) if not (path.parent / "cgroup.procs").exists())
    return mount / own.lstrip("/")
