"""Addresses of named sockets, whose paths may be longer than the 107 bytes of an address. See unix(7)."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path


@contextmanager
def address_of(path: Path) -> Generator[str]:
    """Yields an address of the socket at `path`, by the descriptor of its folder. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
