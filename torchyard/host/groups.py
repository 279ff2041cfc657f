"""The control groups of this process. See cgroups(7)."""

from collections.abc import Iterator
from pathlib import Path

VERSION_2 = ""
"""Stands for version 2, with all controllers in one tree, where the name of a controller of version 1 may stand."""


def own_groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yields the folder of this process's group, and of those above it, which all limit it. Some may not exist.

    The files are looked for below `root`. Raises OSError and ValueError.
    """
    mount = root / "sys/fs/cgroup" / controller
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = Path(path.lstrip("/"))
            # In a container the path may be the host's: then only the top is there.
            yield from (mount / level for level in (own, *own.parents))
