"""The daemon's loop over a real store and a real Redis: what it claims, whom it rescues, what it survives."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
import threading
import time

import pytest
from sqlalchemy import insert

from store.announcement import Announcement
from store.blobs import Blobs
from store.db.database import Database
from store.db.tables import Garbage, Worker
from store.queue import Queue
from store.rows import attempts, deletion, workers
from store.rows.shapes import shape_of
from tests import servers
from tests.databases import unavailable
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import Attempt, wait_for
from tests.worker.test_devices import Binding
from torchyard.contract.job import JobState
from torchyard.contract.rundir import RunDir
from worker.attempts import wishes
from worker.cleanup import tidy
from worker.daemon import Daemon
from worker.devices.health import Health
from worker.devices.inventory import Device, Inventory, discover
from worker.engines.local.engine import LocalEngine
from worker.settings import Settings

FOREVER = "import time\nwhile True: time.sleep(1)"
LEASE_S = attempts.LEASE.total_seconds()


class Clock:
    """The daemon's clock, which a test sets forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Worksite:
    """A store and a Redis, on which daemons work in threads of this process."""

    folder: Path
    yard: StoreFixture
    queue: Queue
    redis_url: str

    def daemon(self, clock: Clock | None = None, *, inventory: Inventory | None = None) -> Daemon:
        settings = Settings(
            data_dir=self.folder / "worker",
            database_url=self.yard.database.engine.url.render_as_string(hide_password=False),
            redis_url=self.redis_url,
        )
        settings.root.mkdir(exist_ok=True)
        slots = tuple(Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(2))
        found = inventory or Inventory(slots)
        gpus = [device.uuid for device in found.devices if device.kind == "cuda"]
        engine, health = LocalEngine(settings.runs, found), Health(found.nvml, gpus)
        return Daemon(settings, engine, health=health, clock=clock or Clock())

    def submit(self) -> str:
        """A job that fails as soon as it is started, as its code is not there."""
        job_id = self.yard.submit()
        self.queue.announce(Announcement(priorities={job_id: 0}))
        self.queue.announce(Announcement(wakes_workers=True))
        return job_id

    def state(self, job_id: str) -> str:
        return self.yard.job(job_id).state

    def worker_of(self, daemon: Daemon) -> Worker:
        return self.yard.read(lambda session: workers.get(session, daemon.id))[0]

    def running(self, daemon: Daemon, *devices: str) -> tuple[attempts.Claim, Attempt]:
        """An attempt that `daemon` finds when it starts: its processes run under the stand-in for torchrun."""
        self.yard.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
        claim = self.yard.starting(self.yard.submit(), daemon.id, *devices)
        run = RunDir(self.folder / "worker" / "runs" / claim.job_id / "1")
        run.create()
        attempt = Attempt(run, claim.job_id, 1)
        attempt.start(FOREVER)
        return claim, attempt


@pytest.fixture
def site(tmp_path: Path, database: Database) -> Generator[Worksite]:
    with servers.redis_server(tmp_path) as url:
        queue = Queue(url)
        yield Worksite(tmp_path, StoreFixture(database), queue, url)
        queue.close()


@contextmanager
def serving(daemon: Daemon) -> Generator[None]:
    """The daemon works while the block runs, and then stops its jobs."""
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        yield
    finally:
        daemon.stop_jobs()
        thread.join(90)
        assert not [left.name for left in threading.enumerate() if left is thread or left.name.startswith("job_")]


def test_a_job_that_fits_starts_however_many_before_it_do_not(site: Worksite) -> None:
    gpus = [site.yard.submit(resources={"device": "cuda"}) for _ in range(1001)]
    for job_id in gpus:
        site.queue.announce(Announcement(priorities={job_id: 0}))
    fits = site.submit()
    with serving(site.daemon()):
        wait_for(lambda: site.state(fits) == JobState.FAILED, "the job that fits was started")
        # The reasons of those that wait are written at the end of the pass, when the one that fits may have ended.
        wait_for(lambda: site.yard.reason(gpus[-1]).code != "waiting", "the others have their reason")
    last = site.yard.reason(gpus[-1])
    assert (last.code, last.message) == ("no_such_device", "needs 1 GPU; no worker has any")


