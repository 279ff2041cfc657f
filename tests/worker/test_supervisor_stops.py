"""How the supervisor stops an attempt: on request, at the time limit, after a stall."""

from dataclasses import replace
import json
import os
import signal

import pytest

from tests.approved import Approved
from tests.worker.attempt import STAND_IN, WARM_LAUNCH, Attempt, wait_for
from tests.worker.programs import (
    FINISHES_ON_SIGTERM,
    HANGS,
    HANGS_IN_A_COLLECTIVE,
    POLLS_SHOULD_STOP,
    READY,
    SAVES_ON_SIGTERM,
    STOPS_ONE_RANK,
    rank_process,
)
from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record
from worker.host import process

START = "agent"
"""Starts less than a cold start does."""


@WARM_LAUNCH
def test_a_stop_lets_every_rank_save_within_its_grace(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_SIGTERM, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    attempt.stop(EndReason.PAUSED, grace=60)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")
    assert (attempt.run.job / "saved-0").exists()
    assert (attempt.run.job / "saved-1").exists()
    assert attempt.running_processes() == []


@WARM_LAUNCH
@pytest.mark.parametrize("asked", [EndReason.PAUSED, EndReason.CANCELLED])
def test_a_program_that_finishes_within_the_grace_completes_unless_it_was_cancelled(
    attempt: Attempt, asked: EndReason
) -> None:
    attempt.start(FINISHES_ON_SIGTERM, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    attempt.stop(asked, grace=60)
    report = attempt.report()
    assert report.reason is (asked if asked is EndReason.CANCELLED else EndReason.COMPLETED)


def test_a_stop_after_all_ranks_have_finished_does_not_requeue_the_attempt(attempt: Attempt) -> None:
    stops = 'until [ -e "$root/../ctl/shown/stop.json" ]; do sleep 0.02; done'
    slow = f'root=$1; shift; "$@"; touch "$root/over"; {stops}; sleep 1'
    ranks = [*STAND_IN, "1", str(attempt.script(READY))]
    attempt.start_plan(attempt.plan(["/bin/sh", "-c", slow, "sh", str(attempt.run.job), *ranks]))
    attempt.wait_for_file("over")
    attempt.stop(EndReason.PREEMPTED, grace=60)
    assert attempt.report().reason is EndReason.COMPLETED


@WARM_LAUNCH
def test_a_program_that_exits_on_a_stop_request_ends_with_the_requested_reason(attempt: Attempt) -> None:
    attempt.start(POLLS_SHOULD_STOP)
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PAUSED, grace=60)
    report = attempt.report()
    assert (report.reason, report.message, report.exited_well) == (EndReason.PAUSED, "paused", True)


@WARM_LAUNCH
def test_a_rank_that_exits_before_its_supervisor_reads_the_stop_request_ends_with_its_reason(attempt: Attempt) -> None:
    attempt.start(POLLS_SHOULD_STOP)
    attempt.wait_for_file("ready-0")
    rank = rank_process(attempt, 0)
    process.send(attempt.supervisor, signal.SIGSTOP)
    attempt.stop(EndReason.PAUSED, grace=60)
    wait_for(lambda: not process.is_alive(rank), "the rank's end")
    process.send(attempt.supervisor, signal.SIGCONT)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")


@WARM_LAUNCH
def test_a_save_that_fails_at_a_stop_is_reported(attempt: Attempt, approved: Approved) -> None:
    attempt.start(POLLS_SHOULD_STOP + "raise OSError('no space for the checkpoint')")
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PAUSED, grace=60)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, approved("message"))
    assert report.traceback is not None
    assert not report.exited_well


def test_a_stop_while_the_launcher_starts_up_does_not_wait_for_the_grace(attempt: Attempt) -> None:
    attempt.start_plan(attempt.plan(["/bin/sleep", "600"]))
    wait_for(lambda: attempt.run.log("launcher", "stderr").exists(), "the launcher")
    attempt.stop(grace=3600)
    assert attempt.report().reason is EndReason.CANCELLED
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_later_stop_request_changes_the_reason_and_cuts_the_grace(attempt: Attempt) -> None:
    attempt.start(READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: time.sleep(1)")
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PREEMPTED, grace=3600)
    attempt.stop(EndReason.CANCELLED, grace=0)
    assert attempt.report().reason is EndReason.CANCELLED


@WARM_LAUNCH
def test_sigterm_to_the_supervisor_preempts_and_sigint_is_ignored(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_SIGTERM)
    attempt.wait_for_file("ready-0")
    process.send(attempt.supervisor, signal.SIGINT)
    process.send(attempt.supervisor, signal.SIGHUP)
    process.send(attempt.supervisor, signal.SIGTERM)
    assert attempt.report().reason is EndReason.PREEMPTED
    assert (attempt.run.job / "saved-0").exists()


