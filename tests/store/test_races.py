"""Many workers and users at once: one winner, one end, no device twice."""

from collections import Counter
from collections.abc import Callable
import os
from typing import Any

import pytest

from store.db.tables import Job
from store.rows import attempts, jobs
from store.rows.attempts import Batch, Claim, NewEvent
from store.rows.jobs import Reason
from store.rows.logs import NewLines
from tests.store.yard import Yard, at_once
from torchyard.contract.errors import Conflict, StaleClaim
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.records import ExitReport

PAIRS = int(os.environ.get("TORCHYARD_RACE_PAIRS", "16"))


def ends(yard: Yard, job_id: str) -> list[str]:
    """The terminal states that the job entered."""
    return [state for state in yard.moves(job_id) if JobState(state).terminal]


def dense(yard: Yard, job_id: str) -> bool:
    numbers = [event.seq for event in yard.events(job_id)]
    return numbers == list(range(1, yard.job(job_id).position + 1))


def test_two_workers_claim_the_same_job(yard: Yard) -> None:
    one, two = yard.worker("one"), yard.worker("two")
    for number in range(PAIRS):
        job_id, device = yard.submit(), f"slot-{number}"
        won = at_once(lambda: yard.claim(job_id, one, device), lambda: yard.claim(job_id, two, device))  # noqa: B023
        winners = [claim for claim in won if isinstance(claim, Claim)]
        assert len(winners) == 1, won
        assert won.count(None) == 1
        assert yard.moves(job_id) == ["queued", "starting"]
        assert dense(yard, job_id)
    assert Counter(yard.held().values()).most_common(1)[0][1] == 1


def test_two_jobs_claim_the_same_devices_in_opposite_order(yard: Yard) -> None:
    worker = yard.worker()
    for number in range(PAIRS):
        first, second = yard.submit(), yard.submit()
        devices = (f"slot-{number}-a", f"slot-{number}-b")
        won = at_once(
            lambda: yard.claim(first, worker, *devices),  # noqa: B023
            lambda: yard.claim(second, worker, *reversed(devices)),  # noqa: B023
        )
        assert len([claim for claim in won if isinstance(claim, Claim)]) == 1, won
        assert won.count(None) == 1
        assert sorted(yard.moves(first) + yard.moves(second)) == ["queued", "queued", "starting"]
    assert len(yard.held()) == 2 * PAIRS


def test_a_claim_against_a_cancel(yard: Yard) -> None:
    worker = yard.worker()
    for number in range(PAIRS):
        job_id, device = yard.submit(), f"slot-{number}"
        claimed, cancelled = at_once(
            lambda: yard.claim(job_id, worker, device),  # noqa: B023
            lambda: yard.cancel(job_id),  # noqa: B023
        )
        assert isinstance(cancelled, Job)
        job = yard.job(job_id)
        if isinstance(claimed, Claim):
            assert job.state == JobState.STARTING
            assert job.cancel_requested_at is not None
            assert yard.end(claimed, EndReason.CANCELLED) is JobState.CANCELLED
        else:
            assert claimed is None
            assert job.state == JobState.CANCELLED
            assert (worker, device) not in yard.held()
        assert ends(yard, job_id) == ["cancelled"]
        assert dense(yard, job_id)
    assert yard.held() == {}


@pytest.mark.parametrize("reason", [EndReason.COMPLETED, EndReason.USER_ERROR])
def test_a_cancel_against_the_end(yard: Yard, reason: EndReason) -> None:
    worker = yard.worker()
    for _ in range(PAIRS):
        job_id = yard.submit()
        claim = yard.running(job_id, worker)
        state, cancelled = at_once(
            lambda: yard.end(claim, reason),  # noqa: B023
            lambda: yard.cancel(job_id),  # noqa: B023
        )
        assert isinstance(state, JobState)
        job = yard.job(job_id)
        if isinstance(cancelled, Conflict):
            assert job.state == JobState.SUCCEEDED
        else:
            assert isinstance(cancelled, Job)
            assert job.state == (JobState.SUCCEEDED if reason is EndReason.COMPLETED else JobState.CANCELLED)
        assert ends(yard, job_id) == [job.state]
        assert dense(yard, job_id)
        assert yard.held() == {}


