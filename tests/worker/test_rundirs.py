"""Of the run directories of a host, those that are kept no longer go, and the orphans; nothing that is in use does."""

from datetime import timedelta
import logging
import os
from pathlib import Path
import subprocess
import sys
import time

import pytest
from sqlalchemy import delete, update

from store.db.database import Database, in_us, now_us
from store.db.tables import Attempt, DeletedJob
from store.ids import new_id
from store.rows import deletion
from store.rows.attempts import Claim
from tests.databases import on_both
from tests.store.fixture import StoreFixture, run_together
from tests.worker.attempt import wait_for
from torchyard.contract.job import EndReason
from torchyard.contract.rundir import Env, RunDir
from worker.cleanup import rundirs
from worker.cleanup.rundirs import RunDirs
from worker.engines.base import AttemptKey
from worker.engines.local import process

MIB = 1 << 20
NOW = timedelta()
DAY = timedelta(days=1)


class Host:
    def __init__(self, folder: Path, database: Database) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.yard = StoreFixture(database)
        self.worker = self.yard.worker()
        self.in_hand: set[tuple[str, int]] = set()

    def sweep(self, *, keep: timedelta | None = None, keep_bytes: int | None = None, orphans: timedelta = DAY) -> None:
        for _ in self.dirs(keep=keep, keep_bytes=keep_bytes).sweep(orphan_age=orphans):
            pass

    def dirs(self, *, keep: timedelta | None = None, keep_bytes: int | None = None) -> RunDirs:
        def in_use(key: AttemptKey) -> bool:
            return (key.job_id, key.number) in self.in_hand or bool(process.find(key.job_id, key.number))

        return RunDirs(self.runs, self.yard.database, keep=keep, keep_bytes=keep_bytes, in_use=in_use)

    def start(self, job_id: str) -> Claim:
        claim = self.yard.running(job_id, self.worker, job_id)
        self.make(job_id, claim.number)
        return claim

    def ended(self, *, days: int = 0) -> str:
        """A finished job, whose only attempt ended `days` ago."""
        job_id = self.yard.submit()
        self.end(self.start(job_id), EndReason.COMPLETED, days=days)
        return job_id

    def end(self, claim: Claim, reason: EndReason, *, days: int) -> None:
        self.yard.end(claim, reason)
        past = now_us() - in_us(days * DAY)
        row = update(Attempt).where(Attempt.id == claim.attempt_id).values(ended_at=past)
        self.yard.write(lambda session: session.execute(row))

    def make(self, job_id: str, number: int) -> RunDir:
        run = RunDir(self.runs / job_id / str(number))
        run.create()
        for name in ("epoch-0001", ".epoch-0002.77"):
            (run.checkpoints / name).mkdir(exist_ok=True)
            (run.checkpoints / name / "state.pt").write_bytes(b"state")
        with run.events.open("wb") as file:
            file.write(os.urandom(MIB))
            os.fsync(file.fileno())
        return run

    def there(self) -> set[str]:
        return {str(path.relative_to(self.runs)) for path in self.runs.glob("*/*")}


@pytest.fixture
def host(tmp_path: Path, database: Database) -> Host:
    return Host(tmp_path, database)


def test_without_settings_only_what_was_half_made_goes(host: Host) -> None:
    finished, running = host.ended(days=1000), host.yard.submit()
    host.start(running)
    host.sweep()
    assert host.there() == {f"{finished}/1", f"{running}/1"}
    left = {str(path.relative_to(host.runs)) for path in host.runs.rglob("state.pt")}
    assert left == {
        f"{finished}/1/job/checkpoints/epoch-0001/state.pt",
        f"{running}/1/job/checkpoints/epoch-0001/state.pt",
        f"{running}/1/job/checkpoints/.epoch-0002.77/state.pt",
    }


def test_the_directories_of_old_attempts_go_and_no_other(host: Host) -> None:
    old, young, running, waiting = host.ended(days=31), host.ended(days=29), host.yard.submit(), host.yard.submit()
    host.end(host.start(running), EndReason.PREEMPTED, days=31)
    host.end(host.start(waiting), EndReason.PREEMPTED, days=31)
    host.start(running)
    host.sweep(keep=30 * DAY)
    assert host.there() == {f"{young}/1", f"{running}/2"}
    assert {path.name for path in host.runs.iterdir()} == {young, running, waiting}
    host.sweep(keep=NOW)
    assert host.there() == {f"{running}/2"}
    assert old not in {path.name for path in host.runs.iterdir()}


