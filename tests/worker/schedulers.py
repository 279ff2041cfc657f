"""Schedulers of several workers on one database."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import update

from store.attempts.facts import Claim
from store.cluster import occupancy, workers
from store.db.database import now_us
from store.queue import reservations
from store.queue.announcing import Queue
from store.tables import Job
from store.worker.placing import Placer
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.wire.units import LONGEST_STOP_GRACE

_GIB = 1 << 30


def gpu(index: int, *, blocked: str | None = None, returning: bool = False) -> DeviceReport:
    """Returns what a worker reports of a GPU."""
    return DeviceReport(
        index=index,
        uuid=f"GPU-{index}",
        name="H200",
        kind="cuda",
        memory_bytes=80 * _GIB,
        blocked=blocked,
        returning=returning,
    )


def slot(index: int) -> DeviceReport:
    """Returns what a worker reports of a CPU slot."""
    return DeviceReport(index=index, uuid=f"cpu-{index}", name="CPU slot", kind="cpu")


def _nothing() -> None:
    pass


@dataclass
class SchedulerFixture:
    """The scheduler of one worker, and the jobs that it took."""

    store: StoreFixture
    queue: Queue
    name: str
    devices: Sequence[DeviceReport]
    id: str = ""
    may_claim: bool = True
    before_claim: Callable[[], object] = _nothing
    """What others do after the scheduler has read the rows."""
    taken: list[str] = field(default_factory=list[str])
    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    """The claims of this scheduler, by job."""
    turn: int = 0
    """The passes so far."""
    has_more: bool = False
    """Whether the last pass has left out requests of an owner with very many."""

    def __post_init__(self) -> None:
        self.id = self.store.worker(self.name)
        self.report_devices(*self.devices)

    def report_devices(self, *devices: DeviceReport) -> None:
        """Sets the devices that the worker sees from now on, and writes them as its heartbeat does."""
        self.devices = devices
        rows = [device.to_dict() for device in devices]
        self.store.write(lambda session: workers.heartbeat(session, self.id, devices=rows))

    def run_pass(self, *, may_postpone: bool = False) -> None:
        store = store_on(self.store.database, queue=self.queue)
        placer = Placer(store, turn=self.turn)
        self.turn += 1
        if placer.anything_waits():
            here = {self.id: self.devices}
            for _, claim in placer.claims(here, may_claim=self._may_claim, may_postpone=may_postpone):
                self.taken.append(claim.job_id)
                self.claims[claim.job_id] = claim
        self.has_more = placer.has_more

    def start_job(self, *devices: str, **spec: Any) -> Claim:
        """Submits a job that runs on these devices of the worker, also if its place is kept for another."""
        return self.store.running(self.store.submit(**spec), self.id, *devices, reservation=self.kept_version())

    def kept_version(self) -> int | None:
        """Returns the version of the reservation of the worker's CPU slots; None if they are kept for nobody."""
        return self.store.read(lambda session: reservations.version_of(session, self.id, "cpu"))

    def _may_claim(self) -> bool:
        self.before_claim()
        return self.may_claim


@dataclass
class SchedulersFixture:
    """Several schedulers on one database. There is no Redis: they read the rows."""

    store: StoreFixture
    queue: Queue

    def scheduler(self, name: str, *devices: DeviceReport) -> SchedulerFixture:
        return SchedulerFixture(self.store, self.queue, name, devices)

    def submit(self, count: int = 1, *, priority: int = 0, device: str = "auto", **spec: Any) -> str:
        resources = {"devices_per_node": count, "device": device}
        return self.store.submit(priority=priority, resources=resources, **spec)

    def preempted(self) -> dict[str, str]:
        """Returns the preempted jobs, each with the job that needs its devices."""
        found = self.store.read(lambda session: occupancy.displacements(session, max_stop_grace=LONGEST_STOP_GRACE))
        return {one.victim: one.job_id for one in found}

    def set_preempted_ago(self, victim: str, ago: timedelta) -> None:
        requested_at = now_us() - ago // timedelta(microseconds=1)
        change = update(Job).where(Job.id == victim).values(preempt_requested_at=requested_at)
        self.store.write(lambda session: session.execute(change))

    def reason(self, job_id: str) -> tuple[str, str]:
        reason = self.store.reason(job_id)
        return reason.code, reason.message
