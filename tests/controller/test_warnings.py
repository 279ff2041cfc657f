"""A job that is slow for a while gets one warning for each cause, and its targets are told."""

from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select, update

from controller.duties import Warnings
from store.attempts.facts import Claim
from store.attempts.slowness import warn
from store.cluster import device_history
from store.cluster.facts import Sample
from store.output.facts import MetricPoint
from store.store import Store
from store.tables import Allocation, Attempt, Job, NotificationTarget, Signal
from tests import sessions
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.recipes.entry import DATA_WAIT, RANK_LAG, SLOWEST_RANK
from torchyard.contract.states import EndReason

LAGS = {RANK_LAG: 0.35, SLOWEST_RANK: 1.0}


class Running:
    """A job that has run for a quarter of an hour on two GPUs."""

    def __init__(self, db: StoreFixture, worker: str = "box-a") -> None:
        self.db = db
        self.worker = db.worker(worker)
        self.job_id = db.submit(resources={"devices_per_node": 2}, max_restarts=3)
        self.claim = self.run()

    def run(self) -> Claim:
        claim = self.db.running(self.job_id, self.worker, "gpu-0", "gpu-1")
        self.db.write(lambda session: session.execute(update(Allocation).values(kind="cuda")))
        devices = [{"worker": self.worker, "uuid": f"gpu-{rank}", "index": rank, "name": "GPU"} for rank in range(2)]
        self.db.write(lambda session: session.execute(update(Job).values(devices=devices)))
        self.age()
        return claim

    def age(self, *, minutes: int = 15) -> None:
        older = Attempt.running_at - minutes * 60_000_000
        self.db.write(lambda session: session.execute(update(Attempt).values(running_at=older)))

    def reports(self, values: dict[str, float], *, seq: int = 0) -> None:
        points = [MetricPoint(key, 1, value, 0) for key, value in values.items()]
        self.db.record(self.claim, seq=seq, points=points)

    def uses(self, *shares: float) -> None:
        devices = [
            {"uuid": f"gpu-{rank}", "utilization": share, "memory_used_bytes": 1} for rank, share in enumerate(shares)
        ]
        self.db.write(partial(device_history.add_samples, worker_id=self.worker, samples=[Sample(0.0, devices)]))

    def warnings(self) -> list[str]:
        events = [event.data for event in self.db.events(self.job_id) if event.type == "message"]
        return [str(data["text"]) for data in events if data["level"] == "warning"]


@pytest.fixture
def job(db: StoreFixture) -> Running:
    return Running(db)


@pytest.mark.parametrize(
    ("values", "used"),
    [
        (LAGS, (0.9, 0.9)),
        ({}, (0.05, 0.03)),
        ({DATA_WAIT: 0.6}, (0.2, 0.2)),
        ({DATA_WAIT: 0.6}, ()),
    ],
)
@quick_on_sqlite
def test_a_slow_job_is_warned_once(
    job: Running, store: Store, values: dict[str, float], used: tuple[float, ...], *, approved: Approved
) -> None:
    job.reports(values)
    job.uses(*used)
    for _ in range(3):
        Warnings(store).run()
    assert job.warnings() == [approved.of_row("warnings")]


@quick_on_sqlite
def test_each_cause_has_its_warning_and_another_attempt_repeats_none(job: Running, store: Store) -> None:
    job.reports({**LAGS, DATA_WAIT: 0.5})
    job.uses(0.1, 0.2)
    Warnings(store).run()
    assert len(job.warnings()) == 2
    job.db.end(job.claim, EndReason.USER_ERROR)
    job.claim = job.run()
    Warnings(store).run()
    assert len(job.warnings()) == 2


@pytest.mark.parametrize(
    ("values", "used"),
    [
        ({}, ()),
        ({}, (0.5, 0.4)),
        ({DATA_WAIT: 0.2, RANK_LAG: 0.1, SLOWEST_RANK: 0.0}, (0.9, 0.9)),
        ({DATA_WAIT: 0.6}, (0.9, 0.9)),
        ({RANK_LAG: 0.9, SLOWEST_RANK: 7.0}, ()),
        ({RANK_LAG: float("nan"), SLOWEST_RANK: float("inf"), DATA_WAIT: float("nan")}, ()),
        ({RANK_LAG: 1e300, SLOWEST_RANK: -1.0, DATA_WAIT: -5.0}, ()),
    ],
)
@quick_on_sqlite
def test_a_job_without_evidence_is_not_warned(
    job: Running, store: Store, values: dict[str, float], used: tuple[float, ...]
) -> None:
    job.reports(values)
    job.uses(*used)
    Warnings(store).run()
    assert job.warnings() == []


def test_a_job_that_has_just_begun_is_not_judged(job: Running, store: Store) -> None:
    job.reports(LAGS)
    job.age(minutes=-10)
    Warnings(store).run()
    assert job.warnings() == []


@quick_on_sqlite
def test_how_the_devices_were_used_by_others_counts_for_nobody(job: Running, store: Store) -> None:
    job.db.end(job.claim, EndReason.USER_ERROR)
    job.uses(0.0, 0.0)
    job.claim = job.run()
    Warnings(store).run()
    assert job.warnings() == []


def test_a_target_that_wants_warnings_is_told(job: Running, store: Store) -> None:
    target: dict[str, Any] = {"id": "ntf_1", "owner": "ada", "name": "hook", "kind": "webhook", "shown": "https://a"}
    target |= {"sealed": b"", "key_id": "", "kinds": f" {EventKind.JOB_WARNING} ", "jobs": "all", "scope": "own"}
    job.db.write(lambda session: session.add(NotificationTarget(**target)))
    job.reports(LAGS)
    Warnings(store).run()
    told = job.db.read(lambda session: session.scalars(select(Signal)).all())
    assert [(row.kind, row.subject) for row in told] == [(EventKind.JOB_WARNING, job.job_id)]


def test_two_controllers_warn_once(job: Running) -> None:
    store = store_on(job.db.database)
    warned = partial(sessions.write, store, warn, job.job_id, attempt=1, cause="slow_rank", text="a")
    assert sorted(run_together(*[warned] * 4), key=str) == [False, False, False, True]
    assert job.warnings() == ["a"]


def test_a_job_that_has_ended_meanwhile_is_not_warned(job: Running, store: Store) -> None:
    job.db.end(job.claim, EndReason.COMPLETED)
    assert not sessions.write(store, warn, job.job_id, attempt=1, cause="slow_rank", text="a")
    assert not sessions.write(store, warn, "job_gone", attempt=1, cause="slow_rank", text="a")
    assert job.db.read(lambda session: session.scalar(select(func.count()).select_from(Signal))) == 0