def test_beyond_the_size_the_oldest_go_first(host: Host) -> None:
    host.start(running := host.yard.submit())
    days = {host.ended(days=days): days for days in (3, 1, 4, 2)}
    host.sweep(keep_bytes=6 * MIB)
    assert len(host.there()) == 5
    dirs = host.dirs(keep_bytes=5 * MIB // 2)
    for _ in range(2):  # the second time by the sizes that it remembers
        for _ in dirs.sweep():
            pass
        assert host.there() == {f"{running}/1", *(f"{job_id}/1" for job_id, day in days.items() if day == 1)}
    host.sweep(keep_bytes=0)
    assert host.there() == {f"{running}/1"}


def test_a_sparse_file_is_no_reason_to_remove_anything(host: Host) -> None:
    job_id = host.ended(days=1)
    with (host.runs / job_id / "1" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    host.sweep(keep_bytes=10 * MIB)
    assert host.there() == {f"{job_id}/1"}


def test_what_the_worker_has_in_hand_or_what_still_runs_stays(host: Host) -> None:
    closing, stray, orphan = host.ended(days=2), host.ended(days=2), new_id("job")
    host.make(orphan, 3)
    host.in_hand.add((closing, 1))
    programs = [_sleep(stray, 1), _sleep(orphan, 3)]
    try:
        wait_for(lambda: process.find(stray, 1) and process.find(orphan, 3), "both processes")
        host.sweep(keep=DAY, keep_bytes=0, orphans=NOW)
        assert host.there() == {f"{closing}/1", f"{stray}/1", f"{orphan}/3"}
    finally:
        for program in programs:
            program.kill()
            program.wait(30)
    host.in_hand.clear()
    host.sweep(keep=DAY, orphans=NOW)
    assert host.there() == set()


def test_orphans_go_once_nobody_has_touched_them_for_long(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    finished, running, lost = host.ended(), host.yard.submit(), new_id("job")
    host.start(running)
    host.make(lost, 1)
    host.make(running, 2)  # of a time that the restored database does not know
    (host.runs / "job_elsewhere" / "1").mkdir(parents=True)
    (host.runs / finished / "notes").mkdir()
    elsewhere = host.runs.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1").mkdir()
    linked = new_id("job")
    (host.runs / linked).symlink_to(elsewhere)
    before = host.there()
    with caplog.at_level(logging.WARNING):
        host.sweep(orphans=DAY)
        for path in (host.runs / lost, *(host.runs / lost).rglob("*")):
            os.utime(path, (0, 0))  # a job can do this, too
        host.sweep(orphans=DAY)
        assert (host.there(), caplog.text) == (before, "")
        host.sweep(orphans=NOW)
    assert host.there() == before - {f"{lost}/1", f"{running}/2"}
    assert not (host.runs / lost).exists()
    assert (elsewhere / "1").exists()
    assert lost in caplog.text
    assert f"{running}: no attempt has the run directory 2" in caplog.text
    assert len(caplog.records) == 2


def test_an_orphan_is_left_alone_as_long_as_anything_in_it_changes(host: Host) -> None:
    lost = new_id("job")
    run = host.make(lost, 1)
    before = time.time()
    wait_for(lambda: time.time() > before + 0.3, "time to pass")
    (run.checkpoints / "epoch-0001" / "new").write_text("")
    host.sweep(orphans=timedelta(seconds=0.2))
    assert host.there() == {f"{lost}/1"}


def test_what_a_deleted_job_left_goes_with_or_without_its_tombstone(host: Host) -> None:
    job_id = host.ended()
    host.yard.write(lambda session: deletion.delete_job(session, job_id))
    host.yard.write(lambda session: session.execute(delete(DeletedJob)))
    host.sweep()
    assert host.there() == {f"{job_id}/1"}
    host.sweep(orphans=NOW)
    assert host.there() == set()


def test_an_orphan_that_becomes_an_attempts_own_meanwhile_stays(host: Host) -> None:
    job_id = host.yard.submit()
    host.make(job_id, 1)
    steps = host.dirs().sweep(orphan_age=NOW)
    next(steps)  # it has asked for the attempts
    claim = host.yard.running(job_id, host.worker)
    for _ in steps:
        pass
    assert host.there() == {f"{job_id}/{claim.number}"}


def test_what_was_put_aside_goes_as_an_orphan_does(host: Host) -> None:
    job_id = host.yard.submit()
    for _ in range(2):
        rundirs.make_room(host.make(job_id, 1))
    host.start(job_id)
    host.sweep(orphans=DAY)
    assert host.there() == {f"{job_id}/.stale.1", f"{job_id}/1"}
    host.sweep(orphans=NOW)
    assert host.there() == {f"{job_id}/1"}


def test_a_removal_that_was_cut_off_is_made_up_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, lost = host.yard.submit(), new_id("job")
    for name, number in ((job_id, 1), (lost, 1)):
        host.make(name, number)

    def crash(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(rundirs, "remove_inside", crash)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                host.sweep(orphans=NOW)
    host.sweep(orphans=NOW)
    assert host.there() == set()
    assert list((host.runs / job_id).iterdir()) == []


@on_both
def test_two_sweeps_at_once_disturb_neither_each_other(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [host.ended(days=2) for _ in range(4)]
    for number in range(4):
        host.make(new_id("job"), number + 1)
        host.make(jobs[number], 7)
    with caplog.at_level(logging.ERROR):
        answers = run_together(*[lambda: host.sweep(keep=DAY, orphans=NOW)] * 3)
    assert answers == [None] * 3
    host.sweep(keep=DAY, orphans=NOW)
    assert list(host.runs.iterdir()) == []


def test_a_host_without_run_directories_has_nothing_to_remove(host: Host) -> None:
    host.runs.rmdir()
    host.sweep(keep=NOW, keep_bytes=0, orphans=NOW)


def _sleep(job_id: str, number: int) -> subprocess.Popen[bytes]:
    own = {Env.JOB_ID: job_id, Env.ATTEMPT: str(number)}
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **own})
