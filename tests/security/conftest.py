from tests.worker.conftest import attempt, warm_process

__all__ = ["attempt", "warm_process"]
