"""Concurrent workers and users: one winner, one end, and no device is held twice."""

from collections import Counter
from collections.abc import Callable
import os
from typing import Any

import pytest

from store.attempts import append, end
from store.attempts import lease as leases
from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.jobs import events as job_events
from store.output.facts import Batch, NewEvent, NewLines
from store.tables import Job
from tests.databases import quick_on_postgresql
from tests.store.fixture import StoreFixture, run_together
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import Conflict, StaleClaim
from torchyard.contract.states import EndReason, JobState, Reason

pytestmark = quick_on_postgresql
PAIRS = int(os.environ.get("TORCHYARD_RACE_PAIRS", "4"))
"""Repetitions of each race; `make races` runs 10,000."""


def ends(db: StoreFixture, job_id: str) -> list[str]:
    """Returns the terminal states that the job entered."""
    return [state for state in db.moves(job_id) if JobState(state).terminal]


def dense(db: StoreFixture, job_id: str) -> bool:
    numbers = [event.seq for event in db.events(job_id)]
    return numbers == list(range(1, db.job(job_id).position + 1))


def test_two_workers_that_claim_the_same_job_have_one_winner(db: StoreFixture) -> None:
    one, two = db.worker("one"), db.worker("two")
    for number in range(PAIRS):
        job_id, device = db.submit(), f"slot-{number}"
        won = run_together(lambda: db.claim(job_id, one, device), lambda: db.claim(job_id, two, device))  # noqa: B023
        winners = [claim for claim in won if isinstance(claim, Claim)]
        assert len(winners) == 1, won
        assert won.count(None) == 1
        assert db.moves(job_id) == ["queued", "starting"]
        assert dense(db, job_id)
    assert Counter(db.held().values()).most_common(1)[0][1] == 1


def test_two_jobs_that_claim_the_same_devices_in_opposite_order_have_one_winner(db: StoreFixture) -> None:
    worker = db.worker()
    for number in range(PAIRS):
        first, second = db.submit(), db.submit()
        devices = (f"slot-{number}-a", f"slot-{number}-b")
        won = run_together(
            lambda: db.claim(first, worker, *devices),  # noqa: B023
            lambda: db.claim(second, worker, *reversed(devices)),  # noqa: B023
        )
        assert len([claim for claim in won if isinstance(claim, Claim)]) == 1, won
        assert won.count(None) == 1
        assert sorted(db.moves(first) + db.moves(second)) == ["queued", "queued", "starting"]
    assert len(db.held()) == 2 * PAIRS


def test_a_claim_and_a_cancel_have_one_outcome(db: StoreFixture) -> None:
    worker = db.worker()
    for number in range(PAIRS):
        job_id, device = db.submit(), f"slot-{number}"
        claimed, cancelled = run_together(
            lambda: db.claim(job_id, worker, device),  # noqa: B023
            lambda: db.cancel(job_id),  # noqa: B023
        )
        assert isinstance(cancelled, Job)
        job = db.job(job_id)
        if isinstance(claimed, Claim):
            assert job.state == JobState.STARTING
            assert job.cancel_requested_at is not None
            assert db.end(claimed, EndReason.CANCELLED) is JobState.CANCELLED
        else:
            assert claimed is None
            assert job.state == JobState.CANCELLED
            assert (worker, device) not in db.held()
        assert ends(db, job_id) == ["cancelled"]
        assert dense(db, job_id)
    assert db.held() == {}


@pytest.mark.parametrize("reason", [EndReason.COMPLETED, EndReason.USER_ERROR])
def test_a_cancel_and_an_end_have_one_outcome(db: StoreFixture, reason: EndReason) -> None:
    worker = db.worker()
    for _ in range(PAIRS):
        job_id = db.submit()
        claim = db.running(job_id, worker)
        state, cancelled = run_together(
            lambda: db.end(claim, reason),  # noqa: B023
            lambda: db.cancel(job_id),  # noqa: B023
        )
        assert isinstance(state, JobState)
        job = db.job(job_id)
        if isinstance(cancelled, Conflict):
            assert job.state == JobState.SUCCEEDED
        else:
            assert isinstance(cancelled, Job)
            assert job.state == (JobState.SUCCEEDED if reason is EndReason.COMPLETED else JobState.CANCELLED)
        assert ends(db, job_id) == [job.state]
        assert dense(db, job_id)
        assert db.held() == {}


