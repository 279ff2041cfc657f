"""What there is to say of an allocation that failed: how much was wanted, how much is free."""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
from pathlib import Path
import re
import resource

_WANTED = re.compile(r"allocate ([0-9.]+) ?(bytes|[KMGTP]iB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_CACHE = re.compile(r"^(?:total_)?inactive_file ([0-9]+)$", re.MULTILINE)
_CGROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""By controller, the empty one being version 2: where its groups are, the file of the limit and of what is in use."""


@dataclass(frozen=True)
class Room:
    """Bytes of memory."""

    free: int
    total: int


def host_shortage(text: str) -> str:
    """What an error of the host's allocators is about: `wanted 12.0 GiB, free 3.1 GiB of 7.8 GiB`.

    `text` is its own message; it stays where it does not say how much was wanted.
    """
    found = _WANTED.search(text)
    wanted = f"wanted {_shown(float(found[1]) * _UNITS[found[2]])}" if found else text
    # Without memory, looking may fail, too.
    with contextlib.suppress(MemoryError, OSError, ImportError, ValueError):
        room = host_room()
        free = f"free {_shown(room.free)} of {_shown(room.total)}"
        return f"{wanted}, {free}" if wanted else free
    return wanted


def host_room(root: Path = Path("/")) -> Room:
    """What this process may still take of the host's memory: the narrowest of the host, its control groups and its own
    limit of addresses. Raises OSError and ValueError.
    """
    import psutil

    host = psutil.virtual_memory()
    rooms = [Room(host.available, host.total), *_groups(root)]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        rooms.append(Room(max(limit - psutil.Process().memory_info().vms, 0), limit))
    return min(rooms, key=lambda room: room.free)


def _groups(root: Path) -> Iterator[Room]:
    """The limits of this process's control groups, its own and those above it."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in _CGROUPS:
                mount, limit, used = _CGROUPS[controller]
                # In a container the path may be the host's: then only the top is there.
                own = Path(path.lstrip("/"))
                found = (_group(root / mount / level, limit, used) for level in (own, *own.parents))
                yield from filter(None, found)


def _group(folder: Path, limit: str, used: str) -> Room | None:
    try:
        total = (folder / limit).read_text().strip()
        cache = _CACHE.search((folder / "memory.stat").read_text())
        taken = int((folder / used).read_text()) - (int(cache[1]) if cache else 0)
    except OSError:
        return None
    return None if total == "max" else Room(max(int(total) - taken, 0), int(total))


def _shown(size: float) -> str:
    unit = "GiB" if size >= 2**30 else "MiB"
    return f"{size / _UNITS[unit]:.1f} {unit}"
