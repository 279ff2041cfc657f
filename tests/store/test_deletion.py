"""Deleting a job: its rows, its tombstone, and the blobs that no other job refers to."""

from collections.abc import Callable
from io import BytesIO
import os
from pathlib import Path
import time
from typing import Any

import pytest
from sqlalchemy import select

from store import housekeeping as cleanup
from store.attempts import removal
from store.blobs.folder import BlobFolder
from store.bundles import bundles
from store.jobs import deletion, dependencies, idempotency, initial_files, jobs, stars
from store.jobs.facts import DependencyFacts
from store.jobs.initial_weights_facts import InitialFacts
from store.jobs.submission import KeyedRequest
from store.output.facts import MetricPoint, NewArtifact, NewCheckpoint, NewEvent, NewLines, NewMedia, PictureFacts
from store.tables import AttemptUse, Estimate, Forecast, Garbage, KeepRequest, Reach, WorkFolder
from store.team.callers import SERVICE, Caller
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import Conflict, NotFound, StaleClaim
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role

INITIAL = InitialFacts(
    source_job="job_1",
    source_checkpoint="ckpt_1",
    model_owner=None,
    model_name=None,
    model_version=None,
    trainer="script",
    step=1,
    epoch=None,
    files=(),
    size=0,
)


A_REACH: dict[str, Any] = {"user": "ada", "role": "member", "order": {"kind": "ports"}, "until": 1}


def saved(blobs: BlobFolder, content: bytes, *, step: int = 1) -> NewCheckpoint:
    blob = blobs.add(BytesIO(content))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    manifest = Manifest(step=step, epoch=None, end_of_epoch=False, metrics={"val/loss": 0.5}, files=files)
    return NewCheckpoint(f"step-{step}", manifest, files)


def left(blobs: BlobFolder, content: bytes) -> NewArtifact:
    blob = blobs.add(BytesIO(content))
    return NewArtifact("a", blob.size, blob.sha256)


def shown(blobs: BlobFolder, content: bytes) -> NewMedia:
    blob = blobs.add(BytesIO(content))
    return NewMedia("a", "image", 1, 0, pictures=[PictureFacts("image", "image/png", blob.size, blob.sha256, 1, 1)])


def ended(db: StoreFixture, blobs: BlobFolder, *contents: bytes) -> str:
    """Returns a job that has rows in every table."""
    job_id = db.submit()
    db.write(lambda session: dependencies.add_all(session, {job_id: [DependencyFacts(job_id, None, "failed", None)]}))
    db.write(lambda session: bundles.record_uses(session, {job_id: {"config.code": "0" * 64}}))
    db.write(lambda session: initial_files.add_all(session, {job_id: INITIAL}))
    db.write(lambda session: stars.set_star(session, job_id, SERVICE, starred=True))
    key = KeyedRequest("ada", job_id, "f")
    db.write(lambda session: idempotency.store_keys(session, [(key, job_id)]))
    estimated = (
        Estimate(job_id=job_id, made_at=1),
        Forecast(job_id=job_id, attempt=1, hour=0, made_at=1, wait_us=1, bucket=0),
    )
    db.write(lambda session: session.add_all(estimated))
    claim = db.running(job_id, db.worker())
    db.record(
        claim,
        seq=0,
        points=[MetricPoint("train/loss", 1, 0.5, 1)],
        lines=[NewLines(0, "stdout", ["hello"])],
        events=[NewEvent("message", {"level": "info", "text": "hi"}, 1)],
        checkpoints=[saved(blobs, content, step=step) for step, content in enumerate(contents, start=1)],
        artifacts=[left(blobs, content) for content in contents[:1]],
        media=[shown(blobs, content) for content in contents[:1]],
        packages={"torch": "2.14.1"},
    )
    db.end(claim, EndReason.COMPLETED)
    use = AttemptUse(attempt_id=claim.attempt_id, seen_at=1, measured_us=0, busy_us=0, idle_us=0)
    asked = KeepRequest(job_id=job_id, worker_id=db.worker(), attempt=1, paths=["a"])
    folder = WorkFolder(job_id=job_id, worker_id="wrk_1", size=1)
    reach = Reach(id=f"rch_{job_id[4:]}", job_id=job_id, attempt_id=claim.attempt_id, attempt=1, **A_REACH)
    db.write(lambda session: session.add_all([use, asked, folder, reach]))
    return job_id