@WARM_LAUNCH
def test_the_time_limit_stops_the_attempt_gracefully(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_SIGTERM, time_limit=12)  # longer than the start of a rank takes on a busy machine
    assert attempt.report().reason is EndReason.TIME_LIMIT
    assert (attempt.run.job / "saved-0").exists()
    request = read_record(attempt.run.stop, StopRequest)
    assert request is not None
    assert request.reason is EndReason.TIME_LIMIT


IGNORES_SIGTERM = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: time.sleep(1)"


@WARM_LAUNCH
def test_the_time_limit_kills_whatever_the_grace_is(attempt: Attempt) -> None:
    attempt.start(IGNORES_SIGTERM, time_limit=4, grace=3650 * 86_400)
    assert attempt.report().reason is EndReason.TIME_LIMIT
    assert attempt.running_processes() == []


@pytest.mark.thorough
def test_a_stop_that_was_requested_before_does_not_outlive_the_time_limit(attempt: Attempt) -> None:
    attempt.start(IGNORES_SIGTERM, time_limit=8)
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PAUSED, grace=3600)
    assert attempt.report().reason is EndReason.PAUSED
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_stall_ends_as_a_hang_with_the_stacks_of_every_rank(attempt: Attempt) -> None:
    attempt.start(HANGS, world_size=2, stall=1)
    report = attempt.report()
    assert report.reason is EndReason.HANG
    assert "in stuck_here" in attempt.log("rank-0", "stderr")
    assert "in stuck_here" in attempt.log("rank-1", "stderr")
    assert report.traceback is not None
    assert report.traceback.count("in stuck_here") == 2


@pytest.mark.parametrize("attempt", ["warm"], indirect=True)
def test_a_hang_says_for_which_collective_each_rank_waits(attempt: Attempt, approved: Approved) -> None:
    attempt.start(HANGS_IN_A_COLLECTIVE, world_size=2, stall=3)
    report = attempt.report()
    assert report.reason is EndReason.HANG
    assert report.message == approved("message")
    dump = json.loads((attempt.run.collectives / "0.dump.json").read_text())
    assert [entry["collective_seq_id"] for entry in dump["others"]["entries"]] == [1, 2]


@WARM_LAUNCH
def test_a_rank_that_is_stopped_before_the_first_event_ends_as_a_hang_that_names_it(
    attempt: Attempt, approved: Approved
) -> None:
    attempt.start(STOPS_ONE_RANK, world_size=2, stall=3, reports=True)  # longer than the start of a rank takes
    report = attempt.report()
    assert report.reason is EndReason.HANG
    assert report.message == approved("message")
    assert report.traceback is not None
    assert "rank 1 is stopped; it wrote no stacks" in report.traceback
    assert "in stuck_here" in report.traceback
    assert "in stuck_here" in attempt.log("rank-0", "stderr")
    assert attempt.log("rank-1", "stderr") == ""
    assert attempt.running_processes() == []


def test_a_launcher_that_starts_no_rank_ends_as_a_hang(attempt: Attempt, approved: Approved) -> None:
    plan = attempt.plan(["/bin/sleep", "600"], stall=1)
    attempt.start_plan(replace(plan, reports=True))
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.HANG, approved("message"))
    assert report.traceback == approved("traceback")
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_program_that_touches_its_event_log_on_a_full_disk_does_not_stall(attempt: Attempt) -> None:
    touches = "for _ in range(55):\n    time.sleep(0.1)\n    os.utime(root / 'events.jsonl')"
    attempt.start(READY + f"(root / 'events.jsonl').write_text('first')\n{touches}", stall=5)  # so late a touch may be
    assert attempt.report().reason is EndReason.COMPLETED


@WARM_LAUNCH
def test_a_script_that_writes_no_events_never_stalls(attempt: Attempt) -> None:
    attempt.start(READY + "time.sleep(2.5)", stall=1)
    assert attempt.report().reason is EndReason.COMPLETED


@WARM_LAUNCH
def test_control_files_forged_in_the_jobs_folder_have_no_effect(attempt: Attempt) -> None:
    forges = "os.mkfifo(root / 'stop.json')\n(root / 'exit.json').write_text('{\"reason\": \"preempted\"}')\n"
    attempt.start(READY + forges + "ready()\nwhile True: time.sleep(1)")
    attempt.wait_for_file("ready-0")
    attempt.stop(grace=0)
    assert attempt.report().reason is EndReason.CANCELLED


@WARM_LAUNCH
def test_a_pipe_in_place_of_the_stop_request_does_not_block(attempt: Attempt) -> None:
    attempt.start(READY + "ready()\nwhile True: time.sleep(1)")
    attempt.wait_for_file("ready-0")
    os.mkfifo(attempt.run.stop)
    assert attempt.report().reason is EndReason.KILLED
