import pytest

from tests.api.conftest import redis_url, service
from tests.security import strict_host
from tests.worker.attempts.conftest import simulated, spec
from tests.worker.conftest import attempt, reach

__all__ = ["attempt", "reach", "redis_url", "service", "simulated", "spec"]


@pytest.fixture(scope="session")
def strict_isolation() -> None:
    """Skips tests of strict isolation where this machine has none."""
    if (obstacle := strict_host.obstacle()) is not None:
        pytest.skip(f"strict isolation needs more: {obstacle}")