def delete(db: StoreFixture, job_id: str, caller: Caller = SERVICE) -> None:
    db.write(lambda session: deletion.delete_job(session, job_id, caller))


def stored(blobs: BlobFolder) -> list[bytes]:
    return sorted(path.read_bytes() for path in blobs.root.glob("??/*"))


def garbage(db: StoreFixture) -> int:
    return len(db.read(lambda session: session.scalars(select(Garbage.sha256)).all()))


def rows_of(everything: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    team = {"users", "tokens", "browser_sessions", "preferences", "quotas", "secrets", "audit"}
    team |= {"login_codes", "failed_logins", "join_codes", "origins"}
    queue = {"waiting_reasons", "reservations", "usage", "run_lengths", "job_counts", "stored_counts", "forecast_lease"}
    queue |= {"calibrations"}
    kept = {"deleted_jobs", "garbage", "bundles", "models", "model_versions", "sweeps", "sweep_trials"}
    told = {"schedules", "saved_views", "notification_targets", "signals", "messages"}
    kept |= {"removed_blobs", "blob_holds", "worker_tokens"}
    others = {"workers", "device_samples", "device_days", "service", *kept, *queue, *team, *told}
    return {table: rows for table, rows in everything.items() if table not in others}


def test_a_deletion_removes_every_row_of_the_job_and_no_other(db: StoreFixture, blobs: BlobFolder) -> None:
    other = ended(db, blobs, b"other")
    before = rows_of(db.everything())
    assert all(before.values()), "the job has a row in every table of jobs"
    job_id = ended(db, blobs, b"one", b"two")
    delete(db, job_id)
    assert rows_of(db.everything()) == before
    assert db.read(lambda session: removal.list_deleted_among(session, [job_id, other])) == [job_id]
    with pytest.raises(NotFound):
        delete(db, job_id)


@quick_on_sqlite
def test_only_the_owner_deletes_and_only_ended_jobs(db: StoreFixture, blobs: BlobFolder) -> None:
    job_id = db.submit()
    with pytest.raises(Conflict, match="queued"):
        delete(db, job_id)
    claim = db.running(job_id, db.worker())
    with pytest.raises(Conflict, match="running"):
        delete(db, job_id)
    db.end(claim, EndReason.COMPLETED)
    before = db.everything()
    with pytest.raises(NotFound):
        delete(db, job_id, Caller("eve", Role.MEMBER))
    assert db.everything() == before
    delete(db, job_id, Caller("ada", Role.MEMBER))


@quick_on_sqlite
def test_blobs_are_removed_with_the_last_job_that_refers_to_them(db: StoreFixture, blobs: BlobFolder) -> None:
    first, second = ended(db, blobs, b"same", b"mine"), ended(db, blobs, b"same")
    delete(db, first)
    assert cleanup.collect_garbage(store_on(db.database, blobs=blobs)) == 1
    assert stored(blobs) == [b"same"]
    assert garbage(db) == 0
    delete(db, second)
    assert cleanup.collect_garbage(store_on(db.database, blobs=blobs)) == 1
    assert (stored(blobs), garbage(db)) == ([], 0)
    assert cleanup.collect_garbage(store_on(db.database, blobs=blobs)) == 0


@pytest.mark.thorough
def test_two_concurrent_deletions_leave_nothing(db: StoreFixture, blobs: BlobFolder) -> None:
    for _ in range(10):
        pair = [ended(db, blobs, b"a", b"b", b"c"), ended(db, blobs, b"c", b"b", b"a")]
        collect = lambda: cleanup.collect_garbage(store_on(db.database, blobs=blobs))  # noqa: E731
        answers = run_together(*[lambda job_id=job_id: delete(db, job_id) for job_id in pair], collect)
        assert not [answer for answer in answers if isinstance(answer, Exception)], answers
        cleanup.collect_garbage(store_on(db.database, blobs=blobs))
        assert (stored(blobs), garbage(db)) == ([], 0)


@quick_on_sqlite
def test_a_collector_recovers_from_a_crash_between_blobs_and_rows(
    db: StoreFixture, blobs: BlobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(db, ended(db, blobs, b"one", b"two"))
    remove, removed = blobs.remove, list[str]()

    def crash(sha256: str, *, in_time: Callable[[], bool]) -> bool:
        if removed:
            raise OSError("crashed")
        removed.append(sha256)
        return remove(sha256, in_time=in_time)

    with monkeypatch.context() as crashing:
        crashing.setattr(blobs, "remove", crash)
        with pytest.raises(OSError, match="crashed"):
            cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert (len(stored(blobs)), garbage(db)) == (1, 1)
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert (stored(blobs), garbage(db)) == ([], 0)


@quick_on_sqlite
def test_a_collection_is_limited_in_size(db: StoreFixture, blobs: BlobFolder) -> None:
    delete(db, ended(db, blobs, b"1", b"2", b"3"))
    assert [cleanup.collect_garbage(store_on(db.database, blobs=blobs), limit=2) for _ in range(3)] == [2, 1, 0]
    assert stored(blobs) == []


@quick_on_sqlite
def test_an_open_blob_can_be_read_after_its_removal(db: StoreFixture, blobs: BlobFolder) -> None:
    content = os.urandom(1 << 20)
    delete(db, ended(db, blobs, content))
    sha256 = next(blobs.root.glob("??/*")).name
    with blobs.open(sha256) as file:
        first = file.read(10)
        assert cleanup.collect_garbage(store_on(db.database, blobs=blobs)) == 1
        assert first + file.read() == content
    with pytest.raises(NotFound):
        blobs.open(sha256)


def test_a_retried_job_keeps_its_shared_blobs(db: StoreFixture, blobs: BlobFolder) -> None:
    old = ended(db, blobs, b"first", b"newest")
    new = db.retry(old)
    delete(db, old)
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert stored(blobs) == [b"newest"]
    db.cancel(new)
    delete(db, new)
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert stored(blobs) == []


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.thorough)])
def test_a_retry_during_a_deletion_has_the_checkpoint_or_fails(db: StoreFixture, blobs: BlobFolder, times: int) -> None:
    for _ in range(times):
        old = ended(db, blobs, b"state")
        retried, deleted = run_together(
            lambda: db.retry(old),  # noqa: B023
            lambda: delete(db, old),  # noqa: B023
        )
        assert deleted is None
        cleanup.collect_garbage(store_on(db.database, blobs=blobs))
        if isinstance(retried, NotFound):
            assert stored(blobs) == []
        else:
            assert not isinstance(retried, Exception), retried
            assert retried is not None
            assert stored(blobs) == [b"state"]
            db.cancel(retried)
            delete(db, retried)
            cleanup.collect_garbage(store_on(db.database, blobs=blobs))


