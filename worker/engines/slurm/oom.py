"""Whether the kernel has killed a process of this Slurm step because its memory was used up."""

import contextlib
from pathlib import Path
import re

_CGROUPS = Path("/sys/fs/cgroup")
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def kills() -> int:
    """Returns how many processes it has killed so far in the control groups of this process's Slurm job."""
    folders = {folder for line in _own_groups() for folder in _folders(line)}
    return sum(_kills_in(folder) for folder in folders)


def _own_groups() -> list[str]:
    with contextlib.suppress(OSError):
        return Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    return []


def _folders(line: str) -> list[Path]:
    """Returns the folders of a line of `/proc/self/cgroup`: the group's, and those above it up to its job's."""
    _, controllers, path = line.split(":", 2)
    if controllers not in {"", "memory"} or "/job_" not in path:
        return []
    root = _CGROUPS if not controllers else _CGROUPS / "memory"
    names = path.strip("/").split("/")
    first = next(index for index, name in enumerate(names) if name.startswith("job_"))
    deepest = len(names) if controllers else first + 1  # version 2 counts what is below, too
    return [root.joinpath(*names[: count + 1]) for count in range(first, max(deepest, first + 1))]


def _kills_in(folder: Path) -> int:
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            match = _KILLS.search((folder / name).read_text(encoding="ascii", errors="replace"))
            return int(match[1]) if match else 0
    return 0
