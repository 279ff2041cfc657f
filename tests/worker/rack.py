"""Schedulers of several workers on one database."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import update

from store.db.database import now_us
from store.db.tables import Job
from store.queries import preemption
from store.queue import Queue
from store.rows import workers
from store.rows.attempts import Claim
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.views import DeviceView
from worker.placement.scheduler import Scheduler


def _nothing() -> None:
    pass


@dataclass
class Hand:
    """A worker as its scheduler knows it, and the jobs that it took."""

    yard: StoreFixture
    queue: Queue
    name: str
    devices: Sequence[DeviceView]
    id: str = ""
    may_claim: bool = True
    meanwhile: Callable[[], object] = _nothing
    """What others do after the scheduler has read the rows."""
    taken: list[str] = field(default_factory=list[str])
    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    """What it took, by job."""

    def __post_init__(self) -> None:
        self.id = self.yard.worker(self.name)
        self.seen(*self.devices)

    def seen(self, *devices: DeviceView) -> None:
        """What the worker sees of its devices from now on, and told in its last heartbeat."""
        self.devices = devices
        rows = [device.model_dump(mode="json") for device in devices]
        self.yard.write(lambda session: workers.heartbeat(session, self.id, devices=rows))

    def look(self) -> None:
        store = store_on(self.yard.database, queue=self.queue)
        scheduler = Scheduler(worker_id=self.id, name=self.name, store=store)
        for claim in scheduler.claims(scheduler.waiting(), self.devices, may_claim=self._asked):
            self.taken.append(claim.job_id)
            self.claims[claim.job_id] = claim

    def runs(self, *devices: str, **spec: Any) -> Claim:
        return self.yard.running(self.yard.submit(**spec), self.id, *devices)

    def _asked(self) -> bool:
        self.meanwhile()
        return self.may_claim


@dataclass
class Rack:
    """Workers on one database. Without a Redis: they read the rows."""

    yard: StoreFixture
    queue: Queue

    def hand(self, name: str, *devices: DeviceView) -> Hand:
        return Hand(self.yard, self.queue, name, devices)

    def submit(self, count: int = 1, *, priority: int = 0, device: str = "auto") -> str:
        return self.yard.submit(priority=priority, resources={"devices_per_node": count, "device": device})

    def asked(self) -> dict[str, str]:
        """Who stops for whom."""
        return {stop.job_id: stop.preemptor for stop in self.yard.read(preemption.preempted_jobs)}

    def asked_ago(self, victim: str, ago: timedelta) -> None:
        asked_at = now_us() - ago // timedelta(microseconds=1)
        self.yard.write(
            lambda session: session.execute(update(Job).where(Job.id == victim).values(preempt_requested_at=asked_at))
        )

    def reason(self, job_id: str) -> tuple[str, str]:
        reason = self.yard.reason(job_id)
        return reason.code, reason.message
