"""Bundles in the store: who keeps their blobs, and when unused ones and unfinished uploads go."""

from contextlib import closing
from datetime import timedelta
import os
import time

import pytest
from sqlalchemy import select, update

from store import housekeeping as cleanup
from store.blobs.folder import BlobFolder
from store.blobs.partial import PartialFile
from store.bundles import bundles, library, upload
from store.bundles.folder import Uploads
from store.bundles.upload import Upload
from store.db.database import now_us
from store.jobs import deletion
from store.jobs import submit as submission
from store.jobs.submission import Submission
from store.store import Store
from store.tables import Bundle, BundleUse, Garbage
from store.team.callers import Caller
from tests.api.bundles import Packed, packed
from tests.sessions import write
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.errors import Conflict, InvalidSpec, NotFound, TooManyRequests
from torchyard.contract.spec.spec import Spec, parse_spec
from torchyard.contract.team.roles import Role

ADA, BOB = Caller("ada", Role.MEMBER), Caller("bob", Role.MEMBER)
MONTH = timedelta(days=30)


@pytest.fixture
def store(db: StoreFixture, blobs: BlobFolder) -> Store:
    return store_on(db.database, blobs=blobs)


def request_of(bundle: Packed, *, offset: int = 0) -> Upload:
    return Upload(bundle.sha256, len(bundle.tar), offset, max_bytes=1 << 20, max_files=10)


def begin(store: Store, bundle: Packed, *, offset: int = 0, caller: Caller = ADA) -> PartialFile:
    opened = upload.begin(store, request_of(bundle, offset=offset), caller=caller)
    assert isinstance(opened, PartialFile)
    return opened


def send(store: Store, bundle: Packed, *, caller: Caller = ADA) -> None:
    with closing(begin(store, bundle, caller=caller)) as partial:
        upload.append(partial, request_of(bundle), bundle.tar)
        assert upload.finish(store, partial, request_of(bundle), caller=caller) is not None


def spec_of(bundle: Packed) -> Spec:
    return parse_spec({"trainer": "script", "config": {"code": bundle_url(bundle.sha256), "entrypoint": "a.py"}})


def submit(store: Store, bundle: Packed, *, caller: Caller = ADA) -> str:
    """Submits a job, and returns its id."""
    return submission.submit_alone(store, Submission(spec_of(bundle), caller, "private")).job.id


def age(db: StoreFixture, bundle: Packed, *, days: int) -> None:
    old = now_us() - days * 24 * 3600 * 1_000_000
    change = update(Bundle).where(Bundle.sha256 == bundle.sha256).values(last_used_at=old)
    db.write(lambda session: session.execute(change))


def owners(db: StoreFixture) -> set[str]:
    return db.read(lambda session: set(session.scalars(select(Bundle.owner))))


def test_a_blob_goes_with_the_last_bundle_that_needs_it(db: StoreFixture, store: Store) -> None:
    bundle = packed()
    send(store, bundle)
    send(store, bundle, caller=BOB)
    assert cleanup.collect_garbage(store) == 0
    library.remove(store, bundle.sha256, caller=ADA)
    assert cleanup.collect_garbage(store) == 0
    assert store.blobs.path(bundle.sha256).read_bytes() == bundle.tar
    library.remove(store, bundle.sha256, caller=BOB)
    assert cleanup.collect_garbage(store) == 1
    assert not store.blobs.path(bundle.sha256).exists()
    assert db.read(lambda session: session.scalars(select(Garbage)).all()) == []


def test_a_bundle_is_removed_when_nobody_used_it_for_long(db: StoreFixture, store: Store) -> None:
    old, used, new = (packed(seed=seed) for seed in range(3))
    for bundle in (old, used, new):
        send(store, bundle)
    job_id = submit(store, used)
    for bundle, days in ((old, 31), (used, 31), (new, 29)):
        age(db, bundle, days=days)
    assert library.remove_unused(store, age=None) == 0
    assert library.remove_unused(store, age=MONTH) == 1
    kept = db.read(lambda session: set(session.scalars(select(Bundle.sha256))))
    assert kept == {used.sha256, new.sha256}
    assert cleanup.collect_garbage(store) == 1
    db.cancel(job_id)
    assert library.remove_unused(store, age=MONTH) == 0, "the job is still stored, and can be retried"
    db.write(lambda session: deletion.delete_job(session, job_id))
    assert db.read(lambda session: session.scalars(select(BundleUse)).all()) == []
    assert library.remove_unused(store, age=MONTH) == 1


