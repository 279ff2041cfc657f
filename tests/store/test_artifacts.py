"""Rows of artifacts: what they replace, what they keep alive, and what goes with their job."""

from io import BytesIO
from pathlib import Path

from store import housekeeping as cleanup
from store.blobs.folder import BlobFolder
from store.jobs import deletion
from store.output import artifacts
from store.output.facts import NewArtifact
from store.team import quotas
from store.team.callers import SERVICE
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.states import EndReason


def stored(blobs: BlobFolder, path: str, content: bytes) -> NewArtifact:
    blob = blobs.add(BytesIO(content))
    return NewArtifact(path, blob.size, blob.sha256)


def listed(db: StoreFixture, job_id: str, path: str | None = None) -> list[tuple[str, int]]:
    rows = db.read(
        lambda session: artifacts.list_artifacts(session, job_id, caller=SERVICE, limit=100, path=path)
    ).items
    return [(row.path, row.attempt) for row in rows]


@quick_on_sqlite
def test_a_newer_attempts_file_replaces_the_older_one_and_others_stay(db: StoreFixture, tmp_path: Path) -> None:
    blobs, worker = BlobFolder(tmp_path / "blobs"), db.worker()
    store = store_on(db.database, blobs=blobs)
    job_id = db.submit(max_restarts=1)
    old, other, new = (stored(blobs, path, text) for path, text in (("a", b"old"), ("b", b"b"), ("a", b"new")))
    claim = db.running(job_id, worker)
    db.record(claim, seq=0, artifacts=[old, other])
    db.end(claim, EndReason.WORKER_LOST)
    claim = db.running(job_id, worker)
    db.record(claim, seq=0, artifacts=[new])
    db.end(claim, EndReason.COMPLETED)
    assert listed(db, job_id) == [("b", 1), ("a", 2)]
    owner = db.job(job_id).owner
    assert db.read(lambda session: quotas.stored_bytes(session, owner)) == 4
    cleanup.collect_garbage(store)
    assert not blobs.has(old.sha256, size=3)
    assert blobs.has(new.sha256, size=3)
    db.write(lambda session: deletion.delete_job(session, job_id))
    cleanup.collect_garbage(store)
    assert not blobs.has(new.sha256, size=3)
    assert not blobs.has(other.sha256, size=1)


@quick_on_sqlite
def test_a_blob_that_another_jobs_artifact_needs_stays(db: StoreFixture, tmp_path: Path) -> None:
    blobs, worker = BlobFolder(tmp_path / "blobs"), db.worker()
    first, second = db.submit(), db.submit()
    same = stored(blobs, "a", b"same")
    for job_id in (first, second):
        claim = db.running(job_id, worker)
        db.record(claim, seq=0, artifacts=[same])
        db.end(claim, EndReason.COMPLETED)
    db.write(lambda session: deletion.delete_job(session, first))
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert blobs.has(same.sha256, size=4)


def test_files_are_found_by_their_folder_and_case_counts(db: StoreFixture, tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path / "blobs")
    job_id = db.submit()
    paths = ["plots/a", "plots/b/c", "Plots/d", "plots_e", "plots%/f"]
    db.record(db.running(job_id, db.worker()), seq=0, artifacts=[stored(blobs, path, b"x") for path in paths])
    assert [path for path, _ in listed(db, job_id, "plots")] == ["plots/a", "plots/b/c"]
    assert [path for path, _ in listed(db, job_id, "plots/a")] == ["plots/a"]
    assert listed(db, job_id, "plot") == []


def test_the_room_is_what_the_quota_leaves(db: StoreFixture, tmp_path: Path) -> None:
    job_id = db.submit()
    assert db.read(lambda session: artifacts.read_room(session, job_id)).left is None
    db.record(db.running(job_id, db.worker()), seq=0, artifacts=[stored(BlobFolder(tmp_path / "blobs"), "a", b"12345")])
    room = db.read(lambda session: artifacts.read_room(session, job_id))
    assert [(item.path, item.attempt, item.size) for item in room.stored] == [("a", 1, 5)]
