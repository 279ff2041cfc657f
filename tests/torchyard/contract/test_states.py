"""The tables of the job's life."""

import pytest

from torchyard.contract.states import OUTCOMES, TRANSITIONS, EndReason, JobState, sources

LEGAL = """
queued → starting paused cancelled failed
starting → running queued paused failed cancelled
running → succeeded queued paused failed cancelled
paused → queued cancelled
succeeded →
failed →
cancelled →
"""


def test_the_legal_moves_are_those_of_the_design() -> None:
    rows = [line.split("→") for line in LEGAL.strip().splitlines()]
    assert {state.strip(): set(targets.split()) for state, targets in rows} == TRANSITIONS


def test_the_terminal_states() -> None:
    assert {state for state in JobState if state.terminal} == {"succeeded", "failed", "cancelled"}


@pytest.mark.parametrize("target", list(JobState))
def test_sources_are_the_moves_read_backwards(target: JobState) -> None:
    assert sources(target) == {state for state in JobState if target in TRANSITIONS[state]}


def test_every_reason_has_an_outcome_that_a_running_job_may_take() -> None:
    assert set(OUTCOMES) == set(EndReason)
    assert {outcome.state for outcome in OUTCOMES.values()} <= TRANSITIONS[JobState.RUNNING]


def test_only_retries_count_and_only_faults_that_are_the_jobs_own() -> None:
    counted = {reason for reason, outcome in OUTCOMES.items() if outcome.counted}
    retried = {reason for reason, outcome in OUTCOMES.items() if outcome.state is JobState.QUEUED}
    assert counted == {"user_error", "out_of_memory", "hang", "killed", "launch_failed"}
    assert retried - counted == {"preempted", "worker_lost", "device_fault"}
