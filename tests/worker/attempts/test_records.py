"""The records of an attempt: those of its beginning, and those of one that the worker has lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import threading

import pytest

from store.attempts.facts import Claim
from store.db.database import Database
from store.jobs import deletion
from store.output.facts import Batch
from store.worker.verbs import WorkerStore
from tests.databases import quick_on_postgresql
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.host import failpoints
from worker.attempts.records import AttemptRecords

COMPLETED = ExitReport(reason=EndReason.COMPLETED)


@pytest.fixture
def store(database: Database) -> StoreFixture:
    return StoreFixture(database)


def deleted(store: StoreFixture, claim: Claim) -> None:
    store.end(claim, EndReason.COMPLETED)
    store.write(lambda session: deletion.delete_job(session, claim.job_id))


def replaced(store: StoreFixture, claim: Claim) -> None:
    """On SQLite, the next attempt gets the row id of the deleted one. It has stored a batch as well."""
    deleted(store, claim)
    store.record(store.running(store.submit(), store.worker()), seq=0)


def rescued(store: StoreFixture, claim: Claim) -> None:
    store.expire(claim)
    assert store.rescue(claim)


@pytest.mark.parametrize("lose", [deleted, replaced, rescued])
def test_every_call_for_a_lost_attempt_raises_stale_claim(
    store: StoreFixture, lose: Callable[[StoreFixture, Claim], None]
) -> None:
    claim = store.running(store.submit(), store.worker())
    records = AttemptRecords(WorkerStore(store_on(store.database), claim.worker_id), claim, leaving=threading.Event())
    records.read()
    lose(store, claim)
    for call in (lambda: records.record(Batch(offsets={})), records.wanted, records.check_owned, records.read):
        with pytest.raises(StaleClaim):
            call()


@pytest.mark.parametrize("write", ["a batch", "the end", "nothing"])
def test_what_has_begun_is_stored_with_the_next_write_whichever_it_is(store: StoreFixture, write: str) -> None:
    claim = store.starting(store.submit(), store.worker())
    records = AttemptRecords(WorkerStore(store_on(store.database), claim.worker_id), claim, leaving=threading.Event())
    records.read()
    records.launched_with_next_write({"pid": 7})
    records.running_with_next_write(Reason("running", "1 process runs"))
    assert (store.attempt(claim).launcher, store.job(claim.job_id).state) == (None, JobState.STARTING)
    if write == "a batch":
        records.record(Batch(offsets={}))
    elif write == "the end":
        assert records.end(ExitReport(reason=EndReason.COMPLETED)) is JobState.SUCCEEDED
    else:
        records.write_begun()
    after = store.job(claim.job_id).version
    records.write_begun()
    ended = JobState.SUCCEEDED if write == "the end" else JobState.RUNNING
    job = store.job(claim.job_id)
    assert (store.attempt(claim).launcher, job.state, job.version) == ({"pid": 7}, ended, after)


@quick_on_postgresql
@pytest.mark.parametrize("write", ["the end", "nothing"])
def test_what_has_begun_is_stored_once_by_two_threads(store: StoreFixture, tmp_path: Path, write: str) -> None:
    claim = store.starting(store.submit(), store.worker())
    records = AttemptRecords(WorkerStore(store_on(store.database), claim.worker_id), claim, leaving=threading.Event())
    records.read()
    records.running_with_next_write(Reason("running", "1 process runs"))
    log = tmp_path / "reached"
    failpoints.arm({failpoints.VARIABLE: f"log={log};store.store_batch.before=hang"})
    with ThreadPoolExecutor(2) as threads:
        try:
            batch = threads.submit(records.record, Batch(offsets={}))
            wait_for(log.exists, "the batch that is being stored")
            other = threads.submit(records.write_begun if write == "nothing" else lambda: records.end(COMPLETED))
            with pytest.raises(TimeoutError):  # it waits for the other thread
                other.result(0.3)
        finally:
            failpoints.arm({})
        batch.result(), other.result()
    assert store.job(claim.job_id).state == (JobState.SUCCEEDED if write == "the end" else JobState.RUNNING)
