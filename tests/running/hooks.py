"""The hooks that this plugin adds to those of pytest."""

import pytest


def pytest_workers_starting(session: pytest.Session) -> None:
    """Is called once, in the process that has collected the tests, before it forks the first worker."""


def pytest_worker_started(config: pytest.Config, worker: str) -> None:
    """Is called in each worker before its first test, and with `main` where tests run in the process of pytest."""
