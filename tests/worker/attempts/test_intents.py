"""What is wanted of an attempt, by its rows and a clock that the test sets."""

from dataclasses import dataclass
from datetime import timedelta
import threading
from typing import Any

import pytest
from sqlalchemy import update

from scheduling.snapshot import Placement
from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.db.database import Database
from store.tables import Attempt, Job
from store.worker.verbs import WorkerStore
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.cluster.devices import PoolNodes, PoolReport
from torchyard.contract.states import EndReason
from worker.attempts.instructions import Instructions
from worker.attempts.intents import IntentReader
from worker.attempts.phases import Intents, WantedStop
from worker.attempts.records import AttemptRecords

CANCELLED, PAUSED, IDLE, PREEMPTED, LATE = (
    EndReason.CANCELLED,
    EndReason.PAUSED,
    EndReason.IDLE_TIMEOUT,
    EndReason.PREEMPTED,
    EndReason.TIME_LIMIT,
)


@dataclass
class Reader:
    """The reader of a running attempt. `now` is what its clock shows, in seconds."""

    store: StoreFixture
    claim: Claim
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.instructions = Instructions()
        self._records = AttemptRecords(
            WorkerStore(store_on(self.store.database), self.claim.worker_id), self.claim, leaving=threading.Event()
        )
        self._reader = IntentReader(
            self._records, self.instructions, longest_grace=timedelta(minutes=10), clock=lambda: self.now
        )
        self._reader.update(self._records.read())

    def note_running(self) -> None:
        self._reader.note_running()

    def intents(self) -> Intents:
        self._reader.recheck()
        return self._reader.intents()

    def stop(self) -> tuple[EndReason, float] | None:
        found = self.intents().stop
        return None if found is None else (found.reason, found.grace.total_seconds())


@pytest.fixture
def spec() -> dict[str, Any]:
    return {}


@pytest.fixture
def reader(database: Database, spec: dict[str, Any]) -> Reader:
    store = StoreFixture(database)
    return Reader(store, store.running(store.submit(**spec), store.worker()))


@pytest.mark.parametrize("spec", [{"stop_grace": "3650d"}])
def test_a_grace_above_the_workers_maximum_is_cut(reader: Reader) -> None:
    assert reader.stop() is None
    reader.instructions.request_preempt()
    assert reader.stop() == (PREEMPTED, 600)
    reader.store.write(lambda session: session.execute(update(Job).values(idle_requested_at=1)))
    assert reader.stop() == (IDLE, 600)
    reader.store.pause(reader.claim.job_id)
    assert reader.stop() == (PAUSED, 600)
    reader.store.cancel(reader.claim.job_id)
    assert reader.stop() == (CANCELLED, 600)


@pytest.mark.parametrize("spec", [{"stop_grace": "5m"}])
def test_a_forced_cancel_has_no_grace_and_a_shortened_one_not_more_than_asked(reader: Reader) -> None:
    reader.store.cancel(reader.claim.job_id)
    assert reader.intents() == Intents(WantedStop(CANCELLED, timedelta(minutes=5)))
    reader.store.cancel(reader.claim.job_id, grace=timedelta(seconds=20))
    assert reader.intents() == Intents(WantedStop(CANCELLED, timedelta(seconds=20)))
    reader.store.cancel(reader.claim.job_id, grace=timedelta(0))
    assert reader.intents() == Intents(WantedStop(CANCELLED, timedelta(0)), forced=True)


@pytest.mark.parametrize("spec", [{"stop_grace": "0s"}])
def test_a_job_without_a_grace_is_not_cancelled_by_force(reader: Reader) -> None:
    reader.store.cancel(reader.claim.job_id)
    assert reader.intents() == Intents(WantedStop(CANCELLED, timedelta(0)))


@pytest.mark.parametrize("spec", [{"stop_grace": "5s"}])
def test_a_limit_of_the_cancels_grace_does_not_lengthen_it(reader: Reader) -> None:
    reader.store.cancel(reader.claim.job_id, grace=timedelta(seconds=30))
    assert reader.stop() == (CANCELLED, 5)


@pytest.mark.parametrize("spec", [{"time_limit": "10m", "stop_grace": "5m"}])
def test_the_worker_ends_an_attempt_that_its_supervisor_leaves_running_after_the_time_limit(reader: Reader) -> None:
    reader.now += 600
    assert reader.stop() is None, "this is the supervisor's"
    reader.store.pause(reader.claim.job_id)
    assert reader.stop() == (PAUSED, 300)
    reader.now += 31
    assert reader.stop() == (LATE, 0)
    reader.store.cancel(reader.claim.job_id)
    assert reader.stop() == (CANCELLED, 0)


@pytest.mark.parametrize("spec", [{"time_limit": "10m"}])
def test_earlier_attempts_and_the_time_since_the_claim_count(reader: Reader) -> None:
    earlier, claimed = 300_000_000, Attempt.started_at - 200_000_000
    job_id, attempt_id = reader.claim.job_id, reader.claim.attempt_id
    reader.store.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(ran_us=earlier)))
    reader.store.write(
        lambda session: session.execute(update(Attempt).where(Attempt.id == attempt_id).values(started_at=claimed))
    )
    adopted = Reader(reader.store, reader.claim)
    adopted.now += 100
    assert adopted.stop() is None
    adopted.now += 31
    assert adopted.stop() == (LATE, 0)


@pytest.mark.parametrize("spec", [{"time_limit": "10m", "resources": {"pool": "gpu", "device": "cpu"}}])
def test_what_a_job_waits_in_a_clusters_queue_does_not_count(database: Database, spec: dict[str, Any]) -> None:
    store, pool = StoreFixture(database), PoolReport(partition="gpu", kind="cpu", nodes=PoolNodes(count=1, devices=1))
    daemon = WorkerStore(store_on(database), "wrk_pool", holder="here")
    daemon.register("gpu", pool)
    job_id, placement = store.submit(**spec), Placement("wrk_pool", ())
    claim = store.write(lambda session: claims.claim(session, job_id, placement, holder="here"))
    assert claim is not None
    claimed = update(Attempt).where(Attempt.id == claim.attempt_id)
    long_ago = claimed.values(started_at=Attempt.started_at - 86_400_000_000)
    store.write(lambda session: session.execute(long_ago))
    reader = Reader(store, claim)
    reader.now += 86_400
    assert reader.stop() is None
    reader.note_running()
    reader.now += 600
    reader.note_running()  # is repeated
    assert reader.stop() is None, "this is the coordinator's"
    reader.now += 31
    assert reader.stop() == (LATE, 0)
    running = claimed.values(running_at=Attempt.started_at + 86_400_000_000 - 500_000_000)
    store.write(lambda session: session.execute(running))
    adopted = Reader(store, claim)
    adopted.note_running()
    adopted.now += 100
    assert adopted.stop() is None
    adopted.now += 31
    assert adopted.stop() == (LATE, 0)
