"""What every engine promises, asked of each."""

from collections.abc import Generator
from datetime import timedelta
import json
from pathlib import Path
import threading

import pytest

from tests.worker.attempt import DEADLINE_S, wait_for
from tests.worker.engines.rigs import LocalRig, MemoryRig, Program, Rig
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.engines.base import Absent, AttemptKey, Ended, Engine, Handle, Running, Waiting

LONG = timedelta(minutes=5)


@pytest.fixture(params=["memory", pytest.param("cold", marks=pytest.mark.thorough), "warm"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Rig]:
    if request.param == "memory":
        yield MemoryRig(tmp_path)
        return
    local = LocalRig(tmp_path, warm=request.getfixturevalue("warm_process") if request.param == "warm" else None)
    yield local
    local.clean_up()


def started(rig: Rig, program: Program) -> Handle:
    handle = rig.engine.start(rig.plan(program))
    rig.come_up(handle)
    return handle


def end_of(engine: Engine, handle: Handle) -> ExitReport:
    wait_for(lambda: isinstance(engine.poll(handle), Ended), "its end")
    seen = engine.poll(handle)
    assert isinstance(seen, Ended)
    return seen.report


def test_what_was_never_started_is_absent_and_is_not_found(rig: Rig) -> None:
    nobody = Handle(AttemptKey("job_nobody", 1), 2)
    assert rig.engine.poll(nobody) == Absent()
    assert rig.engine.find(nobody.key, world_size=2, claimed_at=1) is None
    assert rig.engine.kill(nobody) is None


def test_it_waits_then_runs_with_all_its_ranks_then_ends(rig: Rig) -> None:
    handle = rig.engine.start(rig.plan("waits"))
    assert isinstance(rig.engine.poll(handle), Waiting | Running)
    rig.come_up(handle)
    assert rig.engine.poll(handle) == Running(2, 2)
    rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert end_of(rig.engine, handle).reason is EndReason.PAUSED
    assert rig.is_over(handle)


def test_a_second_start_with_the_same_key_finds_the_first(rig: Rig) -> None:
    plan = rig.plan("waits")
    first = rig.engine.start(plan)
    assert rig.engine.start(plan) == first
    assert rig.later().start(plan) == first
    rig.come_up(first)
    rig.engine.request_stop(first, EndReason.CANCELLED, LONG)
    end_of(rig.engine, first)
    assert rig.engine.start(plan) == first  # what has ended is not run again


def test_who_watches_it_is_told_of_its_end(rig: Rig) -> None:
    handle = started(rig, "waits")
    told, not_told = threading.Event(), threading.Event()
    rig.engine.watch(handle, told.set)
    rig.engine.watch(handle, not_told.set)()
    assert not told.is_set()
    rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert told.wait(DEADLINE_S)
    assert isinstance(rig.engine.poll(handle), Ended)
    assert not not_told.is_set()


def test_who_watches_what_is_over_is_told_at_once(rig: Rig) -> None:
    handle = started(rig, "completes")
    rig.finish(handle)
    end_of(rig.engine, handle)
    told: list[Handle] = []
    rig.later().watch(handle, lambda: told.append(handle))
    assert told == [handle]


def test_its_handle_is_json_by_which_a_later_daemon_adopts_it(rig: Rig) -> None:
    handle = started(rig, "waits")
    stored = json.loads(json.dumps(dict(handle.stored)))
    assert {"engine", "layout"} <= set(stored)
    later = rig.later()
    adopted = Handle(handle.key, 2, stored)
    later.adopt(adopted)
    assert later.poll(adopted) == Running(2, 2)
    later.request_stop(adopted, EndReason.PREEMPTED, LONG)
    assert end_of(later, adopted).reason is EndReason.PREEMPTED


def test_one_whose_handle_was_not_stored_is_found_by_its_key_and_the_time_of_its_claim(rig: Rig) -> None:
    handle = started(rig, "waits")
    later = rig.later()
    assert later.find(handle.key, world_size=2, claimed_at=1_000_000) == handle
    assert later.find(handle.key, world_size=2, claimed_at=2_000_000) is None


def test_a_program_that_ends_by_itself_has_completed(rig: Rig) -> None:
    handle = started(rig, "completes")
    rig.finish(handle)
    assert end_of(rig.engine, handle).reason is EndReason.COMPLETED


def test_a_program_that_fails_says_why(rig: Rig) -> None:
    handle = started(rig, "fails")
    rig.finish(handle)
    report = end_of(rig.engine, handle)
    assert (report.reason, report.message) == (EndReason.USER_ERROR, "ValueError: no luck")


def test_of_two_requests_the_stronger_reason_and_the_shorter_grace_count(rig: Rig) -> None:
    handle = started(rig, "deaf")
    rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
    rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert rig.engine.poll(handle) == Running(2, 2)
    rig.engine.request_stop(handle, EndReason.CANCELLED, timedelta())
    assert end_of(rig.engine, handle).reason is EndReason.CANCELLED


def test_a_kill_ends_all_of_it(rig: Rig) -> None:
    handle = started(rig, "deaf")
    assert rig.engine.runs(handle.key)
    assert rig.engine.kill(handle) is None
    assert rig.is_over(handle)
    assert not rig.engine.runs(handle.key)
    assert isinstance(rig.engine.poll(handle), Ended)
    assert rig.engine.kill(handle) is None


def test_what_has_lost_its_supervisor_runs_unsupervised_until_it_is_killed(rig: Rig) -> None:
    handle = started(rig, "deaf")
    rig.lose_supervision(handle)
    seen = rig.engine.poll(handle)
    assert isinstance(seen, Running)
    assert not seen.supervised
    assert rig.engine.kill(handle) is None
    assert end_of(rig.engine, handle).reason is EndReason.WORKER_LOST


def test_attempts_of_others_are_killed_and_those_to_keep_are_not(rig: Rig) -> None:
    kept, other = started(rig, "waits"), started(rig, "waits")
    rig.engine.kill_others({kept.key})
    assert rig.is_over(other)
    assert rig.engine.poll(kept) == Running(2, 2)


def test_it_tells_its_devices(rig: Rig) -> None:
    assert [view.uuid for view in rig.engine.capacity()] == ["cpu-0", "cpu-1"]
