"""The boot of this host."""

import functools
from pathlib import Path


@functools.cache
def boot_id() -> str:
    """Returns an id that this host has until its next start, in all of its containers."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
