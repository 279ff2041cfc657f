"""How long what is kept on a disk counts as whole: until the host crashes, or for ever, once it was synced."""

import ctypes
import os
from pathlib import Path

from torchyard.host.identity import boot_id

_SHARED = "synced"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def name(*, shared: bool) -> str:
    """Returns the name of the era in which a folder is written now: the host's boot, or the one that never ends.

    `shared`: other hosts use the folder, too, also when this one was started again.
    """
    return _SHARED if shared else boot_id()


def end_write(folder: Path, *, shared: bool) -> None:
    """Makes durable what was written below a folder that hosts share. Raises OSError."""
    if not shared:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(folder, _FLAGS)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)