@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.PREEMPTED])
def test_a_cancel_a_resume_and_a_pausing_end_have_one_outcome(db: StoreFixture, reason: EndReason) -> None:
    worker = db.worker()
    for _ in range(PAIRS):
        job_id = db.submit()
        claim = db.running(job_id, worker)
        db.pause(job_id)
        state, cancelled, resumed = run_together(
            lambda: db.end(claim, reason),  # noqa: B023
            lambda: db.cancel(job_id),  # noqa: B023
            lambda: db.resume(job_id),  # noqa: B023
        )
        assert isinstance(state, JobState), state
        assert isinstance(cancelled, Job), cancelled
        assert isinstance(resumed, Job | Conflict), resumed
        assert db.job(job_id).state == JobState.CANCELLED
        assert ends(db, job_id) == ["cancelled"]
        assert dense(db, job_id)
        assert db.held() == {}


def test_a_pause_and_a_claim_have_one_outcome(db: StoreFixture) -> None:
    worker = db.worker()
    for number in range(PAIRS):
        job_id, device = db.submit(), f"slot-{number}"
        claimed, paused = run_together(
            lambda: db.claim(job_id, worker, device),  # noqa: B023
            lambda: db.pause(job_id),  # noqa: B023
        )
        assert isinstance(paused, Job), paused
        assert claimed is None or isinstance(claimed, Claim), claimed
        if claimed is not None:
            assert db.end(claimed, EndReason.PAUSED) is JobState.PAUSED
        assert db.job(job_id).state == JobState.PAUSED
        assert dense(db, job_id)
    assert db.held() == {}


def test_a_rescue_an_end_and_a_renewal_have_one_outcome(db: StoreFixture) -> None:
    worker = db.worker()
    for _ in range(PAIRS):
        job_id = db.submit()
        claim = db.running(job_id, worker)
        db.expire(claim)
        ended, renewed, rescued = run_together(
            lambda: db.end(claim, EndReason.COMPLETED),  # noqa: B023
            lambda: db.write(lambda session: leases.renew(session, worker, [claim.attempt_id])),  # noqa: B023
            lambda: db.rescue(claim),  # noqa: B023
        )
        if rescued is True:
            assert isinstance(ended, StaleClaim)
            assert renewed == set()
            assert db.moves(job_id)[-1] == "queued"
        else:
            assert rescued is False
            assert ended is JobState.SUCCEEDED
        assert len(ends(db, job_id)) == (ended is JobState.SUCCEEDED)
        assert db.held() == {}


def test_a_batch_during_a_rescue_is_stored_whole_or_not_at_all(db: StoreFixture) -> None:
    worker = db.worker()
    for _ in range(PAIRS):
        job_id = db.submit()
        claim = db.running(job_id, worker)
        db.expire(claim)
        stored, rescued = run_together(
            lambda: db.record(claim, seq=0, lines=[NewLines(0, "stdout", ["line"])]),  # noqa: B023
            lambda: db.rescue(claim),  # noqa: B023
        )
        assert rescued is True
        assert stored is None or isinstance(stored, StaleClaim)
        assert db.job(job_id).log_lines == (stored is None)


def test_the_same_batch_sent_twice_is_stored_once(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    for seq in range(PAIRS):
        answers = run_together(*[lambda: db.record(claim, seq=seq, lines=[NewLines(0, "stdout", ["a"])])] * 2)  # noqa: B023
        assert answers.count(None) == 1, answers
        assert sum(isinstance(answer, StaleClaim) for answer in answers) == 1
    assert db.job(claim.job_id).log_lines == PAIRS


def test_concurrent_events_are_numbered_without_gaps_in_commit_order(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    claim = db.starting(job_id, worker)

    def relay() -> None:
        for seq in range(PAIRS):
            note = NewEvent("message", {"level": "info", "text": str(seq)}, seq)
            db.write(
                lambda session, note=note, seq=seq: append.record(
                    session, claim, Batch(offsets={}, events=[note, note]), seq=seq
                )
            )

    def notes() -> None:
        for _ in range(PAIRS):
            db.write(lambda session: job_events.append(session, job_id, type="message", attempt=None, data={}))

    def states() -> None:
        db.write(lambda session: attempts.mark_running(session, claim, reason=Reason("running", "runs")))
        db.cancel(job_id)

    calls: list[Callable[[], Any]] = [relay, notes, states]
    assert run_together(*calls) == [None, None, None]
    db.write(lambda session: end.end(session, claim, ExitReport(reason=EndReason.CANCELLED)))

    assert dense(db, job_id)
    events = db.events(job_id)
    assert len(events) == 3 * PAIRS + 5
    noted = [event.data["text"] for event in events if event.data.get("text")]
    assert [text for text in noted if not text.startswith("cancel requested")] == [
        str(seq) for seq in range(PAIRS) for _ in range(2)
    ]
    assert events[-1].data["to"] == "cancelled"
