"""The daemon of a pool: what runs on its cluster outlives any of its daemons, and belongs to one of them at a time."""

from collections.abc import Callable
from pathlib import Path
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from store.attempts import end
from store.attempts.facts import LEASE, Claim
from store.db.database import Database
from store.output import logs
from store.tables import Worker
from store.worker.verbs import WorkerStore
from tests.approved import Approved
from tests.store.fixture import StoreFixture, run_together, store_on
from tests.worker.attempt import wait_for
from tests.worker.pools import HERE, THERE, PoolFixture, report, serving
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason, JobState
from worker.attempts import following, intents
from worker.daemon import Daemon
from worker.engines.base import ClusterRequest, Handle, NotStartedYet, Waiting
from worker.leases import Leases


@pytest.fixture
def pool(tmp_path: Path, database: Database, redis_url: str) -> PoolFixture:
    return PoolFixture(tmp_path, StoreFixture(database), redis_url)


def lost_from_sight(pool: PoolFixture, daemon: Daemon) -> None:
    """Makes the daemon one that was not seen within a lease."""
    seen = update(Worker).where(Worker.id == daemon.id).values(seen_at=0)
    pool.store.write(lambda session: session.execute(seen))


def test_a_job_of_several_nodes_runs_on_what_the_cluster_gives(pool: PoolFixture, approved: Approved) -> None:
    daemon = pool.daemon()
    claim = pool.claimed(daemon)
    with serving(daemon):
        attempt = pool.running(claim)
        assert attempt.plan.cluster == ClusterRequest(nodes=2, devices_per_node=1, kind="cpu")
        assert (attempt.plan.devices, attempt.plan.world_size) == ((), 2)
        job = pool.store.job(claim.job_id)
        assert [(held["node"], held["host"], held["uuid"]) for held in job.devices] == [
            (0, "n1", "cpu-n1-0"),
            (1, "n2", "cpu-n2-0"),
        ]
        assert job.reason_message == "2 processes run on n1, n2"
        pool.run(claim).log("rank-1", "stdout").write_text("of the other node\n")
        attempt.end()
        wait_for(lambda: pool.store.job(claim.job_id).state == JobState.SUCCEEDED, "its end")
    lines = pool.store.read(lambda session: logs.list_after(session, claim.job_id, line=0, limit=10).items)
    assert [(line.rank, line.text) for line in lines] == [(1, approved("text"))]


