"""Identifies the boot of this host, and its processes."""

import functools
from pathlib import Path

from torchyard.contract.attempts.records import ProcessIdentity


@functools.cache
def boot_id() -> str:
    """Returns an id that this host has until its next start, in all of its containers."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def identity_of(pid: int) -> ProcessIdentity | None:
    """Returns the identity of the process (or zombie) that has `pid` now. None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(b")")[2].split()  # the process name before it may contain anything
    return ProcessIdentity(pid=pid, start_time=int(fields[19]), boot_id=boot_id())