def test_a_bundle_with_a_name_stays_until_another_one_has_it(db: StoreFixture, store: Store) -> None:
    old, new = packed(seed=1), packed(seed=2)
    for bundle in (old, new):
        send(store, bundle)
    write(store, bundles.give_name, old.sha256, "mnist", caller=ADA)
    age(db, old, days=31)
    assert library.remove_unused(store, age=MONTH) == 0
    assert write(store, bundles.give_name, new.sha256, "mnist", caller=ADA).name == "mnist"
    age(db, old, days=31)
    assert library.remove_unused(store, age=MONTH) == 1
    with pytest.raises(NotFound):
        write(store, bundles.give_name, old.sha256, "mnist", caller=ADA)
    with pytest.raises(NotFound):
        write(store, bundles.give_name, new.sha256, "mnist", caller=BOB)


def test_a_job_of_another_user_does_not_keep_a_bundle(db: StoreFixture, store: Store) -> None:
    bundle = packed()
    send(store, bundle)
    send(store, bundle, caller=BOB)
    submit(store, bundle, caller=BOB)
    age(db, bundle, days=31)
    assert library.remove_unused(store, age=MONTH) == 1
    assert owners(db) == {"bob"}
    with pytest.raises(Conflict, match="is used by job"):
        library.remove(store, bundle.sha256, caller=BOB)


def test_a_submission_beside_a_removal_has_the_bundle_or_is_refused(db: StoreFixture, store: Store) -> None:
    for seed in range(5):
        bundle = packed(seed=seed)
        send(store, bundle)
        age(db, bundle, days=31)
        submitted, removed, expired = run_together(
            lambda bundle=bundle: submit(store, bundle),
            lambda bundle=bundle: library.remove(store, bundle.sha256, caller=ADA),
            lambda: library.remove_unused(store, age=MONTH),
        )
        has = db.read(lambda session, sha256=bundle.sha256: session.get(Bundle, ("ada", sha256))) is not None
        assert isinstance(submitted, str) == has, (submitted, removed, expired)
        assert has or isinstance(submitted, InvalidSpec)
        assert removed is None or isinstance(removed, (Conflict, NotFound))


def test_an_upload_that_got_nothing_for_a_day_is_removed(store: Store) -> None:
    old, new = packed(seed=1), packed(seed=2)
    uploads = Uploads(store.blobs.uploads)
    for bundle in (old, new):
        with closing(begin(store, bundle)) as partial:
            upload.append(partial, request_of(bundle), bundle.tar[:100])
    found = uploads.find("ada", old.sha256)
    assert found is not None
    a_day_ago = time.time() - 25 * 3600
    os.utime(found.path, (a_day_ago, a_day_ago))
    with closing(PartialFile(found.path, at=100)) as busy, busy.locked():
        assert uploads.remove_abandoned() == 0
    assert library.remove_unused(store, age=MONTH) == 0
    assert [item.sha256 for item in uploads.list_uploads("ada")] == [new.sha256]


def test_a_request_whose_upload_was_removed_cannot_append(store: Store) -> None:
    bundle = packed()
    with closing(begin(store, bundle)) as partial:
        upload.append(partial, request_of(bundle), bundle.tar[:100])
        library.remove(store, bundle.sha256, caller=ADA)
        with pytest.raises(Conflict) as raised:
            upload.append(partial, request_of(bundle), bundle.tar[100:])
        assert raised.value.received == 0
        send(store, bundle)
        row = upload.finish(store, partial, request_of(bundle), caller=ADA)
        assert row is not None, "another request has completed it"
    assert store.blobs.path(bundle.sha256).read_bytes() == bundle.tar


def test_of_two_requests_at_one_place_one_continues(store: Store) -> None:
    bundle = packed()
    with closing(begin(store, bundle)) as first, closing(begin(store, bundle)) as second:
        upload.append(first, request_of(bundle), bundle.tar[:100])
        with pytest.raises(Conflict) as raised:
            upload.append(second, request_of(bundle), bundle.tar[:50])
        assert raised.value.received == 100
        with first.locked(), pytest.raises(TooManyRequests):
            upload.append(second, request_of(bundle), b"x")


def test_the_parts_of_users_are_separate_files(store: Store) -> None:
    bundle = packed()
    for caller in (ADA, BOB):
        with closing(begin(store, bundle, caller=caller)) as partial:
            upload.append(partial, request_of(bundle), bundle.tar[:100])
    files = list(store.blobs.uploads.rglob(f"{bundle.sha256}.*"))
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files} == {0o700}


def test_a_bundle_whose_blob_is_damaged_is_not_complete(db: StoreFixture, store: Store) -> None:
    bundle = packed()
    send(store, bundle)
    found = library.find_complete(store, "ada", bundle.sha256)
    assert found is not None
    store.blobs.path(bundle.sha256).write_bytes(b"short")
    assert library.find_complete(store, "ada", bundle.sha256) is None
