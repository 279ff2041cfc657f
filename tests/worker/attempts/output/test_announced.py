"""A runner where a cluster starts attempts: it may not know whether one was started, or it may not be taken yet."""

from typing import Any

from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.states import JobState
from worker.engines.base import NotStartedYet

HANDLE = {"engine": "memory", "number": 1}


def announcing(simulated: SimulatedRunnerFixture) -> list[Any]:
    """Has the engine announce its starts. Returns what the attempt's row has as its handle at each of them."""
    stored: list[Any] = []
    simulated.engine.announces = True
    simulated.engine.before_start = lambda: stored.append(simulated.row.launcher)
    return stored


def test_the_handle_is_stored_before_the_start(simulated: SimulatedRunnerFixture) -> None:
    stored = announcing(simulated)
    simulated.start_ranks().end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert stored == [HANDLE]


def test_nothing_is_started_after_the_attempt_was_taken_away_while_the_handle_was_stored(
    simulated: SimulatedRunnerFixture,
) -> None:
    announcing(simulated)
    announce = simulated.engine.announce

    def rescued_meanwhile(plan: Any) -> Any:
        simulated.store.expire(simulated.claim)
        assert simulated.store.rescue(simulated.claim)
        return announce(plan)

    simulated.engine.announce = rescued_meanwhile  # type: ignore[method-assign]
    simulated.start_runner()
    wait_for(lambda: simulated.runner.done, "the runner's end")
    assert simulated.engine.attempts == {}


def test_an_attempt_that_was_announced_and_surely_not_started_is_started_by_the_next_daemon(
    simulated: SimulatedRunnerFixture,
) -> None:
    stored = announcing(simulated)
    simulated.engine.refusals = [NotStartedYet("the cluster is away")]
    simulated.start_runner()
    wait_for(lambda: len(stored) == 1, "the first start")
    simulated.detach()  # the next daemon finds a handle, of which the engine knows nothing
    simulated.start_ranks().end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert stored == [HANDLE, HANDLE]
    assert simulated.job.attempt == 1


def test_a_start_that_is_not_taken_yet_is_repeated_without_preparing_again(
    simulated: SimulatedRunnerFixture, approved: Approved
) -> None:
    stored = announcing(simulated)
    simulated.engine.refusals = [NotStartedYet("the cluster is away"), NotStartedYet("the cluster is away")]
    simulated.start_runner()
    wait_for(lambda: len(stored) == 1, "the first start")
    prepared = simulated.run.config.stat().st_ino
    for tries in (2, 3):
        simulated.runner.instructions.wake()
        wait_for(lambda tries=tries: len(stored) == tries, "the next start")
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    assert simulated.run.config.stat().st_ino == prepared
    told = [text for text in simulated.messages() if "the cluster is away" in text]
    assert told == [approved("told")]


def test_a_job_is_cancelled_while_the_cluster_takes_none(simulated: SimulatedRunnerFixture, approved: Approved) -> None:
    stored = announcing(simulated)
    simulated.engine.refusals = [NotStartedYet("the cluster is away")]
    simulated.start_runner()
    wait_for(lambda: len(stored) == 1, "the first start")
    simulated.request_stop()
    assert simulated.wait_for_end().state == JobState.CANCELLED
    assert simulated.row.detail == approved("detail")
    assert simulated.engine.attempts == {}


def test_a_start_that_fails_for_good_ends_the_attempt_by_the_handle_that_was_announced(
    simulated: SimulatedRunnerFixture,
) -> None:
    announcing(simulated)
    killed: list[Any] = []
    simulated.engine.refusals = [RuntimeError("nobody knows")]
    simulated.engine.kill = lambda handle: killed.append(handle.stored)  # type: ignore[method-assign]
    simulated.start_runner()
    simulated.wait_for_end()
    assert killed == [HANDLE]


def test_a_start_that_fails_with_a_full_disk_does_not_prepare_again(simulated: SimulatedRunnerFixture) -> None:
    stored = announcing(simulated)
    simulated.engine.refusals = [OSError(28, "No space left on device")]
    simulated.start_runner()
    wait_for(lambda: len(stored) == 1, "the first start")
    prepared = simulated.run.config.stat().st_ino
    simulated.runner.instructions.wake()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    assert simulated.run.config.stat().st_ino == prepared
