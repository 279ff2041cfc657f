"""Old run directories and orphans are removed from a host. Directories in use are not."""

from datetime import timedelta
import logging
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

import pytest
from sqlalchemy import delete, update

from store.attempts.facts import Claim
from store.db.database import Database, in_us, now_us
from store.ids import new_id
from store.jobs import deletion
from store.tables import Attempt, DeletedJob, Job, KeepRequest
from store.worker.folders import HostFolders
from tests.databases import on_both
from tests.leftovers import LEVELS, leave_depth, leave_everything
from tests.store.fixture import StoreFixture, run_together, store_on
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from worker.cleanup import sweeper
from worker.cleanup.sweeper import RunDirSweeper
from worker.host import process, rundirs
from worker.host.attempt_key import AttemptKey
from worker.host.workfolders import WorkRecord

MIB = 1 << 20
NOW = timedelta()
DAY = timedelta(days=1)


class RunDirsFixture:
    """A worker's run directories, and their rows."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.store = StoreFixture(database)
        self.worker = self.store.worker()
        self.handled: set[tuple[str, int]] = set()

    def sweep(self, *, orphans: timedelta = DAY, **keep: Any) -> None:
        for _ in self.dirs(**keep).sweep(orphan_age=orphans):
            pass

    def dirs(
        self,
        *,
        keep: timedelta | None = None,
        keep_folders: timedelta | None = None,
        keep_bytes: int | None = None,
    ) -> RunDirSweeper:
        def in_use(key: AttemptKey) -> bool:
            return (key.job_id, key.number) in self.handled or bool(process.find(key.job_id, key.number))

        return RunDirSweeper(
            self.runs,
            HostFolders(store_on(self.store.database), self.worker),
            keep=keep,
            keep_folders=keep_folders,
            keep_bytes=keep_bytes,
            in_use=in_use,
        )

    def start(self, job_id: str) -> Claim:
        claim = self.store.running(job_id, self.worker, job_id)
        self.make(job_id, claim.number)
        return claim

    def ended(self, *, days: int = 0) -> str:
        """Makes a finished job, whose only attempt ended `days` ago."""
        job_id = self.store.submit()
        self.end(self.start(job_id), EndReason.COMPLETED, days=days)
        return job_id

    def end(self, claim: Claim, reason: EndReason, *, days: int) -> None:
        self.store.end(claim, reason)
        past = now_us() - in_us(days * DAY)
        row = update(Attempt).where(Attempt.id == claim.attempt_id).values(ended_at=past)
        self.store.write(lambda session: session.execute(row))

    def make(self, job_id: str, number: int) -> RunDir:
        run = RunDir(self.runs / job_id / str(number))
        run.create()
        for name in ("epoch-0001", ".epoch-0002.77"):
            (run.checkpoints / name).mkdir(exist_ok=True)
            (run.checkpoints / name / "state.pt").write_bytes(b"state")
        with run.events.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, MIB)
        return run

    def existing(self) -> set[str]:
        return {str(path.relative_to(self.runs)) for path in self.runs.glob("*/*")}


@pytest.fixture
def host(tmp_path: Path, database: Database) -> RunDirsFixture:
    return RunDirsFixture(tmp_path, database)


def test_without_settings_only_unfinished_checkpoints_are_removed(host: RunDirsFixture) -> None:
    finished, running = host.ended(days=1000), host.store.submit()
    host.start(running)
    host.sweep()
    assert host.existing() == {f"{finished}/1", f"{running}/1"}
    left = {str(path.relative_to(host.runs)) for path in host.runs.rglob("state.pt")}
    assert left == {
        f"{finished}/1/job/checkpoints/epoch-0001/state.pt",
        f"{running}/1/job/checkpoints/epoch-0001/state.pt",
        f"{running}/1/job/checkpoints/.epoch-0002.77/state.pt",
    }


def test_only_the_directories_of_old_attempts_are_removed(host: RunDirsFixture) -> None:
    old, young, running, waiting = host.ended(days=31), host.ended(days=29), host.store.submit(), host.store.submit()
    host.end(host.start(running), EndReason.PREEMPTED, days=31)
    host.end(host.start(waiting), EndReason.PREEMPTED, days=31)
    host.start(running)
    host.sweep(keep=30 * DAY)
    assert host.existing() == {f"{young}/1", f"{running}/2"}
    assert {path.name for path in host.runs.iterdir()} == {young, running, waiting}
    host.sweep(keep=NOW)
    assert host.existing() == {f"{running}/2"}
    assert old not in {path.name for path in host.runs.iterdir()}


def test_the_oldest_directories_are_removed_until_the_size_fits(host: RunDirsFixture) -> None:
    host.start(running := host.store.submit())
    days = {host.ended(days=days): days for days in (3, 1, 4, 2)}
    host.sweep(keep_bytes=6 * MIB)
    assert len(host.existing()) == 5
    dirs = host.dirs(keep_bytes=5 * MIB // 2)
    for _ in range(2):  # the second time with remembered sizes
        for _ in dirs.sweep():
            pass
        assert host.existing() == {f"{running}/1", *(f"{job_id}/1" for job_id, day in days.items() if day == 1)}
    host.sweep(keep_bytes=0)
    assert host.existing() == {f"{running}/1"}


def test_the_holes_of_a_sparse_file_do_not_count(host: RunDirsFixture) -> None:
    job_id = host.ended(days=1)
    with (host.runs / job_id / "1" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    host.sweep(keep_bytes=10 * MIB)
    assert host.existing() == {f"{job_id}/1"}


def test_a_directory_that_is_handled_or_whose_processes_run_stays(host: RunDirsFixture) -> None:
    closing, running, orphan = host.ended(days=2), host.ended(days=2), new_id("job")
    host.make(orphan, 3)
    host.handled.add((closing, 1))
    programs = [_sleep(running, 1), _sleep(orphan, 3)]
    try:
        wait_for(lambda: process.find(running, 1) and process.find(orphan, 3), "both processes")
        host.sweep(keep=DAY, keep_bytes=0, orphans=NOW)
        assert host.existing() == {f"{closing}/1", f"{running}/1", f"{orphan}/3"}
    finally:
        for program in programs:
            program.kill()
            program.wait(120)
    host.handled.clear()
    host.sweep(keep=DAY, orphans=NOW)
    assert host.existing() == set()


def test_orphans_are_removed_when_they_are_unchanged_for_long(
    host: RunDirsFixture, caplog: pytest.LogCaptureFixture
) -> None:
    finished, running, lost = host.ended(), host.store.submit(), new_id("job")
    host.start(running)
    host.make(lost, 1)
    host.make(running, 2)  # the restored database does not know it
    (host.runs / "job_elsewhere" / "1").mkdir(parents=True)
    (host.runs / finished / "notes").mkdir()
    elsewhere = host.runs.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1").mkdir()
    linked = new_id("job")
    (host.runs / linked).symlink_to(elsewhere)
    before = host.existing()
    with caplog.at_level(logging.WARNING):
        host.sweep(orphans=DAY)
        for path in (host.runs / lost, *(host.runs / lost).rglob("*")):
            os.utime(path, (0, 0))  # a job can do this as well
        host.sweep(orphans=DAY)
        assert (host.existing(), caplog.text) == (before, "")
        host.sweep(orphans=NOW)
    assert host.existing() == before - {f"{lost}/1", f"{running}/2"}
    assert not (host.runs / lost).exists()
    assert (elsewhere / "1").exists()
    assert lost in caplog.text
    assert f"{running}: deleted the run directory 2" in caplog.text
    assert len(caplog.records) == 2


def test_an_orphan_stays_while_a_file_in_it_changes(host: RunDirsFixture) -> None:
    lost = new_id("job")
    run = host.make(lost, 1)
    before = time.time()
    wait_for(lambda: time.time() > before + 0.3, "time to pass")
    (run.checkpoints / "epoch-0001" / "new").write_text("")
    host.sweep(orphans=timedelta(seconds=0.2))
    assert host.existing() == {f"{lost}/1"}


def test_the_directories_of_a_deleted_job_are_removed_without_its_tombstone(host: RunDirsFixture) -> None:
    job_id = host.ended()
    host.store.write(lambda session: deletion.delete_job(session, job_id))
    host.store.write(lambda session: session.execute(delete(DeletedJob)))
    host.sweep()
    assert host.existing() == {f"{job_id}/1"}
    host.sweep(orphans=NOW)
    assert host.existing() == set()


def test_an_orphan_stays_if_an_attempt_with_its_number_is_claimed_meanwhile(host: RunDirsFixture) -> None:
    job_id = host.store.submit()
    host.make(job_id, 1)
    steps = host.dirs().sweep(orphan_age=NOW)
    next(steps)  # it has read the attempts
    claim = host.store.running(job_id, host.worker)
    for _ in steps:
        pass
    assert host.existing() == {f"{job_id}/{claim.number}"}


def test_a_directory_that_was_moved_aside_is_removed_after_the_same_time_as_an_orphan(host: RunDirsFixture) -> None:
    job_id = host.store.submit()
    for _ in range(2):
        rundirs.move_aside(host.make(job_id, 1))
    host.start(job_id)
    host.sweep(orphans=DAY)
    assert host.existing() == {f"{job_id}/.stale.1", f"{job_id}/1"}
    host.sweep(orphans=NOW)
    assert host.existing() == {f"{job_id}/1"}


def test_an_interrupted_removal_is_completed_by_the_next_sweep(
    host: RunDirsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, lost = host.store.submit(), new_id("job")
    for name, number in ((job_id, 1), (lost, 1)):
        host.make(name, number)

    def crash(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(sweeper, "remove_inside", crash)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                host.sweep(orphans=NOW)
    host.sweep(orphans=NOW)
    assert host.existing() == set()
    assert list((host.runs / job_id).iterdir()) == []


@on_both
def test_concurrent_sweeps_do_not_disturb_each_other(host: RunDirsFixture, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [host.ended(days=2) for _ in range(2)]
    for number in range(2):
        host.make(new_id("job"), number + 1)
        host.make(jobs[number], 7)
    with caplog.at_level(logging.ERROR):
        answers = run_together(*[lambda: host.sweep(keep=DAY, orphans=NOW)] * 3)
    assert answers == [None] * 3
    host.sweep(keep=DAY, orphans=NOW)
    assert list(host.runs.iterdir()) == []


@pytest.mark.usefixtures("removed_afterwards")
def test_whatever_an_attempt_left_goes_with_its_run_directory(
    host: RunDirsFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended, waiting, lost = host.ended(days=2), host.store.submit(), new_id("job")
    for number, job_id in enumerate((ended, waiting, lost)):
        if job_id != ended:
            host.make(job_id, 1)
        leave_everything(host.runs / job_id / "1" / "job" / "work", outside=tmp_path / f"outside-{number}")
        leave_depth(host.runs / job_id / "1" / "job" / "checkpoints" / ".epoch-0002.77", LEVELS)
    for _ in range(2):  # the second time over the first
        rundirs.move_aside(RunDir(host.runs / waiting / "1"))
        host.make(waiting, 1)
    host.start(waiting)
    host.sweep(orphans=DAY)
    assert host.existing() == {f"{ended}/1", f"{waiting}/.stale.1", f"{waiting}/1", f"{lost}/1"}
    assert [path.name for path in (host.runs / ended / "1" / "job" / "checkpoints").iterdir()] == ["epoch-0001"]
    host.sweep(keep=DAY, orphans=NOW)
    assert host.existing() == {f"{waiting}/1"}
    assert [(tmp_path / f"outside-{number}" / "kept").exists() for number in range(3)] == [True] * 3
    assert "cannot delete" not in caplog.text


@pytest.mark.usefixtures("removed_afterwards")
def test_depth_does_not_hide_the_size_of_a_run_directory(host: RunDirsFixture) -> None:
    small, deep = host.ended(days=1), host.ended(days=2)
    leave_depth(host.runs / deep / "1", LEVELS)
    measured = rundirs.size(host.runs / deep / "1", unlock=False)
    assert measured > 2 * MIB + LEVELS * (host.runs / deep / "1").stat().st_blocks * 512
    host.sweep(keep_bytes=measured)
    assert host.existing() == {f"{small}/1"}


def test_further_names_do_not_add_to_the_size_of_a_file(host: RunDirsFixture) -> None:
    other, linked = host.ended(days=2), host.ended(days=1)
    events = RunDir(host.runs / linked / "1").events
    for number in range(20):
        (events.parent / f"again-{number}").hardlink_to(events)
    host.sweep(keep_bytes=3 * MIB)
    assert host.existing() == {f"{other}/1", f"{linked}/1"}


def test_a_host_without_run_directories_has_nothing_to_remove(
    host: RunDirsFixture, caplog: pytest.LogCaptureFixture
) -> None:
    host.runs.rmdir()
    with caplog.at_level(logging.INFO):
        host.sweep(keep=NOW, keep_bytes=0, orphans=NOW)
    assert (host.runs.exists(), caplog.text) == (False, "")


def _sleep(job_id: str, number: int) -> subprocess.Popen[bytes]:
    own = {Env.JOB_ID: job_id, Env.ATTEMPT: str(number)}
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **own})


def with_folder(host: RunDirsFixture, job_id: str, *, days: int | None = None, stored: bool = False) -> Path:
    """Gives a job a working folder of a mebibyte, and has it finish so many days ago. `stored`: all of it is."""
    run = RunDir(host.runs / job_id / "1")
    run.work.mkdir(parents=True)
    (run.work / "state").write_bytes(os.urandom(MIB))
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=1, stored=stored))
    if days is not None:
        past = now_us() - in_us(days * DAY)
        host.store.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(finished_at=past)))
    return run.work


def test_a_working_folder_ends_some_time_after_its_job(host: RunDirsFixture) -> None:
    old, young, running, waiting = host.ended(), host.ended(), host.store.submit(), host.store.submit()
    host.start(running)
    host.end(host.start(waiting), EndReason.PREEMPTED, days=100)
    for job_id, days in ((old, 2), (young, 0), (running, None), (waiting, None)):
        with_folder(host, job_id, days=days)
    host.sweep(keep_folders=DAY)
    assert {path.parent.name for path in host.runs.glob("*/work")} == {young, running, waiting}
    assert {path.name for path in (host.runs / old).iterdir()} == {"1"}
    host.handled.add((young, 1))
    host.sweep(keep_folders=NOW)
    assert {path.parent.name for path in host.runs.glob("*/work")} == {young, running, waiting}
    host.handled.clear()
    host.sweep(keep_folders=NOW)
    assert {path.parent.name for path in host.runs.glob("*/work")} == {running, waiting}


def test_working_folders_count_and_the_oldest_go_first(host: RunDirsFixture) -> None:
    running = host.store.submit()
    host.start(running)
    with_folder(host, running)
    older, newer = host.ended(days=4), host.ended(days=1)
    with_folder(host, older, days=4)
    with_folder(host, newer, days=1)
    host.sweep(keep_bytes=5 * MIB)
    assert host.existing() >= {f"{newer}/1", f"{newer}/work", f"{running}/1", f"{running}/work"}
    assert not (host.runs / older).exists()


def test_folders_of_ended_jobs_go_when_the_disk_asks_and_no_other(
    host: RunDirsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, older, newer = host.store.submit(), host.ended(days=4), host.ended(days=1)
    host.start(running)
    for job_id, days in ((running, None), (older, 4), (newer, 1)):
        with_folder(host, job_id, days=days)
    asked = [True, False, False]

    def lacks_room(_: RunDirSweeper) -> bool:
        return asked.pop(0)

    monkeypatch.setattr(RunDirSweeper, "_lacks_room", lacks_room)
    host.sweep(keep_folders=30 * DAY)
    assert {path.parent.name for path in host.runs.glob("*/work")} == {running, newer}
    asked[:] = [True, True]
    host.sweep(keep_folders=30 * DAY)
    assert {path.parent.name for path in host.runs.glob("*/work")} == {running}
    assert host.existing() >= {f"{running}/1", f"{older}/1", f"{newer}/1"}


def test_folders_of_waiting_jobs_go_after_those_of_ended_ones_and_only_if_all_in_them_is_stored(
    host: RunDirsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("newer", "older", "unstored", "running", "elsewhere", "handled", "asked")
    jobs = {name: host.store.submit() for name in names}
    ends = {"newer": 1, "older": 4, "unstored": 9, "handled": 9, "asked": 9}
    for name, job_id in jobs.items():
        claim = host.start(job_id)
        if name in {*ends, "elsewhere"}:
            host.end(claim, EndReason.PAUSED if name == "older" else EndReason.PREEMPTED, days=ends.get(name, 9))
        with_folder(host, job_id, stored=name != "unstored")
    host.end(host.store.running(jobs["elsewhere"], host.worker, "x"), EndReason.PREEMPTED, days=9)
    host.handled.add((jobs["handled"], 1))
    asked = KeepRequest(job_id=jobs["asked"], worker_id=host.worker, attempt=1, paths=["a"])
    host.store.write(lambda session: session.add(asked))
    with_folder(host, ended := host.ended(days=1), days=1)
    room = [1]  # folders that have to go

    def lacks_room(dirs: RunDirSweeper) -> bool:
        return len([*host.runs.glob("*/work")]) > len(names) + 1 - room[0]

    monkeypatch.setattr(RunDirSweeper, "_lacks_room", lacks_room)
    left = {*jobs.values()}
    for gone in (ended, jobs["older"], jobs["newer"]):
        host.sweep(keep_folders=30 * DAY)
        left -= {gone}
        assert {path.parent.name for path in host.runs.glob("*/work")} == left
        room[0] += 1
    host.sweep(keep_folders=30 * DAY)
    assert {path.parent.name for path in host.runs.glob("*/work")} == left
    assert not [*host.runs.glob("*/.orphan*")] and not (host.runs / jobs["older"] / "work.json").exists()


def test_a_folder_whose_job_begins_meanwhile_stays(host: RunDirsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = host.store.submit()
    host.end(host.start(job_id), EndReason.PREEMPTED, days=1)
    work = with_folder(host, job_id, stored=True)

    def begins(_: RunDirSweeper) -> bool:
        host.store.running(job_id, host.worker, "x")
        return True

    monkeypatch.setattr(RunDirSweeper, "_lacks_room", begins)
    host.sweep()
    assert (work / "state").exists() and (host.runs / job_id / "work.json").exists()


def test_what_a_killed_worker_left_half_made_goes(host: RunDirsFixture) -> None:
    running, ended = host.store.submit(), host.ended()
    host.start(running)
    for job_id in (running, ended):
        (host.runs / job_id / ".work.77" / "a").mkdir(parents=True)
    host.sweep()
    assert {path.parent.name for path in host.runs.glob("*/.work.77")} == {running}
