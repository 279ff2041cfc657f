"""Starts a warm process for tests."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path

from torchyard.contract.attempts.records import ProcessIdentity
from worker.engines.local.environment import inherited
from worker.engines.local.warm.manager import WarmProcess
from worker.engines.local.warm.process import TITLE
from worker.host import process

START_S = 240.0


@contextmanager
def warm_process() -> Generator[WarmProcess]:
    """Yields a warm process that is ready; it has ended afterwards."""
    warm = WarmProcess(inherited(os.environ))
    warm.open()
    try:
        warm.loaded_modules(wait_s=START_S)
        yield warm
    finally:
        warm.close()


def identity() -> ProcessIdentity:
    """Returns the identity of this process's warm process."""
    below = process.descendants(os.getpid())
    (found,) = [item for item in below if Path(f"/proc/{item.pid}/cmdline").read_bytes().startswith(TITLE.encode())]
    return found
