"""No blob that a row names is removed, whoever is killed or stands still, and nobody waits for another."""

import hashlib
from io import BytesIO

import pytest
from sqlalchemy import update

from store import housekeeping as cleanup
from store.attempts.facts import Claim
from store.blobs import garbage, holding
from store.blobs.facts import Put
from store.blobs.folder import BlobFolder
from store.db.database import now_us
from store.jobs import deletion
from store.output.facts import NewCheckpoint
from store.store import Store
from store.tables import BlobHold, RemovedBlob
from store.worker.verbs import WorkerStore
from tests.databases import quick_on_postgresql, quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import Conflict
from torchyard.contract.states import EndReason

SAME = b"the same bytes"
SHA256 = hashlib.sha256(SAME).hexdigest()


@pytest.fixture
def store(db: StoreFixture, blobs: BlobFolder) -> Store:
    return store_on(db.database, blobs=blobs)


def put(store: Store, content: bytes = SAME) -> Put:
    """Publishes a blob as a worker does, and names it nowhere."""
    writer = store.blobs.create()
    writer.copy_from(BytesIO(content), len(content))
    writer.finish()
    return WorkerStore(store, "wrk_1").put("job_1", [writer])


def name(db: StoreFixture, claim: Claim, published: Put) -> None:
    (sha256,) = published.blobs
    files = [ManifestFile(path="state.pt", size=len(SAME), sha256=sha256)]
    db.record(claim, seq=0, put=published, checkpoints=[NewCheckpoint("c", Manifest(step=1, files=files), files)])


def is_stored(store: Store) -> bool:
    return store.blobs.has(SHA256, size=len(SAME))


def deleted(db: StoreFixture, store: Store) -> None:
    """Leaves the blob of a deleted job, which is garbage."""
    claim = db.running(db.submit(), db.worker())
    name(db, claim, put(store))
    db.end(claim, EndReason.COMPLETED)
    db.write(lambda session: deletion.delete_job(session, claim.job_id))


def test_what_was_removed_since_it_was_put_cannot_be_named(db: StoreFixture, store: Store) -> None:
    deleted(db, store)
    claim = db.running(db.submit(), db.worker())
    published = put(store)
    assert cleanup.collect_garbage(store) == 1
    with pytest.raises(Conflict):
        name(db, claim, published)
    assert db.everything()["checkpoints"] == []
    name(db, claim, put(store))
    db.write(lambda session: garbage.add_blobs(session, [SHA256]))
    assert cleanup.collect_garbage(store) == 0
    assert is_stored(store)


@quick_on_sqlite
def test_what_was_named_first_is_not_removed(db: StoreFixture, store: Store) -> None:
    deleted(db, store)
    name(db, db.running(db.submit(), db.worker()), put(store))
    assert cleanup.collect_garbage(store) == 0
    assert is_stored(store)


@quick_on_sqlite
def test_what_a_killed_collector_has_taken_is_removed_by_another_after_its_time(db: StoreFixture, store: Store) -> None:
    deleted(db, store)
    claim = db.running(db.submit(), db.worker())
    killed = db.write(lambda session: garbage.take_unreferenced(session, limit=10))
    assert killed.blobs == {SHA256}
    with pytest.raises(Conflict):  # it may still be about to remove it
        name(db, claim, put(store))
    assert cleanup.collect_garbage(store) == 0
    db.let_removals_end()
    assert cleanup.collect_garbage(store) == 1
    assert not is_stored(store)
    db.write(lambda session: garbage.finish(session, killed, removed=killed.blobs))  # it wakes up
    name(db, claim, put(store))
    assert is_stored(store)


@quick_on_sqlite
def test_a_collector_that_stood_still_for_too_long_removes_nothing(db: StoreFixture, store: Store) -> None:
    deleted(db, store)
    assert not store.blobs.remove(SHA256, in_time=lambda: False)
    assert is_stored(store)

    def published_meanwhile() -> bool:
        put(store)
        return False

    assert not store.blobs.remove(SHA256, in_time=published_meanwhile)
    assert is_stored(store)
    assert [*store.blobs.root.glob("incoming/*")] == []


@quick_on_sqlite
def test_what_is_named_half_a_day_later_is_put_again(db: StoreFixture, store: Store) -> None:
    claim, published = db.running(db.submit(), db.worker()), put(store)
    with pytest.raises(Conflict):
        name(db, claim, Put(published.blobs, published.began_at - 13 * 3600 * 10**6))
    name(db, claim, published)


@quick_on_sqlite
def test_removals_are_forgotten_after_a_day(db: StoreFixture, store: Store) -> None:
    deleted(db, store)
    assert cleanup.collect_garbage(store) == 1
    for hours, known in ((23, 1), (25, 0)):
        ago = update(RemovedBlob).values(removed_by=now_us() - hours * 3600 * 10**6)
        db.write(lambda session, ago=ago: session.execute(ago))
        db.write(lambda session: garbage.take_unreferenced(session, limit=1))
        assert len(db.everything()["removed_blobs"]) == known


@quick_on_postgresql
def test_every_named_blob_is_stored_whatever_runs_together(db: StoreFixture, store: Store) -> None:
    def train() -> None:
        for _ in range(2):
            claim = db.running(db.submit(), db.worker())
            while True:
                try:
                    name(db, claim, put(store))
                except Conflict:
                    continue
                break
            assert is_stored(store)
            db.end(claim, EndReason.COMPLETED)
            db.write(lambda session: deletion.delete_job(session, claim.job_id))  # noqa: B023

    def collect() -> None:
        for _ in range(10):
            cleanup.collect_garbage(store)

    answers = run_together(train, train, collect, collect)
    assert [answer for answer in answers if answer is not None] == []
    cleanup.collect_garbage(store)
    assert not is_stored(store)


@quick_on_sqlite
def test_who_copies_all_blobs_and_stands_still_is_told(db: StoreFixture, store: Store) -> None:
    deleted(db, store)
    with pytest.raises(Conflict, match="stood still"), holding.all_held(db.database):
        assert cleanup.collect_garbage(store) == 0
        late = update(BlobHold).values(held_until=now_us() - 1)
        db.write(lambda session: session.execute(late))
        assert cleanup.collect_garbage(store) == 1
    with holding.all_held(db.database):
        pass
    assert db.everything()["blob_holds"] == []
