"""How many CPUs and how much memory of this host its jobs may use together."""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import re

from torchyard.host.groups import VERSION_2, own_groups

_GIB = 1 << 30
_TOTAL = re.compile(r"^MemTotal: +([0-9]+) kB$", re.MULTILINE)
_MEMORY_LIMITS = {VERSION_2: "memory.max", "memory": "memory.limit_in_bytes"}


@dataclass(frozen=True)
class Capacity:
    """What jobs may request together. None: as much as this process may use, shared with other workers of the host."""

    cpus: float | None = None
    memory_gb: float | None = None

    def cpus_of(self, workers: int, *, root: Path = Path("/")) -> float:
        """Returns the CPUs of one of so many workers of one service on this host. Raises OSError and ValueError."""
        return self.cpus if self.cpus is not None else _own_cpus(root) / workers

    def memory_gb_of(self, workers: int, *, root: Path = Path("/")) -> float:
        """Returns the GiB of memory of one of so many workers on this host. Raises OSError and ValueError."""
        return self.memory_gb if self.memory_gb is not None else round(_own_memory(root) / _GIB / workers, 3)


def _own_cpus(root: Path) -> float:
    """Returns the processors on which this process may run, or the part of them that its control groups allow."""
    return min(float(len(os.sched_getaffinity(0))), *_cpu_limits(root), float("inf"))


def _cpu_limits(root: Path) -> Iterator[float]:
    for folder in own_groups(VERSION_2, root):
        quota, _, period = _read(folder / "cpu.max", "max").partition(" ")
        if quota != "max":
            yield int(quota) / int(period)
    for folder in own_groups("cpu", root):
        quota = _read(folder / "cpu.cfs_quota_us", "-1")
        if int(quota) > 0:
            yield int(quota) / int(_read(folder / "cpu.cfs_period_us", "100000"))


def _own_memory(root: Path) -> int:
    """Returns the bytes of this host, or of the narrowest control group."""
    match = _TOTAL.search((root / "proc/meminfo").read_text())
    if match is None:
        raise ValueError("/proc/meminfo has no MemTotal")
    limits = (_read(folder / file, "max") for name, file in _MEMORY_LIMITS.items() for folder in own_groups(name, root))
    return min([int(match[1]) * 1024, *(int(limit) for limit in limits if limit != "max")])


def _read(path: Path, default: str) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return default
