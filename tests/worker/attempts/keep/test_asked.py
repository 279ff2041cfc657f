"""Files of a working folder are stored when somebody asks for them, or it is said why not."""

from collections.abc import Sequence
import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from store.attempts import keeping
from store.attempts.facts import KeepOrder
from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.jobs import deletion
from store.output import artifacts
from store.store import Store
from store.tables import Worker
from store.team import quotas
from store.worker.verbs import WorkerStore
from tests import sessions
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.files.views import KeepView
from torchyard.contract.states import EndReason
from worker.attempts.keep import asked, left_files
from worker.attempts.keep.asked import AskedFiles

CONFIG = {"code": bundle_url("0" * 64), "entrypoint": "train.py"}


@pytest.fixture
def db(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def store(db: StoreFixture, tmp_path: Path) -> Store:
    return store_on(db.database, blobs=BlobFolder(tmp_path / "blobs"))


@pytest.fixture
def worker(db: StoreFixture) -> str:
    return db.worker()


@pytest.fixture
def job_id(db: StoreFixture, worker: str, tmp_path: Path) -> str:
    """A job that has ended, with its working folder on the host of the worker."""
    job_id = db.submit(trainer="script", config=CONFIG)
    db.end(db.running(job_id, worker), EndReason.COMPLETED)
    for path, content in {"results/a": b"123", "results/deep/b": b"45", "a[1]": b"6", "other": b"7"}.items():
        file = tmp_path / "runs" / job_id / "work" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return job_id


def asked_for(store: Store, job_id: str, paths: Sequence[str]) -> KeepView:
    return sessions.write(store, keeping.ask, job_id, paths)


def newest(store: Store, job_id: str) -> KeepView:
    return sessions.read(store, keeping.find_newest, job_id)


def answered(store: Store, job_id: str, worker: str, runs: Path, paths: Sequence[str]) -> KeepView:
    asked_for(store, job_id, paths)
    AskedFiles(runs, WorkerStore(store, worker), clock=lambda: 0.0).answer_some()  # its turn ends on no busy machine
    return newest(store, job_id)


def kept(db: StoreFixture, job_id: str) -> list[str]:
    return [item.path for item in db.read(lambda session: artifacts.list_after(session, job_id, limit=100, kept=True))]


def test_paths_folders_and_patterns_are_stored(
    db: StoreFixture, store: Store, worker: str, job_id: str, tmp_path: Path
) -> None:
    found = answered(store, job_id, worker, tmp_path / "runs", ["results/", "a[1]"])
    assert (found.answered_at is not None, found.refused, found.files, found.size) == (True, None, 3, 6)
    assert sorted(kept(db, job_id)) == ["a[1]", "results/a", "results/deep/b"]
    again = answered(store, job_id, worker, tmp_path / "runs", ["results/*"])
    assert (again.refused, again.files) == (None, 0)
    assert answered(store, job_id, worker, tmp_path / "runs", ["oth*"]).files == 1
    owner = db.job(job_id).owner
    assert db.read(lambda session: quotas.stored_bytes(session, owner)) == 7


def test_what_is_not_there_or_has_no_room_is_refused(store: Store, worker: str, job_id: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert answered(store, job_id, worker, runs, ["none/*"]).refused == "nothing there matches"
    assert answered(store, job_id, worker, tmp_path / "elsewhere", ["other"]).refused == "its working folder is gone"
    (runs / job_id / "work" / "link").symlink_to("/etc/passwd")
    assert "link (" in (answered(store, job_id, worker, runs, ["link"]).refused or "")


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "_TURN_S", 0.0)


@pytest.mark.usefixtures("short_turns")
def test_a_long_copy_goes_on_in_the_next_turn_and_after_a_restart(
    store: Store, worker: str, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "COPY_LIMIT", 1 << 20)
    (tmp_path / "runs" / job_id / "work" / "large").write_bytes(bytes(3 << 20))
    asked_for(store, job_id, ["large"])
    files = AskedFiles(tmp_path / "runs", WorkerStore(store, worker))
    while (found := newest(store, job_id)).copied < 2 << 20:  # a turn may end before it copies
        files.answer_some()
    assert (found.answered_at, found.copied) == (None, 2 << 20)
    assert files.interval.due()
    files.close()
    files = AskedFiles(tmp_path / "runs", WorkerStore(store, worker))
    while newest(store, job_id).answered_at is None:
        files.answer_some()
    assert newest(store, job_id).size == 3 << 20


@pytest.mark.usefixtures("short_turns")
def test_a_job_that_is_deleted_meanwhile_keeps_nothing(
    db: StoreFixture, store: Store, worker: str, job_id: str, tmp_path: Path
) -> None:
    (tmp_path / "runs" / job_id / "work" / "large").write_bytes(bytes(70 << 20))
    asked_for(store, job_id, ["large"])
    files = AskedFiles(tmp_path / "runs", WorkerStore(store, worker))
    files.answer_some()
    db.write(lambda session: deletion.delete_job(session, job_id))
    for _ in range(4):
        files.answer_some()
    assert [*(tmp_path / "blobs" / "incoming").iterdir()] == []
    with pytest.raises(NotFound):
        newest(store, job_id)


def test_a_request_waits_for_the_one_before_and_for_a_worker_that_is_there(
    db: StoreFixture, store: Store, worker: str, job_id: str
) -> None:
    first = asked_for(store, job_id, ["results/"])
    assert asked_for(store, job_id, ["results/"]) == first
    with pytest.raises(Conflict, match="is storing results/ of this job"):
        asked_for(store, job_id, ["other"])
    other = db.submit(trainer="script", config=CONFIG)
    with pytest.raises(Conflict, match="has not run yet"):
        asked_for(store, other, ["results/"])
    db.end(db.running(other, worker), EndReason.COMPLETED)
    in_place = db.submit(trainer="script", config={**CONFIG, "code": "file:///code"})
    with pytest.raises(Conflict, match="has no working folder: its code"):
        asked_for(store, in_place, ["results/"])
    db.write(lambda session: session.execute(update(Worker).values(seen_at=0)))
    assert newest(store, job_id).away
    with pytest.raises(Conflict, match="is offline"):
        asked_for(store, other, ["results/"])


def test_a_file_with_a_time_that_no_database_can_keep_is_stored(
    db: StoreFixture, store: Store, worker: str, job_id: str, tmp_path: Path
) -> None:
    file = tmp_path / "runs" / job_id / "work" / "other"
    for seconds in (15_032_385_535, -(2**31)):  # the last and the first that ext4 has
        os.utime(file, (seconds, seconds))
        found = answered(store, job_id, worker, tmp_path / "runs", ["other"])
        assert (found.answered_at is not None, found.refused, found.files) == (True, None, 1)
        assert answered(store, job_id, worker, tmp_path / "runs", ["other"]).files == 0  # it is stored as it is


@pytest.mark.usefixtures("short_turns")
def test_the_requests_of_one_owner_hold_up_no_other_owner(
    db: StoreFixture, store: Store, worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "COPY_LIMIT", 1 << 20)
    runs, jobs = tmp_path / "runs", list[str]()
    for owner, size in (("ada", 8 << 20), ("ada", 8 << 20), ("bob", 1)):
        jobs.append(db.submit(owner=owner, trainer="script", config=CONFIG))
        db.end(db.running(jobs[-1], worker), EndReason.COMPLETED)
        (runs / jobs[-1] / "work").mkdir(parents=True)
        (runs / jobs[-1] / "work" / "file").write_bytes(bytes(size))
        asked_for(store, jobs[-1], ["file"])
    files = AskedFiles(runs, WorkerStore(store, worker))
    for _ in range(4):
        files.answer_some()
    first, second, other = (newest(store, each) for each in jobs)
    assert (first.answered_at, second.copied) == (None, 0)
    assert first.copied > 0
    assert other.answered_at is not None
    while newest(store, jobs[1]).answered_at is None:
        files.answer_some()
    assert [newest(store, each).size for each in jobs] == [8 << 20, 8 << 20, 1]


def test_a_long_walk_writes_nothing_before_it_has_found_something(
    store: Store, worker: str, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3000):
        (tmp_path / "runs" / job_id / "work" / "results" / f"n{number}").touch()
    written, write = list[int](), keeping.store_files

    def count(*args: Any, copied: int) -> None:
        written.append(copied)
        write(*args, copied=copied)

    monkeypatch.setattr(left_files, "_SLICE_S", 0)
    monkeypatch.setattr(keeping, "store_files", count)
    assert answered(store, job_id, worker, tmp_path / "runs", ["results/x*"]).refused == "nothing there matches"
    assert written == []
    assert answered(store, job_id, worker, tmp_path / "runs", ["results/a"]).files == 1
    assert len(written) == 1


def test_an_unexpected_error_refuses_its_request_and_holds_up_no_other(
    store: Store, worker: str, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = StoreFixture(store.database)
    other = db.submit(owner="bob", trainer="script", config=CONFIG)
    db.end(db.running(other, worker), EndReason.COMPLETED)
    (tmp_path / "runs" / other / "work").mkdir(parents=True)
    (tmp_path / "runs" / other / "work" / "file").write_bytes(b"1")
    store_files = keeping.store_files

    def fail(session: Session, worker_id: str, order: KeepOrder, *args: Any, **kwargs: Any) -> None:
        if order.job_id == job_id:
            raise ValueError("unexpected")
        store_files(session, worker_id, order, *args, **kwargs)

    monkeypatch.setattr(keeping, "store_files", fail)
    asked_for(store, job_id, ["other"])
    asked_for(store, other, ["file"])
    AskedFiles(tmp_path / "runs", WorkerStore(store, worker)).answer_some()
    assert "worker's log" in (newest(store, job_id).refused or "")
    assert newest(store, other).files == 1