def test_the_owner_is_told_the_clusters_own_reason(pool: PoolFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_QUEUED_S", 0.01)
    daemon = pool.daemon()
    claim = pool.claimed(daemon)

    def told(message: str) -> None:
        wait_for(lambda: pool.store.job(claim.job_id).reason_message == message, message)

    with serving(daemon):
        attempt = pool.started(claim)
        attempt.waiting = Waiting("QOSMaxJobs\nPerUser\x1b[2J", queued=True)
        told("waits in Slurm: QOSMaxJobs")
        assert pool.store.job(claim.job_id).reason_code == "waiting_in_slurm"
        attempt.waiting = Waiting("Priority", eta=4_000_000_000_000_000, queued=True)
        told("waits in Slurm: Priority; expected to start on 2096-10-02 at 07:06 UTC")
        attempt.waiting = Waiting("Reservation", eta=10**18, queued=True)
        told("waits in Slurm: Reservation")
        attempt.waiting = Waiting("Dependency", eta=-1, queued=True)
        told("waits in Slurm: Dependency")
        attempt.waiting = Waiting("", queued=True)
        told("waits in Slurm")
        attempt.waiting = Waiting("starts on n1, n2")
        told("attempt 1: starts on n1, n2")
        assert pool.store.job(claim.job_id).reason_code == "starting"


def test_the_owner_is_told_why_the_cluster_takes_no_job_yet(pool: PoolFixture) -> None:
    daemon = pool.daemon()
    claim = pool.claimed(daemon)
    pool.cluster.refusals = [NotStartedYet("Slurm does not answer: connection refused")] * 1000
    with serving(daemon):
        told = "attempt 1: Slurm does not answer: connection refused"
        wait_for(lambda: pool.store.job(claim.job_id).reason_message == told, "the reason")


def test_a_job_that_waits_in_the_cluster_can_be_cancelled(pool: PoolFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_QUEUED_S", 0.01)
    monkeypatch.setattr(intents, "READ_EVERY_S", 0.1)  # of the attempt's own clock
    daemon = pool.daemon()
    claim = pool.claimed(daemon)
    with serving(daemon):
        attempt = pool.started(claim)
        attempt.waiting = Waiting("Resources", queued=True)
        pool.store.cancel(claim.job_id)
        pool.ahead += 60  # a lost wake-up
        wait_for(lambda: pool.store.job(claim.job_id).state == JobState.CANCELLED, "the cancel")
        assert attempt.report is not None


def test_a_daemon_that_leaves_ends_nothing_and_the_next_one_goes_on(pool: PoolFixture) -> None:
    first = pool.daemon()
    claim = pool.claimed(first)
    with serving(first):
        attempt = pool.running(claim)
    assert attempt.report is None
    second = pool.daemon(THERE)
    assert second.id == first.id
    with serving(second):  # the first one has released the pool: no lease has to expire
        wait_for(lambda: pool.store.attempt(claim).holder == THERE, "the adoption")
        attempt.end()
        wait_for(lambda: pool.store.job(claim.job_id).state == JobState.SUCCEEDED, "its end")
    assert pool.store.job(claim.job_id).attempt == 1


def test_a_daemon_waits_while_another_one_serves_the_pool(pool: PoolFixture, caplog: pytest.LogCaptureFixture) -> None:
    first = pool.daemon()
    claim = pool.claimed(first)
    with serving(first):
        attempt = pool.running(claim)
        with serving(pool.daemon(THERE)):
            wait_for(lambda: f"pool gpu is served by {HERE}; trying again" in caplog.text, "the second one waits")
            assert pool.store.attempt(claim).holder == HERE
            lost_from_sight(pool, first)
            wait_for(lambda: pool.store.attempt(claim).holder == THERE, "the takeover")
            pool.ahead += 6  # the heartbeat of the first one
            wait_for(lambda: "another daemon serves the pool gpu now" in caplog.text, "the first one notices")
            assert attempt.report is None
            attempt.end()
            wait_for(lambda: pool.store.job(claim.job_id).state == JobState.SUCCEEDED, "its end")
    assert pool.store.job(claim.job_id).attempt == 1


@pytest.mark.thorough
def test_a_daemon_that_was_away_serves_the_pool_again_after_the_other_one(
    pool: PoolFixture, caplog: pytest.LogCaptureFixture
) -> None:
    first = pool.daemon()
    claim = pool.claimed(first)
    with serving(first):
        attempt = pool.running(claim)
        with serving(pool.daemon(THERE)):
            lost_from_sight(pool, first)
            wait_for(lambda: pool.store.attempt(claim).holder == THERE, "the takeover")
            pool.ahead += 6
            wait_for(lambda: "another daemon serves the pool gpu now" in caplog.text, "the first one notices")
        wait_for(lambda: pool.store.attempt(claim).holder == HERE, "the first one again")
        attempt.end()
        wait_for(lambda: pool.store.job(claim.job_id).state == JobState.SUCCEEDED, "its end")
    assert pool.store.job(claim.job_id).attempt == 1


def test_what_another_daemon_has_taken_over_is_neither_written_nor_killed_by_the_first(pool: PoolFixture) -> None:
    """The first one was away for longer than its lease, and its runner goes on before its heartbeat fails."""
    first = pool.daemon()
    claim = pool.claimed(first)
    with serving(first):
        attempt = pool.running(claim)
        take_over(pool, first)
        with pool.run(claim).log("rank-0", "stdout").open("a") as log:
            log.write("a line\n")
        wait_for(lambda: not daemon_runs(claim), "its runner's end")
    assert attempt.report is None
    assert pool.store.attempt(claim).relay_seq == 0
    assert pool.store.attempt(claim).ended_at is None


def daemon_runs(claim: Claim) -> bool:
    return any(thread.name == f"{claim.job_id}/{claim.number}" for thread in threading.enumerate())


def take_over(pool: PoolFixture, daemon: Daemon) -> None:
    lost_from_sight(pool, daemon)
    WorkerStore(store_on(pool.store.database), daemon.id, holder=THERE).register("gpu", report())


def test_an_attempt_whose_runner_failed_is_continued(pool: PoolFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = pool.daemon()
    claim = pool.claimed(daemon)

    def is_continued() -> bool:
        pool.ahead += 0.5  # the next sweep may come before a renewal: then one more is needed
        return daemon_runs(claim)

    with serving(daemon):
        attempt = pool.running(claim)
        (runner,) = (thread for thread in threading.enumerate() if thread.name == f"{claim.job_id}/{claim.number}")

        def failing(method: Callable[[Handle], object]) -> Callable[[Handle], object]:
            """Fails in the runner's thread."""

            def call(handle: Handle) -> object:
                if threading.current_thread() is runner:
                    raise RuntimeError("a defect")
                return method(handle)

            return call

        monkeypatch.setattr(pool.cluster, "poll", failing(pool.cluster.poll))
        monkeypatch.setattr(pool.cluster, "kill", failing(pool.cluster.kill))
        wait_for(lambda: not runner.is_alive(), "the loss of its runner")
        wait_for(is_continued, "a sweep that continues it")
        attempt.end()
        wait_for(lambda: pool.store.job(claim.job_id).state == JobState.SUCCEEDED, "its end")
    assert pool.store.job(claim.job_id).attempt == 1


def test_an_attempt_whose_runner_has_failed_gets_one_before_others_are_ended(pool: PoolFixture) -> None:
    daemon = pool.daemon()
    claim = pool.claimed(daemon)
    calls: list[tuple[str, list[Claim]]] = []

    def adopt(claims: list[Claim]) -> None:
        calls.append(("adopt", claims))

    runners: Any = SimpleNamespace(adopt=adopt, end_others=lambda: calls.append(("end others", [])))
    store = WorkerStore(store_on(pool.store.database), daemon.id, holder=HERE)
    leases = Leases(store, runners, clock=lambda: pool.ahead, in_pool=True)
    assert leases.end_others()
    assert calls == [("adopt", [claim]), ("end others", [])]
    pool.ahead += LEASE.total_seconds()  # another daemon may have the pool: nothing is ended before a renewal
    assert not leases.end_others()
    assert len(calls) == 2


def test_what_belongs_to_no_open_attempt_is_ended_in_the_cluster(pool: PoolFixture) -> None:
    daemon = pool.daemon()
    claim = pool.claimed(daemon)
    with serving(daemon):
        attempt = pool.running(claim)
        lost = ExitReport(reason=EndReason.WORKER_LOST)
        # As `cancel --now` does while no daemon is seen.
        pool.store.write(lambda session: end.end(session, claim, lost))
        wait_for(lambda: not daemon_runs(claim), "its runner's end")
        pool.ahead += 11  # the next sweep, unless the first pass over the line has ended it
        wait_for(lambda: attempt.report is not None, "the end in the cluster")


def test_daemons_that_start_together_on_several_hosts_have_one_id(pool: PoolFixture) -> None:
    made = run_together(*(lambda number=number: pool.daemon(f"host-{number}/boot") for number in range(8)))
    assert len({daemon.id for daemon in made if isinstance(daemon, Daemon)}) == 1
