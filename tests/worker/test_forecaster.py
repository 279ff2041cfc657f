"""Estimates are made in small steps by the worker that holds the lease, whatever ends it in between."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
import os
import signal
import sys

import pytest
from sqlalchemy import delete, func, select, update

from scheduling.replay import Reached
from scheduling.snapshot import Snapshot
from store.attempts.facts import Claim
from store.db.database import Database
from store.queue.announcing import Queue
from store.tables import Calibration, Estimate, Forecast, ForecastLease
from tests import forks
from tests.databases import on_both, unavailable
from tests.store.fixture import StoreFixture, a_service, store_on
from tests.worker.schedulers import SchedulerFixture, SchedulersFixture, slot
from torchyard.contract.cluster.devices import DeviceReport
from worker.placement import forecaster
from worker.placement.forecaster import Forecaster

REPLAYING = 4
"""So many steps, and a replay has begun."""

forks.preload("tests.worker.test_forecaster")


class Clock:
    """Stands still unless a test sets it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Making:
    """The forecaster of one worker. None of its steps takes any time."""

    def __init__(self, database: Database, worker_id: str, devices: Sequence[DeviceReport]) -> None:
        self.clock = Clock()
        self.worker_id = worker_id
        self.slice_costs_s = 0.0
        """Processor time, as it is told."""
        self._spent_s = 0.0
        self.forecaster = Forecaster(
            store_on(database, queue=Queue("unix:///nowhere/redis.sock", service=a_service)),
            worker_id=worker_id,
            observe=lambda: devices,
            clock=self.clock,
            processor=self._processor,
        )

    def _processor(self) -> float:
        self._spent_s += self.slice_costs_s
        return self._spent_s

    def steps(self, most: int = sys.maxsize) -> int:
        """Takes so many steps, or all until it pauses. Returns how many those were."""
        taken = 0

        def may_go_on() -> bool:
            nonlocal taken
            if taken == most:
                return False
            taken += 1
            return True

        while taken < most and self.forecaster.due_in() == 0:
            self.forecaster.work(may_go_on)
        return taken

    def later(self) -> int:
        """Does all that is due a minute later. Returns how many steps that were."""
        self.clock.now += 60.0
        return self.steps()


@dataclass(frozen=True)
class Scene:
    """A worker with two slots, on one of which a job runs, and one without any. Two jobs wait for two slots."""

    store: StoreFixture
    busy: SchedulerFixture
    running: Claim
    jobs: list[str]
    making: Making
    """Of the worker with the slots."""
    other: Making

    @property
    def estimated(self) -> dict[str, int]:
        """Returns when each job is expected to start."""
        query = select(Estimate.job_id, func.coalesce(Estimate.expected, 0))
        return self.store.read(lambda session: {row[0]: row[1] for row in session.execute(query)})

    @property
    def lease(self) -> ForecastLease:
        return self.store.read(lambda session: session.get_one(ForecastLease, 1))

    @property
    def scored(self) -> tuple[int, int]:
        """Returns how many forecasts were scored, by the count and by the rows."""
        counted = select(func.coalesce(func.sum(Calibration.scored), 0))
        rows = select(func.count()).select_from(Forecast).where(Forecast.scored_at.is_not(None))
        return self.store.read(lambda session: (session.scalar(counted) or 0, session.scalar(rows) or 0))

    def change_lease(self, **values: object) -> None:
        self.store.write(lambda session: session.execute(update(ForecastLease).values(values)))


@pytest.fixture
def scene(database: Database, schedulers: SchedulersFixture) -> Scene:
    busy = schedulers.scheduler("busy", slot(0), slot(1))
    running = busy.start_job("cpu-0", time_limit="23h")  # the default says nothing
    jobs = [schedulers.submit(2, time_limit="23h") for _ in range(2)]
    making = Making(database, busy.id, busy.devices)
    other = Making(database, schedulers.scheduler("other").id, ())
    return Scene(schedulers.store, busy, running, jobs, making, other)


