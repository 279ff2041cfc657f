"""An attempt that pauses by itself: only one that is started for it can, and what else may happen at that moment."""

import os
import signal

import pytest

from tests.worker.attempt import WARM_LAUNCH, Attempt
from tests.worker.programs import READY, rank_process
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.states import EndReason

START = "warm"
"""Starts less than a cold start does."""
COUNTS = (
    READY
    + """
import torchyard
run = torchyard.init()
step = 0
while step < 100:
    step += 1
    run.log({"loss": 1 / step}, step=step)
    if run.should_stop():
        break
(root / f"left-{rank}").write_text(str(step))
"""
)
WAITS = "ready()\nwhile not (root / 'go').exists(): time.sleep(0.01)\n"


@WARM_LAUNCH
def test_a_script_leaves_at_its_step_and_the_attempt_has_paused(attempt: Attempt) -> None:
    attempt.variables = {Env.PAUSE_AT: "steps:7"}
    attempt.start(COUNTS)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")
    assert (attempt.run.job / "left-0").read_text() == "7"
    assert attempt.running_processes() == []


def test_a_script_of_which_one_rank_logs_leaves_on_all_of_them(attempt: Attempt) -> None:
    attempt.variables = {Env.PAUSE_AT: "steps:7"}
    alone = COUNTS.replace("run.log", 'if rank == "0": run.log').replace("100", "100_000")
    attempt.start(alone.replace("run.should_stop()", "run.should_stop() or time.sleep(0.01)"), world_size=2)
    assert attempt.report().reason is EndReason.PAUSED
    first, second = (int((attempt.run.job / f"left-{rank}").read_text()) for rank in (0, 1))
    assert first >= 7
    assert second < 100_000  # without a collective it may have been behind


@pytest.mark.parametrize("point", ["steps:101", "epochs:1"])
def test_a_script_that_ends_before_its_point_has_completed(attempt: Attempt, point: str) -> None:
    attempt.variables = {Env.PAUSE_AT: point}
    attempt.start(COUNTS)
    assert attempt.report().reason is EndReason.COMPLETED


def test_another_attempt_cannot_pause_by_itself(attempt: Attempt) -> None:
    """Its script writes the mark, and claims the point."""
    forged = '(root / "stop" / "paused").touch()\nos.environ["TORCHYARD_PAUSE_AT"] = "steps:1"\n'
    attempt.start(READY + forged + COUNTS)
    assert attempt.report().reason is EndReason.COMPLETED


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise MemoryError('all gone')", EndReason.OUT_OF_MEMORY),
        ("raise ValueError('no luck')", EndReason.USER_ERROR),
    ],
)
def test_a_failure_at_its_point_is_a_failure(attempt: Attempt, end: str, reason: EndReason) -> None:
    attempt.variables = {Env.PAUSE_AT: "steps:7"}
    attempt.start(f"{COUNTS}{end}\n")
    assert attempt.report().reason is reason
    assert attempt.run.paused.exists()


def test_a_cancel_at_its_point_is_a_cancel(attempt: Attempt) -> None:
    attempt.variables = {Env.PAUSE_AT: "steps:7"}
    attempt.start(COUNTS + WAITS)
    attempt.wait_for_file("ready-0")
    assert attempt.run.paused.exists()
    attempt.stop(EndReason.CANCELLED, grace=60)
    os.close(os.open(attempt.run.job / "go", os.O_CREAT | os.O_WRONLY))
    assert attempt.report().reason is EndReason.CANCELLED


@pytest.mark.parametrize("attempt", ["warm"], indirect=True)
def test_a_rank_that_is_killed_at_its_point_has_not_paused(attempt: Attempt) -> None:
    attempt.variables = {Env.PAUSE_AT: "steps:7"}
    attempt.start(COUNTS + WAITS)
    attempt.wait_for_file("ready-0")
    os.kill(rank_process(attempt, 0).pid, signal.SIGKILL)
    assert attempt.report().reason is EndReason.KILLED
