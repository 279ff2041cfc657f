"""Control groups (version 1) of a lab: below those of this process, one for each node."""

from collections.abc import Iterable
from contextlib import suppress
import os
from pathlib import Path

import pytest

_NAME = "torchyard-lab-"
_MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("freezer", "memory", "devices", "cpuset", "cpuacct")


class Cgroups:
    """A folder in each hierarchy. Skips the test where there is no cgroup v1."""

    def __init__(self) -> None:
        own = _own()
        missing = [name for name in CONTROLLERS if name not in own]
        if missing:
            pytest.skip(f"the profile cgroup needs cgroup v1, here without {', '.join(missing)}")
        _remove_left(own.values())
        self._folders = {name: own[name] / f"{_NAME}{os.getpid()}-{id(self):x}" for name in CONTROLLERS}
        for name, folder in self._folders.items():
            folder.mkdir()
            _share_cpus(name, folder)

    def of(self, node: str) -> dict[str, Path]:
        """Makes a node's groups, and returns them by controller."""
        folders = {name: folder / node for name, folder in self._folders.items()}
        for name, folder in folders.items():
            folder.mkdir(exist_ok=True)
            _share_cpus(name, folder)
        return folders

    def remove(self) -> None:
        """Removes every group, once their processes are gone."""
        for folder in self._folders.values():
            _remove(folder)


def _remove_left(parents: Iterable[Path]) -> None:
    """Removes the groups of labs whose process was killed."""
    for parent in parents:
        for folder in parent.glob(f"{_NAME}*"):
            if not Path("/proc", folder.name.removeprefix(_NAME).partition("-")[0]).exists():
                _remove(folder)


def _remove(folder: Path) -> None:
    for inner, _, _ in os.walk(folder, topdown=False):
        with suppress(FileNotFoundError):
            Path(inner).rmdir()


def _own() -> dict[str, Path]:
    """Returns the group of this process in each mounted hierarchy."""
    own: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            folder = _MOUNT / name / path.lstrip("/")
            if name in CONTROLLERS and folder.is_dir():
                own[name] = folder
    return own


def _share_cpus(controller: str, folder: Path) -> None:
    """Gives a new group the CPUs and memory of its parent: without, it takes no process."""
    if controller != "cpuset":
        return
    for name in ("cpuset.cpus", "cpuset.mems"):
        (folder / name).write_text((folder.parent / name).read_text())