@on_both
def test_waiting_jobs_are_estimated_and_each_is_scored_once_when_it_has_started(scene: Scene) -> None:
    first, second = scene.jobs
    scene.making.steps()
    expected = scene.estimated
    assert expected.keys() == {first, second}
    assert expected[first] < expected[second]
    ends = scene.running
    for number, job_id in enumerate(scene.jobs, 1):
        scene.store.complete(ends)
        scene.busy.run_pass()
        ends = scene.busy.claims[job_id]
        scene.making.later()
        assert scene.scored == (number, number)
        assert scene.estimated.keys() == {*scene.jobs[number:]}
    scene.making.later()
    assert scene.scored == (2, 2)


def test_only_the_holder_of_the_lease_replays_until_it_leaves(scene: Scene) -> None:
    scene.making.steps()
    assert scene.other.steps() == 1, "it looks at the lease"
    scene.making.forecaster.leave()
    scene.store.cancel(scene.jobs[0])
    scene.other.later()
    assert (scene.lease.holder, scene.lease.token) == (scene.other.worker_id, 2)
    assert scene.estimated.keys() == {scene.jobs[1]}


@pytest.mark.parametrize("part", [0.3, *(pytest.param(part, marks=pytest.mark.thorough) for part in (0.0, 0.7, 1.0))])
def test_when_the_holder_is_killed_nothing_is_half_written_and_another_worker_goes_on(
    scene: Scene, part: float
) -> None:
    steps = Making(scene.store.database, scene.making.worker_id, scene.busy.devices).steps()
    scene.store.write(lambda session: [session.execute(delete(table)) for table in (Estimate, Forecast, ForecastLease)])
    url = scene.store.database.engine.url.render_as_string(hide_password=False)
    child = forks.context.Process(
        target=_die_after, args=(1 + int(part * (steps - 1)), url, scene.making.worker_id, scene.busy.devices)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert scene.lease.holder == scene.making.worker_id
    assert scene.estimated.keys() == ({*scene.jobs} if part == 1.0 else set())
    scene.other.steps()
    assert scene.lease.token == 1, "the lease of the dead one has not expired yet"
    scene.change_lease(until=0)
    scene.other.later()
    assert (scene.lease.holder, scene.lease.token) == (scene.other.worker_id, 2)
    assert scene.estimated.keys() == {*scene.jobs}


def _die_after(steps: int, url: str, worker_id: str, devices: Sequence[DeviceReport]) -> None:
    Making(Database(url), worker_id, devices).steps(steps)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("lost", [{"holder": "wrk_other", "token": 2}, {"until": 0}], ids=["taken", "expired"])
def test_a_replay_whose_lease_is_lost_is_thrown_away(scene: Scene, lost: dict[str, object]) -> None:
    scene.making.steps(REPLAYING)
    scene.change_lease(**lost)
    scene.making.steps()
    assert scene.estimated == {}
    scene.change_lease(until=0)
    scene.making.later()
    assert scene.estimated.keys() == {*scene.jobs}


def test_a_replay_goes_on_after_the_clock_has_jumped_by_a_day(scene: Scene) -> None:
    scene.making.steps(REPLAYING)
    scene.making.clock.now += 86_400.0
    scene.making.steps()
    assert scene.estimated.keys() == {*scene.jobs}


@on_both
def test_estimates_are_made_later_when_the_database_is_away(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.making.steps(1)
    with unavailable(scene.store.database):
        scene.making.steps()
        scene.making.later()
        assert "the database does not answer" in caplog.text
    assert scene.estimated == {}
    scene.making.later()
    assert scene.estimated.keys() == {*scene.jobs}


def test_of_a_replay_that_takes_too_long_the_jobs_are_estimated_that_it_has_come_to(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(snapshot: Snapshot) -> Generator[Reached]:
        while True:
            yield Reached(snapshot.now, {scene.jobs[0]: snapshot.now})

    monkeypatch.setattr(forecaster, "replay", endless)
    scene.making.slice_costs_s = 1.0
    for _ in range(30):
        scene.making.steps(1)
    scene.making.steps()
    assert scene.estimated.keys() == {scene.jobs[0]}


def test_a_failure_of_the_replay_is_told_and_does_no_harm(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(forecaster, "replay", _fail)
        scene.making.steps()
        assert "ZeroDivisionError" in caplog.text
        assert scene.making.later() == 0, "it rests for longer"
    while not scene.estimated:
        scene.making.later()


def _fail(snapshot: Snapshot) -> None:
    raise ZeroDivisionError
