"""A worker is killed, or hangs until its attempt is rescued, around each commit and push; other workers continue."""

from dataclasses import dataclass

import pytest

from tests.failpoints import actions
from tests.failpoints.armed import REFUSED, started, until
from tests.failpoints.beside import beside
from tests.failpoints.fixture import FailpointFixture
from torchyard.contract.errors import Conflict
from torchyard.contract.states import JobState

SIDES = ("before", "after")
STORED = ("claim", "mark_prepared", "mark_launched", "mark_running", "store_batch", "store_stacks", "end")
POINTS = [
    *(f"store.{what}.{side}" for what in STORED for side in SIDES),
    *(f"queue.announce.{side}" for side in SIDES),
]
TOLD = 5  # the claim, that it runs, two batches, its end
TIMES = [
    *((point, 1) for point in POINTS),
    *((f"store.store_batch.{side}", 2) for side in SIDES),
    *((f"queue.announce.{side}", hit) for side in SIDES for hit in range(2, TOLD + 1)),
]
LOOKS = [f"store.{what}.{side}" for what in ("group_jobs", "reason", "preempt") for side in SIDES]
BOTH = [f"store.{what}.{side}" for what in ("claim", "mark_running", "end") for side in SIDES]

each_point = pytest.mark.parametrize(("point", "hit"), TIMES, ids=[f"{point}-{hit}" for point, hit in TIMES])


@dataclass(frozen=True)
class ContendedDevice:
    """A worker whose device is held, and two jobs that wait for the device."""

    worker: str
    holder: str
    urgent: str
    after: str

    @classmethod
    def of(cls, service: FailpointFixture) -> "ContendedDevice":
        worker = service.worker()
        holder = service.running(service.submit(preemptible=True), worker, "cpu-0").job_id
        contended = cls(worker, holder, service.submit_queued(priority=5), service.submit_queued())
        service.hold_back(contended.after, seconds=-1)  # it may start again from now on
        return contended

    def check(self, service: FailpointFixture) -> None:
        """Checks that the holder is preempted once for the urgent job, and that the other job's reason says so."""
        assert service.job(self.holder).preempted_for == self.urgent
        assert service.reason(self.urgent).code == "preempting"
        assert "where jobs stop for a job of " in service.reason(self.after).message
        assert service.moves(self.holder) == ["queued", "starting", "running"]
        service.check_queue()


@each_point
def test_another_worker_continues_the_job_of_a_killed_one(service: FailpointFixture, point: str, hit: int) -> None:
    job_id = service.submit_queued()
    with started(
        actions.work, service.settings, service.worker(), plan=f"{point}=kill@{hit}", log=service.log
    ) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    _, what, side = point.split(".")
    if what in {"claim", "mark_launched", "mark_running", "store_batch", "end"}:
        assert _is_stored(service, what, job_id, hit=hit) == (side == "after")
    service.take_over(job_id)
    service.check(job_id)
    done = point in {"store.end.after", "store.claim.before"} or (point.startswith("queue.announce") and hit == TOLD)
    assert service.job(job_id).attempt == (1 if done else 2)


@each_point
def test_a_hung_worker_writes_nothing_after_its_attempt_was_rescued(
    service: FailpointFixture, point: str, hit: int
) -> None:
    job_id = service.submit_queued()
    with started(
        actions.work, service.settings, service.worker(), plan=f"{point}=stop@{hit}", log=service.log
    ) as child:
        child.wait_for_stop()
        with beside(service.database, service.take_over, job_id) as others:
            assert others.waits == (point.endswith(".before") and point.startswith("store."))
            before = None if others.waits else service.everything()
            child.go_on()
            assert child.wait() in {0, REFUSED}
    if before is not None:
        assert service.everything() == before
    service.check(job_id)


@pytest.mark.parametrize("point", LOOKS)
def test_a_worker_killed_during_a_pass_over_the_queue_is_replaced(service: FailpointFixture, point: str) -> None:
    contended = ContendedDevice.of(service)
    with started(actions.schedule, service.settings, contended.worker, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    actions.schedule(service.settings, contended.worker)
    contended.check(service)


@pytest.mark.thorough
@pytest.mark.parametrize("point", LOOKS)
def test_a_pass_over_the_queue_beside_a_delayed_one_preempts_once(service: FailpointFixture, point: str) -> None:
    contended = ContendedDevice.of(service)
    with started(
        actions.schedule, service.settings, contended.worker, plan=f"{point}=delay:0.3", log=service.log
    ) as child:
        until(lambda: child.acted, "the delay")
        actions.schedule(service.settings, contended.worker)
        assert child.wait() == 0
    actions.schedule(
        service.settings, contended.worker
    )  # which corrects the reasons of two that did not know of each other
    contended.check(service)


@pytest.mark.parametrize("intent", ["cancel", "pause"])
@pytest.mark.parametrize("point", BOTH)
def test_a_request_to_a_killed_worker_has_one_outcome(service: FailpointFixture, intent: str, point: str) -> None:
    job_id = service.submit_queued()
    with started(actions.work, service.settings, service.worker(), plan=f"{point}=stop", log=service.log) as child:
        child.wait_for_stop()
        with beside(service.database, _ask, service, intent, job_id):
            child.kill()
    service.end_rescued(job_id)
    job = service.job(job_id)
    expected = {"cancel": JobState.CANCELLED, "pause": JobState.PAUSED}[intent]
    assert job.state == (JobState.SUCCEEDED if point == "store.end.after" else expected)
    if job.state == JobState.PAUSED:
        actions.request(service.settings, "resume", job_id)
        service.take_over(job_id)
        service.check(job_id)
    else:
        assert [move for move in service.moves(job_id) if JobState(move).terminal] == [job.state]
        assert service.held() == {}
        service.check_queue()


def _ask(service: FailpointFixture, intent: str, job_id: str) -> None:
    try:
        actions.request(service.settings, intent, job_id)
    except Conflict:  # it has ended
        assert service.job(job_id).finished_at is not None


def _is_stored(service: FailpointFixture, what: str, job_id: str, *, hit: int) -> bool:
    job = service.job(job_id)
    if what == "claim":
        return job.attempt == 1
    (attempt,) = service.attempts(job_id)
    return {
        "mark_launched": attempt.launcher is not None,
        "mark_running": job.state == JobState.RUNNING,
        "store_batch": attempt.relay_seq == hit,
        "end": attempt.ended_at is not None,
    }[what]