def test_a_job_that_only_a_newer_worker_understands_is_left_to_it(site: Worksite) -> None:
    future, known = site.submit(), site.submit()
    with site.yard.database.write() as session:
        job = site.yard.job(future)
        job.spec = job.spec | {"resources": job.spec["resources"] | {"planets": 2}}
        job.shape = shape_of(job.owner, job.spec["resources"])
        session.merge(job)
    with serving(site.daemon()):
        wait_for(lambda: site.state(known) == JobState.FAILED, "the other job was started")
    assert site.state(future) == JobState.QUEUED


def test_nobody_is_rescued_until_the_database_has_answered_for_a_lease(
    site: Worksite, caplog: pytest.LogCaptureFixture
) -> None:
    lost = site.yard.starting(site.yard.submit(), site.yard.worker("gone"))
    clock = Clock()
    with serving(site.daemon(clock)):
        _wait_for_a_sweep(site, clock)
        clock.ahead += LEASE_S + 1  # from now on it would rescue
        with unavailable(site.yard.database):
            clock.ahead += 11
            wait_for(lambda: "the database does not answer" in caplog.text, "the outage is noticed")
        site.yard.expire(lost)
        _wait_for_a_sweep(site, clock)
        assert site.yard.attempt(lost).ended_at is None
        clock.ahead += LEASE_S + 1
        wait_for(lambda: site.yard.attempt(lost).ended_at is not None, "the rescue")


def test_devices_are_not_given_away_while_a_rescued_attempt_still_runs_on_them(site: Worksite) -> None:
    daemon = site.daemon()
    claim, attempt = site.running(daemon, "cpu-0", "cpu-1")
    with serving(daemon):
        wait_for(lambda: site.yard.attempt(claim).launcher is not None, "the adoption")
        site.yard.expire(claim)
        assert site.yard.rescue(claim)
        site.yard.cancel(claim.job_id)
        following = site.submit()
        wait_for(lambda: site.yard.job(following).attempt, "the next job")
        assert attempt.left() == []


def test_a_cancel_reaches_a_running_job_while_redis_is_away(site: Worksite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "_EVERY_S", 3600.0)
    site.redis_url = "unix:///nowhere/redis.sock"
    daemon = site.daemon()
    claim, _ = site.running(daemon)
    with serving(daemon):
        wait_for(lambda: site.state(claim.job_id) == JobState.RUNNING, "the adoption")
        site.yard.cancel(claim.job_id)
        wait_for(lambda: site.state(claim.job_id) == JobState.CANCELLED, "the end")


def test_a_job_that_ruins_its_records_does_not_keep_its_worker_from_starting(site: Worksite) -> None:
    daemon = site.daemon()
    claim, attempt = site.running(daemon)
    wait_for(attempt.run.supervisor.exists, "the supervisor")
    stray = RunDir(attempt.run.root.parent / "7")
    stray.create()
    for run in (attempt.run, stray):
        run.exit.write_text("{")
    stray.supervisor.write_text("{")
    with serving(daemon):
        wait_for(lambda: site.yard.attempt(claim).launcher is not None, "the adoption")
        attempt.run.supervisor.write_text("{")
        seen = site.worker_of(daemon).seen_at
        wait_for(lambda: site.worker_of(daemon).seen_at > seen, "a heartbeat")
    assert site.state(claim.job_id) == JobState.QUEUED
    assert attempt.left() == []


def test_a_gpu_whose_memory_is_not_back_is_in_quarantine_until_it_is(site: Worksite) -> None:
    binding = Binding({"GPU-aaaa": []}, used=21 << 30)
    daemon = site.daemon(inventory=discover(nvml=binding, environ={}))
    claim, _ = site.running(daemon, "GPU-aaaa")
    with serving(daemon):
        wait_for(lambda: site.yard.attempt(claim).launcher is not None, "the adoption")
        site.yard.cancel(claim.job_id)
        site.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: site.state(claim.job_id) == JobState.CANCELLED, "the first job's end")
        second = site.submit()
        said = f"GPU 0 is in quarantine: 21.0 GiB are still in use after {claim.job_id} ended"
        wait_for(lambda: said in site.yard.reason(second).message, "its reason")
        wait_for(lambda: said in str(site.worker_of(daemon).devices[0]["blocked"]), "the worker shows it")
        assert site.state(second) == JobState.QUEUED
        binding.used = 1 << 29
        wait_for(lambda: site.state(second) == JobState.FAILED, "the second job's end")


