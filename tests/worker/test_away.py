"""What becomes of the jobs of a remote worker that does not answer."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from store.attempts.facts import LEASE, Claim
from store.db.database import in_us, now_us
from store.queue import away
from store.tables import Worker
from store.worker.verbs import WorkerStore
from tests.store.fixture import store_on
from tests.worker.schedulers import SchedulerFixture, SchedulersFixture, slot
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import EndReason, JobState, Reason
from worker.rescue import Rescue


class Cluster:
    """box-a, which is remote and runs a job, and box-b, which is free."""

    def __init__(self, schedulers: SchedulersFixture) -> None:
        self.all, self.db = schedulers, schedulers.store
        self.box_a: SchedulerFixture = schedulers.scheduler("box-a", slot(0))
        self._set_worker(remote=True)
        self.claim: Claim = self.box_a.start_job("cpu-0")
        self.box_b: SchedulerFixture = schedulers.scheduler("box-b", slot(1))

    def lose(self) -> None:
        """Cuts the connection of box-a for longer than a lease."""
        self.db.expire(self.claim)
        self._set_worker(seen_at=now_us() - in_us(LEASE + timedelta(seconds=1)))

    def rescue(self) -> None:
        clock = iter((1.0, 1.0, 1000.0))
        rescue = Rescue(store_on(self.db.database), (), clock=lambda: next(clock))
        rescue.rescue_expired()
        rescue.rescue_expired()

    def renew(self) -> set[int]:
        return WorkerStore(store_on(self.db.database), self.box_a.id).renew([self.claim.attempt_id])

    def reason(self) -> str:
        return self.db.reason(self.claim.job_id).code

    def _set_worker(self, **values: object) -> None:
        self.db.write(
            lambda session: session.execute(update(Worker).where(Worker.id == self.box_a.id).values(**values))
        )


@pytest.fixture
def cluster(schedulers: SchedulersFixture) -> Cluster:
    return Cluster(schedulers)


def test_a_job_goes_on_when_its_worker_answers_again(cluster: Cluster) -> None:
    cluster.lose()
    cluster.rescue()
    assert (cluster.db.job(cluster.claim.job_id).state, cluster.reason()) == (JobState.RUNNING, away.AWAY)
    assert cluster.renew() == {cluster.claim.attempt_id}
    assert (cluster.db.job(cluster.claim.job_id).state, cluster.reason()) == (JobState.RUNNING, "running")


def test_the_claim_that_takes_a_job_ends_its_lost_attempt(cluster: Cluster) -> None:
    cluster.lose()
    cluster.rescue()
    cluster.box_b.run_pass()
    assert cluster.box_b.taken == [cluster.claim.job_id]
    attempt, job = cluster.db.attempt(cluster.claim), cluster.db.job(cluster.claim.job_id)
    assert (attempt.end_reason, job.state, job.attempt) == (EndReason.WORKER_LOST, JobState.STARTING, 2)
    assert cluster.renew() == set()
    with pytest.raises(StaleClaim):
        WorkerStore(store_on(cluster.db.database), cluster.box_a.id).change(cluster.claim, Reason("running", "late"))


def test_jobs_that_wait_come_first_and_nobody_stops_for_a_lost_one(cluster: Cluster) -> None:
    cluster.lose()
    waiting = cluster.all.submit()
    cluster.box_b.run_pass()
    assert cluster.box_b.taken == [waiting]
    assert cluster.db.attempt(cluster.claim).ended_at is None
    assert cluster.db.kept() == {}


def test_a_worker_that_answers_during_the_pass_keeps_its_job(cluster: Cluster) -> None:
    cluster.lose()
    cluster.box_b.before_claim = cluster.renew
    cluster.box_b.run_pass()
    assert (cluster.box_b.taken, cluster.db.attempt(cluster.claim).ended_at) == ([], None)


def test_a_claim_that_fails_leaves_the_lost_attempt_open(cluster: Cluster) -> None:
    cluster.lose()
    cluster.box_b.before_claim = lambda: cluster.db.drain(cluster.box_b.id)
    cluster.box_b.run_pass()
    assert (cluster.box_b.taken, cluster.db.attempt(cluster.claim).ended_at) == ([], None)


@pytest.mark.parametrize("why", ["cancelled", "alive"])
def test_an_attempt_that_nobody_waits_for_ends(cluster: Cluster, why: str) -> None:
    if why == "cancelled":
        cluster.lose()
        cluster.db.cancel(cluster.claim.job_id)
    else:  # the worker answers, and does not renew it
        cluster.db.expire(cluster.claim)
    cluster.rescue()
    expected = JobState.CANCELLED if why == "cancelled" else JobState.QUEUED
    assert cluster.db.job(cluster.claim.job_id).state == expected
