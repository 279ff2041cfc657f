"""The CPUs and the memory that jobs request of a host are never given twice."""

from typing import Any

from store.attempts.facts import Claim
from store.cluster import workers
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together
from tests.store.test_races import PAIRS
from torchyard.contract.cluster.devices import StartsReport
from torchyard.contract.states import EndReason


def offering(db: StoreFixture, cpus: float | None = None, memory_gb: float | None = None) -> str:
    worker = db.worker()
    starts = StartsReport(mode="cold", cpus=cpus, memory_gb=memory_gb).to_dict()
    db.write(lambda session: workers.heartbeat(session, worker, devices=[], starts=starts))
    return worker


def asking(db: StoreFixture, **resources: Any) -> str:
    return db.submit(resources=resources)


@quick_on_sqlite
def test_requests_together_stay_within_what_the_host_offers(db: StoreFixture) -> None:
    worker = offering(db, cpus=4, memory_gb=16)
    first = db.claim(asking(db, cpus=2.5, memory_gb=8), worker, "a")
    assert first is not None
    assert db.claim(asking(db, cpus=1.6), worker, "b") is None
    assert db.claim(asking(db, memory_gb=8.1), worker, "b") is None
    assert db.claim(asking(db), worker, "b") is not None, "who requests none needs none"
    assert db.claim(asking(db, cpus=1.5, memory_gb=8), worker, "c") is not None
    assert db.claim(asking(db, cpus=0.1), worker, "d") is None
    db.end(first, EndReason.PREEMPTED)
    assert db.claim(asking(db, cpus=2.5, memory_gb=8), worker, "d") is not None


def test_a_host_of_which_nothing_is_known_has_nothing(db: StoreFixture) -> None:
    for worker in (db.worker(), offering(db), offering(db, memory_gb=4)):
        assert db.claim(asking(db, cpus=0.1), worker) is None
        assert db.claim(asking(db), worker) is not None


def test_claims_at_the_same_time_never_exceed_it(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        worker = offering(db, cpus=2)
        jobs = [asking(db, cpus=1) for _ in range(3)]
        claims = run_together(*(lambda job=job: db.claim(job, worker, job) for job in jobs))  # noqa: B023
        assert sum(isinstance(claim, Claim) for claim in claims) == 2, claims
        assert claims.count(None) == 1
