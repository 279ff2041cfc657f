"""All runners of a worker, where the system has no thread left."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
import resource
import threading
import time

import pytest

from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.states import EndReason, JobState
from worker.attempts.runners import AttemptRunners

_STACK = 1 << 29


class ThreadThatStartsOnce(threading.Thread):
    """What every thread is since Python 3.13: one that the system had no room for cannot be started again."""

    tried = False

    def start(self) -> None:
        if self.tried:
            raise RuntimeError("threads can only be started once")
        self.tried = True
        super().start()


@contextmanager
def no_thread_starts() -> Generator[None]:
    """Leaves this process less memory than the stack of a new thread takes."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits, stack = resource.getrlimit(resource.RLIMIT_AS), threading.stack_size(_STACK)
    resource.setrlimit(resource.RLIMIT_AS, (used + _STACK // 2, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        threading.stack_size(stack)


def test_an_attempt_without_a_thread_is_retried_and_costs_no_restart(
    simulated: SimulatedRunnerFixture, approved: Approved
) -> None:
    runners = AttemptRunners(simulated.context)
    with no_thread_starts():
        runners.start(simulated.claim)
    assert (simulated.row.end_reason, simulated.row.detail) == (
        EndReason.WORKER_LOST,
        approved("detail"),
    )
    assert (simulated.job.state, simulated.job.restarts) == (JobState.QUEUED, 0)
    assert simulated.store.held() == {}
    assert [use.ended for use in runners.reap(1)] == [True]
    assert len(runners) == 0


def test_an_adopted_attempt_without_a_thread_is_continued_later(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Thread", ThreadThatStartsOnce)
    runners = AttemptRunners(simulated.context)
    with no_thread_starts():
        runners.adopt([simulated.claim])
        assert runners.reap(1) == []
    assert simulated.row.ended_at is None
    runners.reap(1)
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    simulated.engine.attempts[simulated.key].end()
    wait_for(lambda: runners.reap(1), "the runner's end")
    assert simulated.job.state == JobState.SUCCEEDED


def test_a_worker_leaves_an_attempt_that_had_no_thread(simulated: SimulatedRunnerFixture) -> None:
    runners = AttemptRunners(simulated.context)
    with no_thread_starts():
        runners.adopt([simulated.claim])
        runners.detach(1, clock=time.monotonic)
    assert simulated.row.ended_at is None
