from tests.api.conftest import redis_url, service
from tests.worker.attempts.conftest import simulated, spec
from tests.worker.conftest import attempt, warm_process

__all__ = ["attempt", "redis_url", "service", "simulated", "spec", "warm_process"]
