"""A runner whose job is asked for the stacks of its ranks, on an engine without processes."""

from typing import Any

import pytest

from store.attempts import stacks
from store.attempts.facts import AttemptSecrets
from store.output.facts import Answer, Stacks
from store.team import secrets
from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.states import JobState
from worker.attempts import intents
from worker.attempts import stacks as answering
from worker.engines.base import RankStacks


@pytest.fixture(autouse=True)
def only_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between wakeups, the runner reads no intent."""
    monkeypatch.setattr(intents, "READ_EVERY_S", 3600.0)


def ask(simulated: SimulatedRunnerFixture) -> None:
    simulated.store.write(lambda session: stacks.request(session, simulated.claim.job_id))
    simulated.runner.instructions.recheck_intents()


def answer_of(simulated: SimulatedRunnerFixture) -> Answer:
    """Waits until the request is answered."""

    def read() -> Stacks:
        return simulated.store.read(lambda session: stacks.read(session, simulated.claim.job_id))

    wait_for(lambda: read().requested_at is None, "the answer")
    answer = read().answer
    assert answer is not None
    return answer


def texts(answer: Answer) -> list[tuple[str | None, str | None]]:
    return [(rank["text"], rank["note"]) for rank in answer["ranks"]]


def test_each_request_is_answered_once(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    for number in (1, 2):
        attempt.stacks = [RankStacks(f"in step {number}")]
        ask(simulated)
        answer = answer_of(simulated)
        assert texts(answer) == [(f"in step {number}", None)]
        assert abs(answer["taken_at"] - answer["requested_at"]) < 60_000_000
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert attempt.stacks_requests == 2


def test_a_rank_that_does_not_answer_delays_no_turn_and_is_named(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "ANSWER_S", 1.0)
    attempt = simulated.start_ranks()
    attempt.stacks = [RankStacks()]
    ask(simulated)
    wait_for(lambda: attempt.stacks_requests, "the question")
    simulated.write_log("meanwhile\n")
    wait_for(lambda: simulated.lines() == ["meanwhile"], "the relay goes on")
    assert texts(answer_of(simulated)) == [(None, "has not answered")]


def test_a_question_that_fails_does_not_end_the_attempt(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    def fail(_: object) -> None:
        raise OSError("too many open files")

    attempt = simulated.start_ranks()
    monkeypatch.setattr(simulated.engine, "request_stacks", fail)
    ask(simulated)
    assert texts(answer_of(simulated)) == [(None, approved("texts"))]
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


def test_secrets_are_masked_in_an_answer(simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any) -> AttemptSecrets:
        return AttemptSecrets({"KEY": "correct-horse"})

    monkeypatch.setattr(secrets, "resolve", resolve)
    attempt = simulated.start_ranks()
    attempt.stacks = [RankStacks("ect-horse\nin f(correct-horse)\ncorrect-ho")]
    ask(simulated)
    assert texts(answer_of(simulated)) == [("***\nin f(***)\n***", None)]


def test_a_job_that_is_being_cancelled_can_be_asked(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    attempt.stops_on_request = False
    attempt.stacks = [RankStacks("in save")]
    simulated.request_stop()
    wait_for(lambda: attempt.requests, "the stop")
    ask(simulated)
    assert texts(answer_of(simulated)) == [("in save", None)]


def test_a_request_that_no_daemon_has_answered_is_answered_at_adoption(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    attempt.stacks = [RankStacks("in main")]
    simulated.detach()
    simulated.store.write(lambda session: stacks.request(session, simulated.claim.job_id))
    simulated.start_runner()
    assert texts(answer_of(simulated)) == [("in main", None)]
