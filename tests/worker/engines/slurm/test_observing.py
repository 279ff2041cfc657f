"""What an attempt does, by its files and by Slurm's word for its job."""

import pytest

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines.base import Absent, Ended, Observation, Running, Unknown, Waiting
from worker.engines.slurm.listing import Job
from worker.engines.slurm.observing import Facts, observe

REPORT = ExitReport(reason=EndReason.COMPLETED)


def seen(facts: Facts, *, ranks: int = 2, log: str = "") -> Observation:
    return observe(facts, running=lambda: Running(ranks, 2), log=lambda: log)


def job(state: str, *, reason: str = "None", nodes: str = "n[1-2]", start: int | None = None) -> Job:
    return Job("7", "ty-x", state, reason, start, nodes)


def ended(facts: Facts, *, log: str = "") -> ExitReport:
    found = seen(facts, log=log)
    assert isinstance(found, Ended)
    return found.report


def test_a_report_is_the_end_whatever_slurm_says() -> None:
    assert seen(Facts(report=REPORT, fresh=True, job=job("RUNNING"))) == Ended(REPORT)


@pytest.mark.parametrize("state", ["NODE_FAIL", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PENDING"])
def test_an_attempt_whose_coordinator_lives_runs_whatever_slurm_says(state: str) -> None:
    assert seen(Facts(fresh=True, ran=True, submitted=True, settled=True, job=job(state))) == Running(2, 2)
    assert seen(Facts(fresh=True, ran=True, submitted=True, absent=True)) == Running(2, 2)


def test_a_pending_job_waits_with_slurms_own_words() -> None:
    waiting = seen(Facts(submitted=True, job=job("PENDING", reason="Resources", nodes="", start=17)))
    assert waiting == Waiting("Resources", eta=17, queued=True)
    assert seen(Facts(job=job("PENDING", nodes=""))) == Waiting("PENDING", queued=True)


def test_what_slurm_lists_as_running_runs_also_if_its_coordinator_is_silent() -> None:
    assert seen(Facts(ran=True, submitted=True, job=job("RUNNING"))) == Running(2, 2)
    assert seen(Facts(submitted=True, job=job("CONFIGURING")), ranks=0) == Waiting("its job starts on n[1-2]")


def test_a_job_that_was_never_listed_is_absent_only_when_it_surely_is() -> None:
    assert seen(Facts()) == Waiting("Slurm does not list its job yet")
    assert isinstance(seen(Facts(problem="no controller")), Unknown)
    assert seen(Facts(absent=True)) == Absent()


def test_a_job_that_slurm_had_and_lost_has_ended() -> None:
    lost = ended(Facts(absent=True, submitted=True))
    assert (lost.reason, "lost before it started" in lost.message) == (EndReason.WORKER_LOST, True)
    assert ended(Facts(absent=True, ran=True)).reason is EndReason.WORKER_LOST
    assert isinstance(seen(Facts(ran=True)), Unknown)


def test_a_job_that_ended_without_a_report_waits_for_it_first() -> None:
    assert seen(Facts(ran=True, submitted=True, job=job("COMPLETED"))) == Running(2, 2)
    assert isinstance(seen(Facts(submitted=True, job=job("FAILED"))), Waiting)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("COMPLETED", EndReason.WORKER_LOST),
        ("FAILED", EndReason.WORKER_LOST),
        ("CANCELLED", EndReason.PREEMPTED),
        ("PREEMPTED", EndReason.PREEMPTED),
        ("TIMEOUT", EndReason.TIME_LIMIT),
        ("DEADLINE", EndReason.WORKER_LOST),
        ("NODE_FAIL", EndReason.WORKER_LOST),
        ("BOOT_FAIL", EndReason.WORKER_LOST),
        ("OUT_OF_MEMORY", EndReason.OUT_OF_MEMORY),
        ("REVOKED", EndReason.WORKER_LOST),
    ],
)
def test_slurms_word_for_the_end_gives_the_reason(state: str, reason: EndReason) -> None:
    assert ended(Facts(ran=True, submitted=True, settled=True, job=job(state))).reason is reason


@pytest.mark.parametrize("state", ["DIVIDED", "X", "RUNNING_"])
def test_a_word_that_nobody_knows_is_no_end(state: str) -> None:
    assert isinstance(seen(Facts(ran=True, submitted=True, settled=True, job=job(state))), Unknown)


def test_the_stop_that_was_asked_for_counts_more_than_slurms_word() -> None:
    for state, nodes in (("CANCELLED", ""), ("NODE_FAIL", "n1")):
        facts = Facts(submitted=True, settled=True, requested=EndReason.PAUSED, job=job(state, nodes=nodes))
        assert ended(facts).reason is EndReason.PAUSED
    for asked in (EndReason.CANCELLED, EndReason.IDLE_TIMEOUT):
        assert ended(Facts(absent=True, submitted=True, requested=asked)).reason is asked


def test_a_job_that_was_cancelled_before_it_had_a_node_has_ended_at_once() -> None:
    assert ended(Facts(submitted=True, job=job("CANCELLED", nodes=""))).reason is EndReason.PREEMPTED


def test_a_job_that_never_reached_our_program_tells_why() -> None:
    facts = Facts(submitted=True, settled=True, job=job("FAILED", reason="NonZeroExitCode"))
    report = ended(facts, log="sh: 2: exec: /opt/python: not found\n")
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "/opt/python: not found" in report.message
    assert "NonZeroExitCode" in report.message


def test_a_requeued_job_has_ended_as_it_starts_nothing_again() -> None:
    report = ended(Facts(ran=True, submitted=True, job=job("PENDING", nodes="")))
    assert (report.reason, "requeued" in report.message) == (EndReason.PREEMPTED, True)
