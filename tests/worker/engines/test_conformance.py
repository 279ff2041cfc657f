"""The promises of the engine interface, tested for every engine."""

from collections.abc import Generator
from datetime import timedelta
import json
from pathlib import Path
import threading

import pytest

from tests.worker.attempt import DEADLINE_S, wait_for
from tests.worker.engines.fixtures import EngineFixture, LocalEngineFixture, MemoryEngineFixture, Program
from tests.worker.engines.slurm.engines import SlurmEngineFixture
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines.base import Absent, Ended, Engine, Handle, Running, Waiting
from worker.host.attempt_key import AttemptKey

LONG = timedelta(minutes=5)


@pytest.fixture(
    params=[
        "memory",
        pytest.param("cold", marks=pytest.mark.thorough),
        "warm",
        pytest.param("slurm", marks=pytest.mark.thorough),
    ]
)
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[EngineFixture]:
    if request.param == "memory":
        yield MemoryEngineFixture(tmp_path)
        return
    if request.param == "slurm":
        slurm = SlurmEngineFixture(tmp_path)
        yield slurm
        slurm.clean_up()
        return
    local = LocalEngineFixture(
        tmp_path, warm=request.getfixturevalue("warm_process") if request.param == "warm" else None
    )
    yield local
    local.clean_up()


def started(fixture: EngineFixture, program: Program) -> Handle:
    handle = fixture.engine.start(fixture.plan(program))
    fixture.wait_for_ranks(handle)
    return handle


def ranks_of(fixture: EngineFixture, handle: Handle, *, by: Engine | None = None) -> tuple[int, int]:
    """Returns how many ranks run, and how many there are."""
    observation = (by or fixture.engine).poll(handle)
    assert isinstance(observation, Running)
    return observation.ranks, observation.world_size


def end_of(engine: Engine, handle: Handle) -> ExitReport:
    wait_for(lambda: isinstance(engine.poll(handle), Ended), "its end")
    observation = engine.poll(handle)
    assert isinstance(observation, Ended)
    return observation.report


def test_an_attempt_that_was_never_started_is_absent_and_not_found(fixture: EngineFixture) -> None:
    unknown = Handle(AttemptKey("job_unknown", 1), 2)
    assert fixture.engine.poll(unknown) == Absent()
    assert fixture.engine.find(unknown.key, world_size=2, claimed_at=1) is None
    assert fixture.engine.kill(unknown) is None


def test_an_attempt_waits_then_runs_with_all_its_ranks_then_ends(fixture: EngineFixture) -> None:
    handle = fixture.engine.start(fixture.plan("waits"))
    assert isinstance(fixture.engine.poll(handle), Waiting | Running)
    fixture.wait_for_ranks(handle)
    assert ranks_of(fixture, handle) == (2, 2)
    fixture.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert end_of(fixture.engine, handle).reason is EndReason.PAUSED
    assert fixture.has_ended(handle)


def test_a_second_start_with_the_same_key_finds_the_first(fixture: EngineFixture) -> None:
    plan = fixture.plan("waits")
    first = fixture.engine.start(plan)
    assert fixture.engine.start(plan) == first
    assert fixture.later_engine().start(plan) == first
    fixture.wait_for_ranks(first)
    fixture.engine.request_stop(first, EndReason.CANCELLED, LONG)
    end_of(fixture.engine, first)
    assert fixture.engine.start(plan) == first  # an attempt that has ended is not started again


def test_a_watch_is_called_at_the_end_unless_it_was_cancelled(fixture: EngineFixture) -> None:
    handle = started(fixture, "waits")
    called, cancelled = threading.Event(), threading.Event()
    fixture.engine.watch(handle, called.set)
    fixture.engine.watch(handle, cancelled.set)()
    assert not called.is_set()
    fixture.engine.request_stop(handle, EndReason.IDLE_TIMEOUT, LONG)
    assert called.wait(DEADLINE_S)
    ended = fixture.engine.poll(handle)
    assert isinstance(ended, Ended)
    assert ended.report.reason is EndReason.IDLE_TIMEOUT
    assert not cancelled.is_set()


