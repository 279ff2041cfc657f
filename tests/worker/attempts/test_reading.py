"""An attempt whose output cannot be read or stored for now, while the rest of it goes on; and the other way round."""

from collections.abc import Generator
from datetime import timedelta
import os
from pathlib import Path
import threading

import pytest

from store.jobs.facts import AT_ONCE
from tests.approved import Approved
from tests.worker import eventfiles
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.states import EndReason, JobState
from torchyard.host import failpoints
from worker.attempts import lifecycle, reading
from worker.attempts.output.recorder import OutputRecorder
from worker.attempts.output.relay import Relay


@pytest.fixture(autouse=True)
def released() -> Generator[None]:
    yield
    failpoints.arm({})


def hang(simulated: SimulatedRunnerFixture, point: str = "output.read=hang") -> None:
    """Has the thread that reads the output hang, and waits until it does."""
    log = simulated.context.runs.parent / "reached"
    failpoints.arm({failpoints.VARIABLE: f"log={log};{point}"})
    wait_for(log.exists, "the read that hangs")


def readers(simulated: SimulatedRunnerFixture) -> list[threading.Thread]:
    name = f"the reading of attempt {simulated.claim.number} of {simulated.claim.job_id}"
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.mark.parametrize(("stop", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)])
def test_a_stop_reaches_the_ranks_while_a_read_hangs_and_all_output_is_stored_before_the_end(
    simulated: SimulatedRunnerFixture, stop: str, state: JobState
) -> None:
    attempt = simulated.start_ranks()
    hang(simulated)
    simulated.write_log("the last line")
    simulated.request_stop(stop)
    wait_for(lambda: attempt.report is not None, "the end of the ranks")
    assert simulated.lines() == []
    assert simulated.row.ended_at is None
    assert simulated.store.held() != {}
    failpoints.arm({})
    assert simulated.wait_for_end().state == state
    assert simulated.lines() == ["the last line"]


def test_a_job_runs_although_its_first_output_cannot_be_read(simulated: SimulatedRunnerFixture) -> None:
    simulated.start_runner()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    hang(simulated)
    simulated.engine.attempts[simulated.key].ranks = 1
    wait_for(lambda: simulated.job.state == JobState.RUNNING, "running")


def test_a_forced_cancel_ends_the_attempt_although_a_read_hangs_and_nothing_is_written_after_it(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "MAX_DRAIN_AFTER_FORCED_CANCEL", timedelta(0))
    monkeypatch.setattr(reading, "_CLOSE_S", 0.0)
    simulated.start_ranks()
    hang(simulated)
    simulated.write_log("too late\n")
    simulated.store.cancel(simulated.claim.job_id, grace=AT_ONCE)
    simulated.runner.instructions.recheck_intents()
    assert simulated.wait_for_end().state == JobState.CANCELLED
    assert str(simulated.row.detail).endswith("; the last of what it wrote is not stored")
    before = simulated.store.everything()
    failpoints.arm({})
    wait_for(lambda: not readers(simulated), "the end of the reader")
    assert simulated.store.everything() == before


def test_a_reader_that_hung_when_its_daemon_left_writes_nothing_beside_the_next_one(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CLOSE_S", 0.0)
    attempt = simulated.start_ranks()
    hang(simulated, "output.read=hang@1")
    simulated.detach()
    simulated.start_runner()
    simulated.write_log("once\n")
    wait_for(lambda: simulated.lines() == ["once"], "the next reader")
    failpoints.arm({})
    wait_for(lambda: len(readers(simulated)) == 1, "the end of the first reader")
    simulated.write_log("and once more\n")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.lines() == ["once", "and once more"]


def test_output_is_stored_while_the_engine_hangs(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.start_ranks()
    hangs, released, poll = threading.Event(), threading.Event(), simulated.engine.poll

    def hang_once(*handle: object) -> object:
        hangs.set()
        released.wait()
        return poll(*handle)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(simulated.engine, "poll", hang_once)
    wait_for(hangs.is_set, "the poll that hangs")
    try:
        simulated.write_log("meanwhile\n")
        wait_for(lambda: simulated.lines() == ["meanwhile"], "the reader goes on")
    finally:
        released.set()


def test_a_reader_that_ends_discards_what_it_has_not_stored(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.start_ranks()
    simulated.write_log("a line\n")
    wait_for(simulated.lines, "the line")
    closed, close = threading.Event(), OutputRecorder.close

    def noted(recorder: OutputRecorder) -> None:
        close(recorder)
        closed.set()

    monkeypatch.setattr(OutputRecorder, "close", noted)
    simulated.detach()
    wait_for(closed.is_set, "the end of the reader")


def test_a_reader_that_fails_ends_its_attempt(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    attempt = simulated.start_ranks()

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Relay, "read", fail)
    assert simulated.wait_for_end().state == JobState.QUEUED
    assert (simulated.row.end_reason, simulated.row.detail) == (EndReason.WORKER_LOST, approved("detail"))
    assert attempt.report is not None
    assert readers(simulated) == []


def test_until_the_end_is_stored_no_other_thread_than_the_reader_opens_what_a_job_writes(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.start_ranks()
    threads = opening_below(simulated.run.job, simulated, monkeypatch)
    simulated.write_log("a line\n")
    eventfiles.write(simulated.run.job / eventfiles.NAME, eventfiles.scalars("loss", {1: 1.0}))
    simulated.save_checkpoint(3)
    wait_for(simulated.lines, "the line")
    simulated.request_stop("cancel")
    assert simulated.wait_for_end().state == JobState.CANCELLED
    assert simulated.row.checkpoints == 1
    reader = f"the reading of attempt {simulated.claim.number} of {simulated.claim.job_id}"
    assert threads - {threading.current_thread().name} == {reader}


def opening_below(folder: Path, simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns the names of the threads that open anything below a folder from now on, until the end is stored."""
    threads, opened = set[str](), os.open

    def noted(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        found = opened(path, flags, mode, dir_fd=dir_fd)
        below = Path(f"/proc/self/fd/{found}").readlink().is_relative_to(folder)
        if below and not simulated.runner.ending:
            threads.add(threading.current_thread().name)
        return found

    monkeypatch.setattr(os, "open", noted)
    return threads