@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.PREEMPTED])
def test_a_cancel_against_a_resume_and_the_end_of_a_pause(yard: Yard, reason: EndReason) -> None:
    worker = yard.worker()
    for _ in range(PAIRS):
        job_id = yard.submit()
        claim = yard.running(job_id, worker)
        yard.pause(job_id)
        state, cancelled, resumed = at_once(
            lambda: yard.end(claim, reason),  # noqa: B023
            lambda: yard.cancel(job_id),  # noqa: B023
            lambda: yard.resume(job_id),  # noqa: B023
        )
        assert isinstance(state, JobState), state
        assert isinstance(cancelled, Job), cancelled
        assert isinstance(resumed, Job | Conflict), resumed
        assert yard.job(job_id).state == JobState.CANCELLED
        assert ends(yard, job_id) == ["cancelled"]
        assert dense(yard, job_id)
        assert yard.held() == {}


def test_a_pause_against_a_claim(yard: Yard) -> None:
    worker = yard.worker()
    for number in range(PAIRS):
        job_id, device = yard.submit(), f"slot-{number}"
        claimed, paused = at_once(
            lambda: yard.claim(job_id, worker, device),  # noqa: B023
            lambda: yard.pause(job_id),  # noqa: B023
        )
        assert isinstance(paused, Job), paused
        assert claimed is None or isinstance(claimed, Claim), claimed
        if claimed is not None:
            assert yard.end(claimed, EndReason.PAUSED) is JobState.PAUSED
        assert yard.job(job_id).state == JobState.PAUSED
        assert dense(yard, job_id)
    assert yard.held() == {}


def test_a_rescue_against_the_end_and_a_renewal(yard: Yard) -> None:
    worker = yard.worker()
    for _ in range(PAIRS):
        job_id = yard.submit()
        claim = yard.running(job_id, worker)
        yard.expire(claim)
        ended, renewed, rescued = at_once(
            lambda: yard.end(claim, EndReason.COMPLETED),  # noqa: B023
            lambda: yard.write(lambda session: attempts.renew(session, worker, [claim.attempt_id])),  # noqa: B023
            lambda: yard.rescue(claim),  # noqa: B023
        )
        if rescued is True:
            assert isinstance(ended, StaleClaim)
            assert renewed == set()
            assert yard.moves(job_id)[-1] == "queued"
        else:
            assert rescued is False
            assert ended is JobState.SUCCEEDED
        assert len(ends(yard, job_id)) == (ended is JobState.SUCCEEDED)
        assert yard.held() == {}


def test_a_rescue_against_a_batch_stores_it_whole_or_not_at_all(yard: Yard) -> None:
    worker = yard.worker()
    for _ in range(PAIRS):
        job_id = yard.submit()
        claim = yard.running(job_id, worker)
        yard.expire(claim)
        stored, rescued = at_once(
            lambda: yard.record(claim, seq=0, lines=[NewLines(0, "stdout", ["line"])]),  # noqa: B023
            lambda: yard.rescue(claim),  # noqa: B023
        )
        assert rescued is True
        assert stored is None or isinstance(stored, StaleClaim)
        assert yard.job(job_id).log_lines == (stored is None)


def test_the_same_batch_sent_twice_is_stored_once(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    for seq in range(PAIRS):
        answers = at_once(*[lambda: yard.record(claim, seq=seq, lines=[NewLines(0, "stdout", ["a"])])] * 2)  # noqa: B023
        assert answers.count(None) == 1, answers
        assert sum(isinstance(answer, StaleClaim) for answer in answers) == 1
    assert yard.job(claim.job_id).log_lines == PAIRS


def test_events_from_everybody_are_numbered_without_a_gap_in_the_order_of_their_commits(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    claim = yard.starting(job_id, worker)

    def relay() -> None:
        for seq in range(PAIRS):
            note = NewEvent("message", {"level": "info", "text": str(seq)}, seq)
            yard.write(
                lambda session, note=note, seq=seq: attempts.record(
                    session, claim, Batch(offsets={}, events=[note, note]), seq=seq
                )
            )

    def notes() -> None:
        for _ in range(PAIRS):
            yard.write(lambda session: jobs.add_event(session, job_id, type="message", attempt=None, data={}))

    def states() -> None:
        yard.write(lambda session: attempts.mark_running(session, claim, reason=Reason("running", "runs")))
        yard.cancel(job_id)

    calls: list[Callable[[], Any]] = [relay, notes, states]
    assert at_once(*calls) == [None, None, None]
    yard.write(lambda session: attempts.end(session, claim, ExitReport(reason=EndReason.CANCELLED)))

    assert dense(yard, job_id)
    events = yard.events(job_id)
    assert len(events) == 3 * PAIRS + 4
    assert [event.data["text"] for event in events if event.data.get("text")] == [
        str(seq) for seq in range(PAIRS) for _ in range(2)
    ]
    assert events[-1].data["to"] == "cancelled"
