"""One of four workers is killed, or hangs, while it passes over the line: the others go on without it."""

import pytest

from store.attempts.facts import Claim
from store.cluster import workers
from store.store import Store
from store.worker.placing import Placer
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.fixture import FailpointFixture
from tests.store.fixture import store_on
from tests.worker.several import SLOTS, Several
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.states import EndReason, JobState
from worker.settings import Settings

POINTS = [f"store.{what}.{side}" for what in ("reserve", "claim", "preempt") for side in ("before", "after")]
DEVICES = [DeviceReport(index=index, uuid=f"cpu-{index}", name="CPU slot", kind="cpu") for index in range(SLOTS)]
BOTH = {"devices_per_node": SLOTS}


class FourWorkers:
    """The first worker has a preemptible job and a free slot, the others have no room.

    In one pass the first one keeps a place for `wide`, starts `first` and stops its job for `urgent`.
    """

    def __init__(self, service: FailpointFixture) -> None:
        self._service = service
        self.workers = sorted(service.worker(name) for name in ("one", "two", "three", "four"))
        self.killed, *self.others = self.workers
        for worker in self.workers:
            self._offer(worker)
        service.running(service.submit(preemptible=True, owner="eve"), self.killed, "cpu-0")
        for worker in self.others:
            service.running(service.submit(resources=BOTH, owner="eve"), worker, "cpu-0", "cpu-1")
        self.first = service.submit_queued(priority=9)
        self.urgent = service.submit_queued(priority=5)
        self.wide = service.submit_queued(resources=BOTH)
        self.all = Several(service, self.workers)

    def _offer(self, worker: str) -> None:
        rows = [device.to_dict() for device in DEVICES]
        self._service.write(lambda session: workers.heartbeat(session, worker, devices=rows))

    def lose_the_killed_one(self) -> None:
        self.all.lose(self.killed)
        self.all.check()
        self.all.check_kept()

    def finish(self) -> None:
        """Lets the others pass over the line until all jobs have ended."""
        for _ in range(len(self._service.jobs())):
            for worker in self.others:
                pass_over(store_on(self._service.database, queue=self._service.queue), worker)
                self.all.check()
            for claim in self.all.open_claims():
                self._service.complete(claim)
        assert {job.state for job in self._service.jobs()} == {JobState.SUCCEEDED}
        self.all.check_kept()
        self._service.check_queue()
        assert self._service.held() == {}


def pass_over(store: Store, worker: str) -> list[Claim]:
    """Has the worker make a pass over the line."""
    placer = Placer(store)
    if not placer.anything_waits():
        return []
    return [claim for _, claim in placer.claims({worker: DEVICES}, may_claim=lambda: True)]


def pass_in_process(settings: Settings, worker: str) -> None:
    with actions.opened(settings) as store:
        pass_over(store, worker)


@pytest.mark.parametrize("point", POINTS)
def test_the_others_do_all_that_a_killed_worker_has_left(service: FailpointFixture, point: str) -> None:
    four = FourWorkers(service)
    with started(pass_in_process, service.settings, four.killed, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    four.all.check()
    four.lose_the_killed_one()
    four.finish()


@pytest.mark.parametrize("point", [point for point in POINTS if point.endswith("after")])
def test_a_worker_that_hung_while_the_others_replaced_it_breaks_nothing(service: FailpointFixture, point: str) -> None:
    four = FourWorkers(service)
    with started(pass_in_process, service.settings, four.killed, plan=f"{point}=stop", log=service.log) as child:
        child.wait_for_stop()
        four.lose_the_killed_one()
        for worker in four.others:
            pass_over(store_on(service.database, queue=service.queue), worker)
            four.all.check()
        child.go_on()
        assert child.wait() == 0
    four.all.check()
    for claim in four.all.open_claims(four.killed):
        service.end(claim, EndReason.PREEMPTED)
    four.all.sweep()
    four.finish()