@quick_on_sqlite
def test_a_worker_cannot_write_to_an_attempt_that_reuses_a_deleted_id(db: StoreFixture, blobs: BlobFolder) -> None:
    job_id = db.submit(max_restarts=0)
    stale = db.running(job_id, db.worker())
    db.expire(stale)
    assert db.rescue(stale)
    db.cancel(job_id)
    assert db.job(job_id).state == JobState.CANCELLED
    delete(db, job_id)
    fresh = db.running(db.submit(), db.worker())
    for write in (
        lambda: db.record(stale, seq=0, lines=[NewLines(0, "stdout", ["late"])]),
        lambda: db.end(stale, EndReason.COMPLETED),
    ):
        with pytest.raises(StaleClaim):
            write()
    assert not db.rescue(stale)
    assert db.attempt(fresh).ended_at is None
    assert db.job(fresh.job_id).log_lines == 0


def test_unfinished_copies_are_removed_after_a_day(blobs: BlobFolder, tmp_path: Path) -> None:
    blobs.remove_abandoned()  # nothing was ever copied
    blob = blobs.add(BytesIO(b"whole"))
    incoming = blobs.root / "incoming"
    old, young = incoming / "old", incoming / "young"
    for path, age in ((old, 25 * 3600), (young, 23 * 3600)):
        path.write_bytes(b"part")
        os.utime(path, (time.time() - age, time.time() - age))
    blobs.remove_abandoned()
    assert [path.name for path in incoming.iterdir()] == ["young"]
    assert blobs.path(blob.sha256).exists()


def test_deletions_use_only_indexes_on_job_ids(db: StoreFixture) -> None:
    assert db.read(lambda session: removal.list_deleted_among(session, [])) == []
    with pytest.raises(NotFound):
        db.write(lambda session: deletion.delete_job(session, "job_1"))
    assert db.read(jobs.queued) == []
