"""The warm process of the tests."""

from collections.abc import Generator
from contextlib import contextmanager
import os

from worker.engines.local.environment import inherited
from worker.engines.local.warm.keeper import WarmProcess

START_S = 120.0


@contextmanager
def warm_process() -> Generator[WarmProcess]:
    """One that is ready, and has ended afterwards."""
    warm = WarmProcess(inherited(os.environ))
    warm.open()
    try:
        warm.modules(wait_s=START_S)
        yield warm
    finally:
        warm.close()
