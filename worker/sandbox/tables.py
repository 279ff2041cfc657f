"""Finds the tables of the kernel's network that a job could change by a file of `/proc`, such as lists of its firewall.

Each process has them below its own folder, as `/proc/PID/net`: no mount covers those of processes to come.
"""

import os
from pathlib import Path
import stat

NETWORK = Path("/proc/self/net")
_MOST = 10_000
"""Entries that are looked at. Beyond them, there counts as being one."""


def writable_table() -> Path | None:
    """Returns the first of them that this user may write without privileges. None: there is none now."""
    seen = 0
    for place, folders, files in os.walk(NETWORK):
        for name in (*folders, *files):
            seen += 1
            path = Path(place, name)
            if seen > _MOST or (name in files and _is_writable(path)):
                return path
    return None


def _is_writable(path: Path) -> bool:
    """Returns whether its mode lets this user write. A job has no capability that would let it do so in any case."""
    try:
        found = path.stat()
    except OSError:
        return False
    groups = {os.getegid(), *os.getgroups()}
    owner, group, others = (bool(found.st_mode & bit) for bit in (stat.S_IWUSR, stat.S_IWGRP, stat.S_IWOTH))
    if found.st_uid == os.geteuid():
        return owner
    return group if found.st_gid in groups else others
