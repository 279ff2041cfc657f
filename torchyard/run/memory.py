"""Describes an allocation that failed: how much memory was wanted, and how much is free."""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
from pathlib import Path
import re
import resource

from torchyard.host.groups import VERSION_2, own_groups

_WANTED = re.compile(r"allocate ([0-9.]+) ?(bytes|[KMGTP]iB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_CACHE = re.compile(r"^(?:total_)?inactive_file ([0-9]+)$", re.MULTILINE)
_MEMINFO = re.compile(r"^(\w+): +([0-9]+) kB$", re.MULTILINE)
_FILES = {
    VERSION_2: ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Of the limit and of the use, by controller of control groups."""


@dataclass(frozen=True)
class FreeMemory:
    """Bytes of memory: what is free, and the limit that it is free of."""

    free: int
    total: int


def describe_shortage(text: str) -> str:
    """Describes a failed allocation of host memory: `wanted 12.0 GiB, free 3.1 GiB of 7.8 GiB`.

    `text` is the allocator's own message. It is kept if it does not say how much was wanted.
    """
    found = _WANTED.search(text)
    wanted = f"wanted {_shown(float(found[1]) * _UNITS[found[2]])}" if found else text
    # Reading the limits may fail too when there is no memory.
    with contextlib.suppress(MemoryError, OSError, ValueError):
        memory = free_memory()
        free = f"free {_shown(memory.free)} of {_shown(memory.total)}"
        return f"{wanted}, {free}" if wanted else free
    return wanted


def free_memory(root: Path = Path("/")) -> FreeMemory:
    """Returns how much memory this process may still take: the narrowest limit of the host, the control groups
    (whose files are read below `root`) and the process's own address space. Raises OSError and ValueError.
    """
    limits = [_of_host(), *_of_groups(root)]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits.append(FreeMemory(max(limit - pages * resource.getpagesize(), 0), limit))
    return min(limits, key=lambda memory: memory.free)


def _of_host() -> FreeMemory:
    kib = dict(_MEMINFO.findall(Path("/proc/meminfo").read_text()))
    return FreeMemory(int(kib["MemAvailable"]) * 1024, int(kib["MemTotal"]) * 1024)


def _of_groups(root: Path) -> Iterator[FreeMemory]:
    """Yields the limits of this process's control group and of those above it."""
    for controller, (limit, used) in _FILES.items():
        found = (_group(folder, limit, used) for folder in own_groups(controller, root))
        yield from filter(None, found)


def _group(folder: Path, limit: str, used: str) -> FreeMemory | None:
    try:
        total = (folder / limit).read_text().strip()
        cache = _CACHE.search((folder / "memory.stat").read_text())
        taken = int((folder / used).read_text()) - (int(cache[1]) if cache else 0)
    except OSError:
        return None
    return None if total == "max" else FreeMemory(max(int(total) - taken, 0), int(total))


def _shown(size: float) -> str:
    unit = "GiB" if size >= 2**30 else "MiB"
    return f"{size / _UNITS[unit]:.1f} {unit}"