def test_a_worker_that_drains_says_why_jobs_wait(site: Worksite) -> None:
    daemon = site.daemon()
    site.yard.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
    site.yard.drain(daemon.id)
    with serving(daemon):
        waits = site.submit()
        said = f"needs 1 device; {daemon.name} is draining"
        wait_for(lambda: site.yard.reason(waits).message == said, "its reason")
        assert site.yard.job(waits).attempt == 0
        site.yard.drain(daemon.id, drain=False)
        site.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: site.state(waits) == JobState.FAILED, "it was started")


def test_a_worker_whose_disk_is_full_takes_nothing_and_says_so(site: Worksite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.devices.watch.LEAST_FREE", 1 << 62)
    daemon = site.daemon()
    with serving(daemon):
        waits = site.submit()
        said = f"worker {daemon.name} has no room on its disk"
        wait_for(lambda: site.yard.reason(waits).message.endswith(f"; {said}"), "its reason")
        wait_for(lambda: site.worker_of(daemon).devices[0]["blocked"] == said, "the worker tells the others")
        assert site.yard.job(waits).attempt == 0
        monkeypatch.setattr("worker.devices.watch.LEAST_FREE", 1)
        site.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: site.state(waits) == JobState.FAILED, "it was started")


def _wait_for_a_sweep(site: Worksite, clock: Clock) -> None:
    """The sweep's last act is to take what does not wait out of the queue."""
    site.queue.announce(Announcement(priorities={"job_unknown": 0}))
    clock.ahead += 11
    wait_for(lambda: "job_unknown" not in site.queue.waiting(), "a sweep")


def test_what_a_deleted_job_left_on_the_hosts_disks_is_removed(site: Worksite) -> None:
    clock, site_data = Clock(), site.folder / "worker"
    blobs = Blobs(site_data / "blobs")
    with serving(site.daemon(clock)):
        deleted, kept = site.submit(), site.submit()
        wait_for(lambda: {site.state(deleted), site.state(kept)} == {JobState.FAILED}, "both jobs have ended")
        blob = blobs.add(BytesIO(b"state"))
        site.yard.write(lambda session: session.execute(insert(Garbage).values(sha256=blob.sha256)))
        assert (site_data / "runs" / deleted).exists()
        site.yard.write(lambda session: deletion.delete_job(session, deleted))
        with blobs.shared_lock():  # somebody is storing something
            clock.ahead += 11
            wait_for(lambda: not (site_data / "runs" / deleted).exists(), "the run directory is gone")
            assert blobs.path(blob.sha256).exists()

        def gone() -> bool:
            clock.ahead += 11
            return not blobs.path(blob.sha256).exists()

        wait_for(gone, "the blob is gone")
        assert (site_data / "runs" / kept).exists()


def test_a_run_directory_that_cannot_be_removed_keeps_nothing_else(
    site: Worksite, caplog: pytest.LogCaptureFixture
) -> None:
    runs = site.folder / "runs"
    stuck, free = site.yard.submit(), site.yard.submit()
    for job_id in (stuck, free):
        (runs / job_id / "1").mkdir(parents=True)
        site.yard.cancel(job_id)
        site.yard.write(lambda session, job_id=job_id: deletion.delete_job(session, job_id))
    (runs / "job_elsewhere").mkdir()
    elsewhere = site.folder / "elsewhere"
    (runs / stuck).rename(elsewhere)
    (runs / stuck).symlink_to(elsewhere)  # which is not followed
    tidy.remove_runs(runs, store_on(site.yard.database), go_on=lambda: False)
    assert (runs / free).exists()
    tidy.remove_runs(runs, store_on(site.yard.database), go_on=lambda: True)
    assert sorted(path.name for path in runs.iterdir()) == sorted(["job_elsewhere", stuck])
    assert (elsewhere / "1").exists()
    assert stuck in caplog.text