def test_a_watch_of_an_ended_attempt_is_called_at_once(fixture: EngineFixture) -> None:
    handle = started(fixture, "completes")
    fixture.wait_for_program(handle)
    end_of(fixture.engine, handle)
    called: list[Handle] = []
    fixture.later_engine().watch(handle, lambda: called.append(handle))
    assert called == [handle]


def test_a_later_daemon_adopts_an_attempt_by_its_handle_in_json(fixture: EngineFixture) -> None:
    handle = started(fixture, "waits")
    stored = json.loads(json.dumps(dict(handle.stored)))
    assert "engine" in stored
    later = fixture.later_engine()
    adopted = Handle(handle.key, 2, stored)
    later.adopt(adopted)
    assert ranks_of(fixture, adopted, by=later) == (2, 2)
    later.request_stop(adopted, EndReason.PREEMPTED, LONG)
    assert end_of(later, adopted).reason is EndReason.PREEMPTED


def test_an_attempt_whose_handle_was_not_stored_is_found_by_its_key_and_claim_time(fixture: EngineFixture) -> None:
    handle = started(fixture, "waits")
    later = fixture.later_engine()
    assert later.find(handle.key, world_size=2, claimed_at=1_000_000) == handle
    assert later.find(handle.key, world_size=2, claimed_at=2_000_000) is None


def test_a_program_that_ends_by_itself_completes(fixture: EngineFixture) -> None:
    handle = started(fixture, "completes")
    fixture.wait_for_program(handle)
    assert end_of(fixture.engine, handle).reason is EndReason.COMPLETED


def test_a_program_that_fails_is_reported_with_its_error(fixture: EngineFixture) -> None:
    handle = started(fixture, "fails")
    fixture.wait_for_program(handle)
    report = end_of(fixture.engine, handle)
    assert (report.reason, report.message) == (EndReason.USER_ERROR, "ValueError: no luck")


def test_the_stronger_reason_and_the_shorter_grace_of_two_requests_count(fixture: EngineFixture) -> None:
    handle = started(fixture, "ignores SIGTERM")
    fixture.engine.request_stop(handle, EndReason.PAUSED, LONG)
    fixture.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert ranks_of(fixture, handle) == (2, 2)
    fixture.engine.request_stop(handle, EndReason.CANCELLED, timedelta())
    assert end_of(fixture.engine, handle).reason is EndReason.CANCELLED


def test_a_kill_ends_all_processes(fixture: EngineFixture) -> None:
    handle = started(fixture, "ignores SIGTERM")
    assert fixture.engine.runs(handle.key)
    assert fixture.engine.kill(handle) is None
    assert fixture.has_ended(handle)
    assert not fixture.engine.runs(handle.key)
    assert isinstance(fixture.engine.poll(handle), Ended)
    assert fixture.engine.kill(handle) is None


def test_what_has_lost_its_supervisor_runs_unsupervised_until_it_is_killed(fixture: EngineFixture) -> None:
    handle = started(fixture, "ignores SIGTERM")
    fixture.kill_supervisor(handle)
    observation = fixture.engine.poll(handle)
    assert isinstance(observation, Running)
    assert observation.supervised is fixture.is_ended_by_others
    assert fixture.engine.kill(handle) is None
    assert end_of(fixture.engine, handle).reason is EndReason.WORKER_LOST


def test_kill_others_kills_all_attempts_but_those_to_keep(fixture: EngineFixture) -> None:
    kept, other = started(fixture, "waits"), started(fixture, "waits")
    fixture.engine.kill_others({kept.key})
    wait_for(lambda: fixture.has_ended(other), "the end of the other one")
    assert ranks_of(fixture, kept) == (2, 2)


def test_the_capacity_lists_the_devices_of_this_host(fixture: EngineFixture) -> None:
    assert [view.uuid for view in fixture.engine.capacity()] == fixture.devices
