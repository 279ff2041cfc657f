"""The daemon's loop over a real store and a real Redis: claims, rescues, outages."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import functools
from io import BytesIO
import os
from pathlib import Path
import threading
import time

import pytest
from sqlalchemy import insert, select

from store.announcement import Announcement
from store.attempts.facts import LEASE, Claim
from store.blobs.folder import BlobFolder
from store.blobs.holding import all_held
from store.cluster import device_history, workers
from store.db.database import Database
from store.jobs import deletion
from store.jobs.shapes import shape_of
from store.queue.announcing import Queue
from store.tables import Garbage, Job, Worker
from store.worker.folders import HostFolders
from tests import line
from tests.approved import Approved
from tests.databases import unavailable
from tests.leftovers import leave_everything
from tests.store.fixture import StoreFixture, service_of, store_on
from tests.worker.attempt import Attempt, wait_for
from tests.worker.test_devices import FakeNvml
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import JobState
from worker.attempts import intents
from worker.cleanup import removal
from worker.daemon import Daemon
from worker.devices.health import Health
from worker.devices.inventory import Device, Inventory, discover
from worker.direct import DirectService
from worker.engines.base import StrayMemory
from worker.engines.local.engine import LocalEngine
from worker.engines.local.warm.manager import WarmProcess
from worker.settings import Settings

FOREVER = "import time\nwhile True: time.sleep(1)"
LEASE_S = LEASE.total_seconds()
HEARTBEAT_S = 6


class Clock:
    """The daemon's clock, which a test can set forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class DaemonFixture:
    """A store and a Redis, for daemons in threads of this process."""

    folder: Path
    store: StoreFixture
    queue: Queue
    redis_url: str
    warm: Callable[[], WarmProcess]

    def daemon(
        self, clock: Clock | None = None, *, inventory: Inventory | None = None, folder: str = "worker"
    ) -> Daemon:
        settings = Settings(
            data_dir=self.folder / folder,
            database_url=self.store.database.engine.url.render_as_string(hide_password=False),
            redis_url=self.redis_url,
        )
        settings.root.mkdir(exist_ok=True)
        if folder != "worker":  # the workers of a service share its blobs
            (self.folder / "worker" / "blobs").mkdir(exist_ok=True)
            settings.blobs.symlink_to(self.folder / "worker" / "blobs")
        slots = tuple(Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(2))
        found = inventory or Inventory(slots)
        gpus = [device.uuid for device in found.devices if device.kind == "cuda"]
        engine, health = LocalEngine(settings.runs, found), Health(found.nvml, gpus)
        return Daemon(
            settings, engine, DirectService.of(settings), health=health, lacking=found.lacking, clock=clock or Clock()
        )

    def submit(self) -> str:
        """Submits a job that fails as soon as it is started, as its code does not exist."""
        job_id = self.store.submit()
        self.queue.announce(line.told(self.store.job(job_id)))
        self.queue.announce(Announcement(wakes_workers=True))
        return job_id

    def state(self, job_id: str) -> str:
        return self.store.job(job_id).state

    def worker_of(self, daemon: Daemon) -> Worker:
        return self.store.read(lambda session: workers.require(session, daemon.id))[0]

    def running(self, daemon: Daemon, *devices: str) -> tuple[Claim, Attempt]:
        """Starts an attempt as forks of the warm process. `daemon` finds it when it starts."""
        self.store.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
        job_id = self.store.submit(time_limit="23h")  # the default says nothing of how long it runs
        claim = self.store.starting(job_id, daemon.id, *devices)
        run = RunDir(self.folder / "worker" / "runs" / claim.job_id / "1")
        run.create()
        started_at = self.store.attempt(claim).started_at
        attempt = Attempt(run, claim.job_id, 1, warm=self.warm(), launcher="warm", claimed_at=started_at)
        attempt.start(FOREVER)
        return claim, attempt


@pytest.fixture
def fixture(
    tmp_path: Path, database: Database, redis_url: str, request: pytest.FixtureRequest
) -> Generator[DaemonFixture]:
    queue = Queue(redis_url, service=service_of(database))
    warm = functools.partial(request.getfixturevalue, "warm_process")  # many tests start no attempt
    yield DaemonFixture(tmp_path, StoreFixture(database), queue, redis_url, warm)
    queue.close()


@contextmanager
def serving(daemon: Daemon) -> Generator[None]:
    """Runs the daemon during the block, and then has it stop its jobs."""
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        yield
    finally:
        daemon.stop_jobs()
        thread.join(90)
        ours = ("job_", "the reading of ")
        assert not [left.name for left in threading.enumerate() if left is thread or left.name.startswith(ours)]


def advance_until(clock: Clock, condition: Callable[[], object], what: str, *, by_s: float = 2.5) -> None:
    """Has duties become due again and again until `condition` holds."""

    def holds() -> bool:
        clock.ahead += by_s
        return bool(condition())

    wait_for(holds, what)


