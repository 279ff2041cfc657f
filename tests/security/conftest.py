from tests.worker.attempts.conftest import simulated, spec
from tests.worker.conftest import attempt, warm_process

__all__ = ["attempt", "simulated", "spec", "warm_process"]
