"""A worker keeps house as it is set to, beside its jobs, and holds nobody up."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
import threading
import time

import pytest

from store.db.database import Database
from store.rows import logs
from store.rows.logs import NewLines
from tests.databases import on_both, unavailable
from tests.servers import redis_server
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.rundir import RunDir
from worker.cleanup.housekeeper import Housekeeper
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.engines.local.engine import LocalEngine
from worker.settings import Settings

AT_ONCE = {"keep_logs": "0s", "keep_events": "0s", "keep_runs": "0s"}


class Clock:
    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def yard(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def settings(tmp_path: Path, yard: StoreFixture) -> Callable[..., Settings]:
    url = yard.database.engine.url.render_as_string(hide_password=False)
    return partial(Settings, data_dir=tmp_path, database_url=url)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as url:
        yield url


def ended(yard: StoreFixture, runs: Path) -> str:
    claim = yard.running(yard.submit(), yard.worker())
    RunDir(runs / claim.job_id / "1").create()
    yard.record(claim, seq=0, lines=[NewLines(0, "stdout", ["hello"])])
    yard.end(claim, EndReason.COMPLETED)
    return claim.job_id


def lines(yard: StoreFixture, job_id: str) -> int:
    return len(yard.read(lambda session: logs.after(session, job_id, line=0, limit=10)))


def test_a_pass_removes_what_the_settings_keep_no_longer(
    yard: StoreFixture, settings: Callable[..., Settings], tmp_path: Path
) -> None:
    job_id, clock = ended(yard, tmp_path / "runs"), Clock()
    patient = Housekeeper(settings(), store_on(yard.database), in_use=lambda _: False, clock=clock)
    hasty = Housekeeper(settings(**AT_ONCE), store_on(yard.database), in_use=lambda _: False, clock=clock)
    patient.nudge()
    patient.stop(60)
    assert (lines(yard, job_id), (tmp_path / "runs" / job_id / "1").exists()) == (1, True)
    hasty.nudge()
    wait_for(lambda: not (tmp_path / "runs" / job_id).exists(), "the run directory to go")
    assert lines(yard, job_id) == 0
    later = ended(yard, tmp_path / "runs")
    hasty.nudge()  # not due yet
    assert lines(yard, later) == 1
    clock.ahead += 61
    wait_for(lambda: hasty.nudge() or not (tmp_path / "runs" / later).exists(), "the next pass")
    hasty.stop(60)
    assert not _at_work()


@on_both
def test_a_pass_that_meets_no_database_is_made_up_for(
    yard: StoreFixture, settings: Callable[..., Settings], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, clock = ended(yard, tmp_path / "runs"), Clock()
    keeper = Housekeeper(settings(**AT_ONCE), store_on(yard.database), in_use=lambda _: False, clock=clock)
    with unavailable(yard.database):
        keeper.nudge()
        wait_for(lambda: "housekeeping goes on later" in caplog.text or not _at_work(), "the end of the pass")
    assert "housekeeping was broken off" not in caplog.text
    clock.ahead += 61
    wait_for(lambda: keeper.nudge() or not (tmp_path / "runs" / job_id).exists(), "the next pass")
    keeper.stop(60)


def test_a_worker_keeps_house_as_it_is_set_to(
    yard: StoreFixture, settings: Callable[..., Settings], tmp_path: Path, redis_url: str
) -> None:
    clock = Clock()
    slots = tuple(Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(2))
    configured = settings(redis_url=redis_url, **AT_ONCE)
    daemon = Daemon(configured, LocalEngine(configured.runs, Inventory(slots)), clock=clock)
    serving = threading.Thread(target=daemon.serve)
    serving.start()
    try:
        job_id = yard.submit()  # its code is not there
        wait_for(lambda: yard.job(job_id).state == JobState.FAILED, "the end of the job")
        clock.ahead += 61
        wait_for(lambda: not (tmp_path / "runs" / job_id).exists(), "the run directory to go")
    finally:
        daemon.leave()
        serving.join(60)
    assert not serving.is_alive()
    assert not _at_work()


def _at_work() -> bool:
    return any(thread.name == "housekeeping" for thread in threading.enumerate())