@pytest.mark.thorough
def test_a_job_that_fits_starts_behind_many_that_do_not(fixture: DaemonFixture, approved: Approved) -> None:
    gpus = fixture.store.submit_many(1001, resources={"device": "cuda"})
    rows = fixture.store.read(lambda session: session.scalars(select(Job).where(Job.id.in_(gpus))).all())
    fixture.queue.announce(line.told(*rows))
    fits = fixture.submit()
    with serving(fixture.daemon()):
        wait_for(lambda: fixture.state(fits) == JobState.FAILED, "the job that fits was started")
        # The reasons are written at the end of the pass: the job that fits may have ended by then.
        wait_for(lambda: fixture.store.reason(gpus[-1]).code != "waiting", "the others have their reason")
    last = fixture.store.reason(gpus[-1])
    assert (last.code, last.message) == ("no_such_device", approved("message"))


def test_a_job_that_only_a_newer_worker_understands_stays_queued(fixture: DaemonFixture) -> None:
    future, known = fixture.submit(), fixture.submit()
    with fixture.store.database.write() as session:
        job = fixture.store.job(future)
        job.spec = job.spec | {"resources": job.spec["resources"] | {"planets": 2}}
        job.shape = shape_of(job.owner, job.spec)
        session.merge(job)
    with serving(fixture.daemon()):
        wait_for(lambda: fixture.state(known) == JobState.FAILED, "the other job was started")
    assert fixture.state(future) == JobState.QUEUED


@pytest.mark.thorough
def test_two_workers_of_a_host_have_different_names_and_share_its_cpus(fixture: DaemonFixture) -> None:
    clock = Clock()
    first, second = fixture.daemon(clock), fixture.daemon(clock, folder="second")
    with serving(first):
        wait_for(lambda: _slots(fixture, first) == {"cpu-0", "cpu-1"}, "one worker has all slots")
        with serving(second):
            wait_for(lambda: second.name == f"{first.name}-2", "the second worker has a name of its own")
            clock.ahead += HEARTBEAT_S
            wait_for(lambda: len(_slots(fixture, first)) == 1, "the first worker gives slots up")
            wait_for(lambda: _slots(fixture, first) ^ _slots(fixture, second) == {"cpu-0", "cpu-1"}, "each has its own")


def _slots(fixture: DaemonFixture, daemon: Daemon) -> set[str]:
    known = fixture.store.read(workers.list_all)
    return {view["uuid"] for worker, _ in known if worker.id == daemon.id for view in worker.devices}


def test_nothing_is_rescued_until_the_database_has_answered_for_a_lease(
    fixture: DaemonFixture, caplog: pytest.LogCaptureFixture
) -> None:
    lost = fixture.store.starting(fixture.store.submit(), fixture.store.worker("gone"))
    clock = Clock()
    with serving(fixture.daemon(clock)):
        _wait_for_a_sweep(fixture, clock)
        clock.ahead += LEASE_S + 1  # from now on, it rescues
        with unavailable(fixture.store.database):
            clock.ahead += 11
            wait_for(lambda: "the database does not answer" in caplog.text, "the outage is noticed")
        fixture.store.expire(lost)
        _wait_for_a_sweep(fixture, clock)
        assert fixture.store.attempt(lost).ended_at is None
        # A connection that was opened before the outage may fail once more after it.
        advance_until(clock, lambda: fixture.store.attempt(lost).ended_at is not None, "the rescue", by_s=LEASE_S + 1)


def test_devices_are_not_assigned_while_a_rescued_attempt_still_runs_on_them(fixture: DaemonFixture) -> None:
    daemon = fixture.daemon()
    claim, attempt = fixture.running(daemon, "cpu-0", "cpu-1")
    with serving(daemon):
        wait_for(lambda: fixture.store.attempt(claim).launcher is not None, "the adoption")
        fixture.store.expire(claim)
        assert fixture.store.rescue(claim)
        fixture.store.cancel(claim.job_id)
        following = fixture.submit()
        wait_for(lambda: fixture.store.job(following).attempt, "the next job")
        assert attempt.running_processes() == []


def test_a_cancel_reaches_a_running_job_while_redis_is_down(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "READ_EVERY_S", 3600.0)
    fixture.redis_url = "unix:///nowhere/redis.sock"
    daemon = fixture.daemon()
    claim, _ = fixture.running(daemon)
    with serving(daemon):
        wait_for(lambda: fixture.state(claim.job_id) == JobState.RUNNING, "the adoption")
        fixture.store.cancel(claim.job_id)
        wait_for(lambda: fixture.state(claim.job_id) == JobState.CANCELLED, "the end")


