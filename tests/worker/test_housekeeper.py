"""The housekeeper removes what the settings keep no longer, while jobs run."""

from collections.abc import Callable
import errno
from functools import partial
import os
from pathlib import Path
import threading
import time

import pytest

from store.cluster import device_history
from store.db.database import Database
from store.output import logs
from store.output.facts import NewLines
from store.worker.folders import HostFolders
from tests.databases import on_both, unavailable
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason, JobState
from worker.cleanup.housekeeper import Housekeeper
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.direct import DirectService, Duties
from worker.engines.local.engine import LocalEngine
from worker.rescue import Rescue
from worker.settings import Retention, Settings
from worker.troubles import Troubles

AT_ONCE = {"keep_logs": "0s", "keep_events": "0s", "keep_runs": "0s"}


class Clock:
    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture(autouse=True)
def passes_of_other_tests_have_ended() -> None:
    wait_for(lambda: not _thread_runs(), "the passes of other tests")


@pytest.fixture
def store(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def settings(tmp_path: Path, store: StoreFixture) -> Callable[..., Settings]:
    url = store.database.engine.url.render_as_string(hide_password=False)
    return partial(Settings, data_dir=tmp_path, database_url=url)


def ended(store: StoreFixture, runs: Path) -> str:
    claim = store.running(store.submit(), store.worker())
    RunDir(runs / claim.job_id / "1").create()
    store.record(claim, seq=0, lines=[NewLines(0, "stdout", ["hello"])])
    store.end(claim, EndReason.COMPLETED)
    return claim.job_id


def host_folders(store: StoreFixture) -> HostFolders:
    return HostFolders(store_on(store.database), "wrk_1")


def duties(store: StoreFixture, retention: Retention) -> Duties:
    return Duties(store_on(store.database), retention, Rescue(store_on(store.database), (), clock=Clock()))


def lines(store: StoreFixture, job_id: str) -> int:
    return len(store.read(lambda session: logs.list_after(session, job_id, line=0, limit=10).items))


def test_a_pass_removes_what_the_settings_keep_no_longer(
    store: StoreFixture, settings: Callable[..., Settings], tmp_path: Path
) -> None:
    job_id, clock = ended(store, tmp_path / "runs"), Clock()
    keeps_all = Housekeeper(
        tmp_path,
        host_folders(store),
        duties=duties(store, settings().retention),
        retention=settings().retention,
        in_use=lambda _: False,
        troubles=Troubles(),
        clock=clock,
    )
    keeps_nothing = Housekeeper(
        tmp_path,
        host_folders(store),
        duties=duties(store, settings(**AT_ONCE).retention),
        retention=settings(**AT_ONCE).retention,
        in_use=lambda _: False,
        troubles=Troubles(),
        clock=clock,
    )
    keeps_all.start_pass_if_due()
    keeps_all.stop(60)
    assert (lines(store, job_id), (tmp_path / "runs" / job_id / "1").exists()) == (1, True)
    keeps_nothing.start_pass_if_due()
    wait_for(lambda: not (tmp_path / "runs" / job_id).exists(), "the run directory to go")
    assert lines(store, job_id) == 0
    later = ended(store, tmp_path / "runs")
    keeps_nothing.start_pass_if_due()  # not due yet
    assert lines(store, later) == 1
    clock.ahead += 61
    wait_for(lambda: keeps_nothing.start_pass_if_due() or not (tmp_path / "runs" / later).exists(), "the next pass")
    keeps_nothing.stop(60)
    assert not _thread_runs()


@on_both
def test_a_pass_during_an_outage_of_the_database_is_repeated(
    store: StoreFixture, settings: Callable[..., Settings], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, clock = ended(store, tmp_path / "runs"), Clock()
    housekeeper = Housekeeper(
        tmp_path,
        host_folders(store),
        duties=duties(store, settings(**AT_ONCE).retention),
        retention=settings(**AT_ONCE).retention,
        in_use=lambda _: False,
        troubles=Troubles(),
        clock=clock,
    )
    with unavailable(store.database):
        housekeeper.start_pass_if_due()
        wait_for(lambda: "housekeeping continues later" in caplog.text or not _thread_runs(), "the end of the pass")
    assert "housekeeping failed" not in caplog.text
    clock.ahead += 61
    wait_for(lambda: housekeeper.start_pass_if_due() or not (tmp_path / "runs" / job_id).exists(), "the next pass")
    housekeeper.stop(60)


def test_a_pass_that_fails_is_told_until_one_succeeds(
    store: StoreFixture, settings: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, troubles = Clock(), Troubles()
    housekeeper = Housekeeper(
        tmp_path,
        host_folders(store),
        duties=duties(store, settings().retention),
        retention=settings().retention,
        in_use=lambda _: False,
        troubles=troubles,
        clock=clock,
    )

    def fail(_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(device_history, "delete_old", fail)
        for _ in range(3):
            housekeeper.start_pass_if_due()
            wait_for(lambda: not _thread_runs(), "the end of the pass")
            clock.ahead += 61
    (told,) = troubles.reports()
    assert (told.work, told.state) == ("the pass of the housekeeping", "failing")
    assert told.problem == "OSError: [Errno 5] Input/output error"
    housekeeper.start_pass_if_due()
    wait_for(lambda: not _thread_runs(), "the end of the pass")
    assert [one.state for one in troubles.reports()] == ["failed"]


def test_a_pass_that_hangs_makes_no_turn(
    store: StoreFixture, settings: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, hangs, goes_on = Clock(), threading.Event(), threading.Event()
    housekeeper = Housekeeper(
        tmp_path,
        host_folders(store),
        duties=duties(store, settings().retention),
        retention=settings().retention,
        in_use=lambda _: False,
        troubles=Troubles(),
        clock=clock,
    )

    def hang(_: object) -> None:
        hangs.set()
        goes_on.wait(60)

    monkeypatch.setattr(device_history, "delete_old", hang)
    housekeeper.start_pass_if_due()
    assert hangs.wait(60)
    before = housekeeper.turns.count
    clock.ahead += 61
    housekeeper.start_pass_if_due()
    assert housekeeper.turns.count == before
    goes_on.set()
    wait_for(lambda: not _thread_runs(), "the end of the pass")
    housekeeper.start_pass_if_due()
    assert housekeeper.turns.count > before
    housekeeper.stop(60)


def test_a_worker_runs_its_housekeeper(
    store: StoreFixture, settings: Callable[..., Settings], tmp_path: Path, redis_url: str
) -> None:
    clock = Clock()
    slots = tuple(Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(2))
    configured = settings(redis_url=redis_url, **AT_ONCE)
    engine = LocalEngine(configured.runs, Inventory(slots))
    daemon = Daemon(configured, engine, DirectService.of(configured), clock=clock)
    serving = threading.Thread(target=daemon.serve)
    serving.start()
    try:
        job_id = store.submit()  # its code does not exist
        wait_for(lambda: store.job(job_id).state == JobState.FAILED, "the end of the job")
        clock.ahead += 61
        wait_for(lambda: not (tmp_path / "runs" / job_id).exists(), "the run directory to go")
    finally:
        daemon.leave()
        serving.join(60)
    assert not serving.is_alive()
    assert not _thread_runs()


def _thread_runs() -> bool:
    return any(thread.name == "housekeeping" for thread in threading.enumerate())