@pytest.mark.thorough
def test_unreadable_records_of_a_job_do_not_prevent_the_start_of_the_worker(fixture: DaemonFixture) -> None:
    daemon = fixture.daemon()
    claim, attempt = fixture.running(daemon)
    wait_for(attempt.run.supervisor.exists, "the supervisor")
    leftover = RunDir(attempt.run.root.parent / "7")
    leftover.create()
    for run in (attempt.run, leftover):
        run.exit.write_text("{")
    leftover.supervisor.write_text("{")
    with serving(daemon):
        wait_for(lambda: fixture.store.attempt(claim).launcher is not None, "the adoption")
        attempt.run.supervisor.write_text("{")
        seen = fixture.worker_of(daemon).seen_at
        wait_for(lambda: fixture.worker_of(daemon).seen_at > seen, "a heartbeat")
    assert fixture.state(claim.job_id) == JobState.QUEUED
    assert attempt.running_processes() == []


@pytest.mark.thorough
def test_a_cpu_slot_reports_what_its_job_uses(fixture: DaemonFixture) -> None:
    clock = Clock()
    daemon = fixture.daemon(clock)
    claim, _ = fixture.running(daemon, "cpu-1")
    with serving(daemon):
        wait_for(lambda: fixture.store.attempt(claim).launcher is not None, "the adoption")
        for _ in range(2):
            seen = fixture.worker_of(daemon).seen_at
            clock.ahead += 6
            wait_for(lambda seen=seen: fixture.worker_of(daemon).seen_at > seen, "a heartbeat")
        free, held = fixture.worker_of(daemon).devices
        assert free["utilization"] is None
        assert 0 <= held["utilization"] <= 1
        history = fixture.store.read(
            lambda session: device_history.read(session, daemon.id, begins=None, ends=None, most=10)
        )
        assert any(use.job_id == claim.job_id for slot in history.slots.values() for use in slot.values())
        fixture.store.cancel(claim.job_id)
        wait_for(lambda: fixture.state(claim.job_id) == JobState.CANCELLED, "the end of the job")


@pytest.mark.thorough
def test_a_gpu_is_in_quarantine_until_its_memory_was_released(fixture: DaemonFixture) -> None:
    nvml = FakeNvml({"GPU-aaaa": []}, used=21 << 30)
    daemon = fixture.daemon(inventory=discover(nvml=nvml, environ={}))
    claim, _ = fixture.running(daemon, "GPU-aaaa")
    with serving(daemon):
        wait_for(lambda: fixture.store.attempt(claim).launcher is not None, "the adoption")
        fixture.store.cancel(claim.job_id)
        fixture.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: fixture.state(claim.job_id) == JobState.CANCELLED, "the first job's end")
        second = fixture.submit()
        expected = f"GPU 0 is in quarantine: 21.0 GiB are still in use after {claim.job_id} ended"
        wait_for(lambda: expected in fixture.store.reason(second).message, "its reason")
        wait_for(lambda: expected in str(fixture.worker_of(daemon).devices[0]["blocked"]), "the worker shows it")
        assert fixture.state(second) == JobState.QUEUED
        nvml.used = 1 << 29
        wait_for(lambda: fixture.state(second) == JobState.FAILED, "the second job's end")


def test_the_observation_finds_what_a_rank_holds_on_the_gpu_of_another(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stray_memory(*_: object) -> list[StrayMemory]:
        return [StrayMemory(1, 0, 512 << 20)]

    monkeypatch.setattr(LocalEngine, "stray_memory", stray_memory)
    clock = Clock()
    daemon = fixture.daemon(clock)
    claim, _ = fixture.running(daemon, "cpu-0")

    def told() -> bool:
        events = fixture.store.events(claim.job_id)
        return any("rank 1 holds 0.5 GiB" in str(event.data.get("text")) for event in events)

    with serving(daemon):
        advance_until(clock, told, "the warning")


def test_a_draining_worker_records_why_jobs_wait(fixture: DaemonFixture) -> None:
    daemon = fixture.daemon()
    fixture.store.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
    fixture.store.drain(daemon.id)
    with serving(daemon):
        waits = fixture.submit()
        expected = f"needs 1 device; {daemon.name} is draining"
        wait_for(lambda: fixture.store.reason(waits).message == expected, "its reason")
        assert fixture.store.job(waits).attempt == 0
        fixture.store.drain(daemon.id, drain=False)
        fixture.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: fixture.state(waits) == JobState.FAILED, "it was started")


def test_a_worker_with_a_full_disk_takes_no_jobs_and_reports_it(
    fixture: DaemonFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.monitor.MIN_FREE_BYTES", 1 << 62)
    clock = Clock()
    daemon = fixture.daemon(clock)
    with serving(daemon):
        waits = fixture.submit()
        expected = f"worker {daemon.name} has no free disk space"
        wait_for(lambda: fixture.store.reason(waits).message.endswith(f"; {expected}"), "its reason")
        advance_until(
            clock, lambda: fixture.worker_of(daemon).devices[0]["blocked"] == expected, "the worker reports it"
        )
        assert fixture.store.job(waits).attempt == 0
        monkeypatch.setattr("worker.monitor.MIN_FREE_BYTES", 1)
        fixture.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: fixture.state(waits) == JobState.FAILED, "it was started")


def _wait_for_a_sweep(fixture: DaemonFixture, clock: Clock) -> None:
    """A sweep removes from the line what does not wait."""
    fixture.queue.announce(line.queued("job_unknown"))
    clock.ahead += 11
    wait_for(lambda: "job_unknown" not in line.waiting(fixture.queue), "a sweep")


@pytest.mark.usefixtures("removed_afterwards")
def test_the_files_of_a_deleted_job_are_removed_from_the_host(fixture: DaemonFixture) -> None:
    clock, data = Clock(), fixture.folder / "worker"
    blobs = BlobFolder(data / "blobs")
    with serving(fixture.daemon(clock)):
        deleted, kept = fixture.submit(), fixture.submit()
        wait_for(lambda: {fixture.state(deleted), fixture.state(kept)} == {JobState.FAILED}, "both jobs have ended")
        blob = blobs.add(BytesIO(b"state"))
        fixture.store.write(lambda session: session.execute(insert(Garbage).values(sha256=blob.sha256)))
        leave_everything(data / "runs" / deleted / "1" / "job" / "work", outside=data / "outside")
        (data / "runs" / os.fsdecode(b"job_\xff")).mkdir()  # the database cannot be asked for it
        fixture.store.write(lambda session: deletion.delete_job(session, deleted))
        with all_held(fixture.store.database):  # all blobs are being copied
            clock.ahead += 11
            wait_for(lambda: not (data / "runs" / deleted).exists(), "the run directory is gone")
            assert blobs.path(blob.sha256).exists()
        assert (data / "outside" / "kept").exists()

        def gone() -> bool:
            clock.ahead += 11
            return not blobs.path(blob.sha256).exists()

        wait_for(gone, "the blob is gone")
        assert (data / "runs" / kept).exists()


def test_a_run_directory_that_cannot_be_removed_does_not_prevent_other_removals(
    fixture: DaemonFixture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = fixture.folder / "runs"
    stuck, free = fixture.store.submit(), fixture.store.submit()
    for job_id in (stuck, free):
        (runs / job_id / "1").mkdir(parents=True)
        fixture.store.cancel(job_id)
        fixture.store.write(lambda session, job_id=job_id: deletion.delete_job(session, job_id))
    (runs / "job_elsewhere").mkdir()
    remove = removal.remove_inside

    def remove_free(root: Path, name: str, *, may_continue: Callable[[], bool]) -> bool:
        return name != stuck and remove(root, name, may_continue=may_continue)

    monkeypatch.setattr(removal, "remove_inside", remove_free)
    removal.remove_deleted_runs(runs, HostFolders(store_on(fixture.store.database), ""), may_continue=lambda: False)
    assert (runs / free).exists()
    removal.remove_deleted_runs(runs, HostFolders(store_on(fixture.store.database), ""), may_continue=lambda: True)
    assert sorted(path.name for path in runs.iterdir()) == sorted(["job_elsewhere", stuck])
    assert stuck in caplog.text


def test_a_deleted_job_that_left_much_does_not_hold_up_others(fixture: DaemonFixture) -> None:
    runs = fixture.folder / "runs"
    large, small = sorted(fixture.store.submit() for _ in range(2))
    for job_id, count in ((large, 1000), (small, 1)):
        (runs / job_id / "1").mkdir(parents=True)
        for number in range(count):
            (runs / job_id / "1" / str(number)).touch()
        fixture.store.cancel(job_id)
        fixture.store.write(lambda session, job_id=job_id: deletion.delete_job(session, job_id))
    asked, last = HostFolders(store_on(fixture.store.database), ""), ""
    for steps in (iter(range(200)), iter(range(200))):
        last = removal.remove_deleted_runs(
            runs, asked, after=last, may_continue=lambda left=steps: any(True for _ in left)
        )
    assert not (runs / small).exists()
    assert (runs / large).exists()
    removal.remove_deleted_runs(runs, asked, after=last, may_continue=lambda: True)
    assert not (runs / large).exists()


@pytest.mark.thorough
def test_what_a_pass_with_claims_has_left_is_done_although_nothing_happens_then(fixture: DaemonFixture) -> None:
    daemon = fixture.daemon()
    fixture.running(daemon, "cpu-0")
    fixture.running(daemon, "cpu-1")
    waits = fixture.submit()
    with serving(daemon):
        wait_for(lambda: fixture.store.reason(waits).code == "reserved", "its reason")
