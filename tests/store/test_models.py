"""Models in the store: versions, who reads and changes them, which blobs they keep, and what counts in the quota."""

from concurrent.futures import ThreadPoolExecutor, wait
from io import BytesIO
from typing import Any

import pytest
from sqlalchemy import select

from store import housekeeping as cleanup
from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.jobs import requests
from store.jobs import submit as submission
from store.jobs.facts import JobFacts
from store.jobs.submission import Submission
from store.models import models
from store.models.facts import ModelFilter, ModelVersionFacts, NewVersion
from store.output import checkpoints
from store.output.facts import NewCheckpoint
from store.store import Store
from store.tables import AuditEntry, Garbage, Job
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import read, write
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import Conflict, Forbidden, InvalidSpec, NotFound, QuotaExceeded
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Resource, Role, Visibility

ADA, BOB = Caller("ada", Role.MEMBER), Caller("bob", Role.MEMBER)
EVERYTHING = ModelFilter()
STATE = b"state"


@pytest.fixture
def store(db: StoreFixture, blobs: BlobFolder) -> Store:
    for name in ("ada", "bob"):
        db.write(lambda session, name=name: users.add(session, name, Role.MEMBER, caller=SERVICE))
    return store_on(db.database, blobs=blobs)


def saved(blobs: BlobFolder, *, step: int, content: bytes = STATE, loss: float = 0.5) -> NewCheckpoint:
    blob = blobs.add(BytesIO(content))
    file = ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)
    manifest = Manifest(step=step, epoch=step, end_of_epoch=True, metrics={"val/loss": loss}, files=[file])
    return NewCheckpoint(f"step-{step}", manifest, [file])


class Trained:
    """A job of ada's that saves checkpoints."""

    def __init__(self, db: StoreFixture, blobs: BlobFolder, **spec: Any) -> None:
        self.db, self.blobs = db, blobs
        self.id = db.submit(**spec)
        self.claim: Claim = db.running(self.id, db.worker())
        self._batches = 0

    def save(self, step: int, content: bytes = STATE, loss: float = 0.5) -> None:
        new = saved(self.blobs, step=step, content=content, loss=loss)
        self.db.record(self.claim, seq=self._batches, checkpoints=[new])
        self._batches += 1

    def end(self) -> None:
        self.db.end(self.claim, EndReason.COMPLETED)

    def delete(self, store: Store) -> None:
        write(store, requests.act, "delete", self.id, caller=SERVICE)
        cleanup.collect_garbage(store)

    def steps(self) -> list[int]:
        found = self.db.read(lambda session: checkpoints.list_newest_first(session, self.id))
        return [each.step for each in found]


@pytest.fixture
def trained(db: StoreFixture, store: Store, blobs: BlobFolder) -> Trained:
    """It has one checkpoint, and has ended."""
    job = Trained(db, blobs)
    job.save(1)
    job.end()
    return job


def add(
    store: Store,
    job_id: str,
    name: str = "digits",
    ref: str = "latest",
    *,
    visibility: Visibility | None = None,
    caller: Caller = ADA,
) -> ModelVersionFacts:
    return write(store, models.add_version, NewVersion(name, job_id, ref, visibility, "private", caller))[0]


def find(store: Store, name: str = "digits", version: int | None = None, **who: Any) -> ModelVersionFacts:
    caller, owner = who.get("caller", ADA), who.get("owner")
    with store.read() as session:
        return models.find_version(session, owner, name, version, caller=caller)


def stored(db: StoreFixture, owner: str = "ada") -> int:
    return db.read(lambda session: quotas.stored_bytes(session, owner))


def limit(db: StoreFixture, owner: str, size: int) -> None:
    db.write(lambda session: quotas.set_limits(session, "user", owner, {Resource.STORED_BYTES: size}, caller=SERVICE))


@quick_on_sqlite
def test_a_version_keeps_the_files_when_the_job_is_deleted(db: StoreFixture, store: Store, trained: Trained) -> None:
    kept = add(store, trained.id)
    assert (kept.ref, kept.step, kept.epoch, kept.metrics) == ("ada/digits@1", 1, 1, {"val/loss": 0.5})
    assert (kept.trainer, kept.size, kept.created_by) == ("script", len(STATE), "ada")
    trained.delete(store)
    assert find(store) == kept
    assert store.blobs.path(kept.main_file["sha256"]).read_bytes() == STATE
    assert cleanup.collect_garbage(store) == 0
    write(store, models.remove, "ada", "digits", 1, caller=ADA)
    assert cleanup.collect_garbage(store) == 1
    assert not store.blobs.path(kept.main_file["sha256"]).exists()
    assert db.read(lambda session: session.scalars(select(Garbage)).all()) == []


@quick_on_sqlite
def test_a_blob_stays_while_another_version_has_it(store: Store, trained: Trained) -> None:
    add(store, trained.id, "one")
    add(store, trained.id, "two")
    trained.delete(store)
    write(store, models.remove, "ada", "one", caller=ADA)
    assert cleanup.collect_garbage(store) == 0
    write(store, models.remove, "ada", "two", caller=ADA)
    assert cleanup.collect_garbage(store) == 1


def test_the_newest_checkpoint_again_answers_the_version_that_has_it(
    store: Store, blobs: BlobFolder, db: StoreFixture
) -> None:
    job = Trained(db, blobs)
    job.save(1)
    job.save(2, b"later")
    one = add(store, job.id, ref="step-1")
    assert write(store, models.add_version, NewVersion("digits", job.id, "step-1", None, "private", ADA)) == (
        one,
        False,
    )
    assert add(store, job.id, ref="step-2").version == 2
    assert add(store, job.id, ref="step-1").version == 3
    query = select(AuditEntry.action, AuditEntry.who).where(AuditEntry.action.startswith("model."))
    actions = db.read(lambda session: session.execute(query).all())
    assert actions == [("model.add", "ada")] * 3


@pytest.mark.parametrize("version", [2, None])
def test_a_number_is_never_given_twice(
    store: Store, blobs: BlobFolder, db: StoreFixture, version: int | None, approved: Approved
) -> None:
    job = Trained(db, blobs)
    for step in (1, 2):
        job.save(step, bytes(step))
        add(store, job.id)
    write(store, models.remove, "ada", "digits", version, caller=ADA)
    assert add(store, job.id, visibility="team").version == 3 if version is None else add(store, job.id).version == 3
    with pytest.raises(NotFound) as raised:
        find(store, version=2)
    assert str(raised.value) == approved.of_row("message")


def test_a_model_without_versions_is_not_there(store: Store, trained: Trained, approved: Approved) -> None:
    add(store, trained.id)
    write(store, models.remove, "ada", "digits", caller=ADA)
    for ask in (
        lambda: read(store, models.find, "ada", "digits", caller=ADA),
        lambda: read(store, models.list_versions, "ada", "digits", caller=ADA, limit=9),
        lambda: find(store),
        lambda: write(store, models.remove, "ada", "digits", caller=ADA),
        lambda: write(store, models.share, "ada", "digits", "team", caller=ADA),
    ):
        with pytest.raises(NotFound) as raised:
            ask()
        assert str(raised.value) == approved("message")
    assert read(store, models.list_models, ModelFilter(), caller=ADA, limit=9).items == []


def test_who_reads_and_changes_a_model(store: Store, trained: Trained, approved: Approved) -> None:
    add(store, trained.id)
    with pytest.raises(NotFound) as raised:
        find(store, owner="ada", caller=BOB)
    assert str(raised.value) == approved("message")
    with pytest.raises(NotFound) as raised:
        write(store, models.remove, "ada", "digits", caller=BOB)
    assert str(raised.value) == approved("there model")
    write(store, models.share, "ada", "digits", "team", caller=ADA)
    assert find(store, owner="ada", caller=BOB).version == 1
    with pytest.raises(NotFound) as raised:
        find(store, caller=BOB)
    assert str(raised.value) == approved("there model again")
    for change in (
        lambda: write(store, models.remove, "ada", "digits", 1, caller=BOB),
        lambda: write(store, models.share, "ada", "digits", "private", caller=BOB),
    ):
        with pytest.raises(Forbidden, match="belongs to ada"):
            change()
    write(store, models.remove, "ada", "digits", 1, caller=SERVICE)
    with pytest.raises(NotFound):
        find(store)


def test_the_job_of_a_shared_model_is_told_to_who_may_read_it(db: StoreFixture, store: Store, trained: Trained) -> None:
    add(store, trained.id, visibility="team")
    assert not find(store, owner="ada", caller=BOB).shows_job
    assert find(store).shows_job
    assert read(store, models.list_models, ModelFilter(), caller=BOB, limit=9).items[0].newest.shows_job is False
    of_job = ModelFilter(job=trained.id)
    assert read(store, models.list_models, of_job, caller=BOB, limit=9).items == []
    assert len(read(store, models.list_models, of_job, caller=ADA, limit=9).items) == 1
    db.write(lambda session: setattr(session.get_one(Job, trained.id), "visibility", "team"))
    assert find(store, owner="ada", caller=BOB).shows_job
    trained.delete(store)
    assert not find(store, owner="ada", caller=BOB).shows_job


@quick_on_sqlite
def test_a_checkpoint_of_a_job_that_one_may_read_is_kept_in_ones_own_model(
    db: StoreFixture, store: Store, blobs: BlobFolder
) -> None:
    private, shared = Trained(db, blobs), Trained(db, blobs, visibility="team")
    for job in (private, shared):
        job.save(1)
    with pytest.raises(NotFound, match="there is no job"):
        add(store, private.id, caller=BOB)
    assert add(store, shared.id, caller=BOB).ref == "bob/digits@1"


@quick_on_sqlite
def test_another_visibility_of_a_model_that_is_there_is_refused(
    store: Store, blobs: BlobFolder, db: StoreFixture, approved: Approved
) -> None:
    job = Trained(db, blobs)
    job.save(1)
    add(store, job.id, visibility="team")
    job.save(2, b"2")
    with pytest.raises(Conflict) as raised:
        add(store, job.id, visibility="private")
    assert str(raised.value) == approved("message")
    assert add(store, job.id, visibility="team").version == 2
    assert add(store, job.id, ref="step-1").version == 3


def test_lists_are_in_pages_and_filtered(store: Store, trained: Trained) -> None:
    for name in ("b", "a", "c"):
        add(store, trained.id, name, visibility="team")
    add_of_bob = Trained(trained.db, trained.blobs, visibility="team")
    add_of_bob.save(1, b"bobs")
    add(store, add_of_bob.id, "b", caller=BOB, visibility="team")
    add(store, add_of_bob.id, "z", caller=BOB)

    def names(where: ModelFilter = EVERYTHING, *, limit: int = 9, after: tuple[str, str] | None = None) -> list[str]:
        found = read(store, models.list_models, where, caller=ADA, limit=limit, after=after)
        return [f"{item.owner}/{item.name}" for item in found.items]

    assert names() == ["ada/a", "ada/b", "ada/c", "bob/b"]
    assert names(limit=2) == ["ada/a", "ada/b"]
    assert names(after=("ada", "b")) == ["ada/c", "bob/b"]
    assert names(ModelFilter(name="b")) == ["ada/b", "bob/b"]
    assert names(ModelFilter(owner="bob")) == ["bob/b"]


def test_versions_are_listed_newest_first_without_cards(store: Store, blobs: BlobFolder, db: StoreFixture) -> None:
    job = Trained(db, blobs)
    db.write(lambda session: setattr(session.get_one(Job, job.id), "card", {"parameters": 7}))
    for step in (1, 2, 3):
        job.save(step, bytes(step))
        add(store, job.id)
    found = read(store, models.list_versions, "ada", "digits", caller=ADA, limit=2)
    assert ([item.version for item in found.items], found.has_more) == ([3, 2], True)
    assert {item.card is None for item in found.items} == {True}
    assert [
        each.version for each in read(store, models.list_versions, "ada", "digits", caller=ADA, limit=2, before=2).items
    ] == [1]
    assert find(store, version=2).card == {"parameters": 7}
    model = read(store, models.find, "ada", "digits", caller=ADA)
    assert (model.versions, model.size, model.newest.version) == (3, 6, 3)


@quick_on_sqlite
def test_bytes_count_once_while_the_checkpoint_is_there_and_after_its_job(
    db: StoreFixture, store: Store, trained: Trained
) -> None:
    before = stored(db)
    add(store, trained.id)
    add(store, trained.id, "again")
    assert stored(db) == before
    trained.delete(store)
    assert stored(db) == len(STATE)
    write(store, models.remove, "ada", "again", caller=ADA)
    assert stored(db) == len(STATE)
    write(store, models.remove, "ada", "digits", caller=ADA)
    assert stored(db) == 0


@quick_on_sqlite
def test_a_checkpoint_of_another_users_job_counts_for_who_keeps_it(
    db: StoreFixture, store: Store, blobs: BlobFolder, approved: Approved
) -> None:
    job = Trained(db, blobs, visibility="team")
    job.save(1)
    before = stored(db)
    limit(db, "bob", len(STATE) - 1)
    with pytest.raises(QuotaExceeded) as raised:
        add(store, job.id, caller=BOB)
    assert str(raised.value) == approved("message")
    with pytest.raises(NotFound):
        find(store, caller=BOB)
    limit(db, "bob", len(STATE))
    add(store, job.id, caller=BOB)
    assert (stored(db, "bob"), stored(db)) == (len(STATE), before)


@quick_on_sqlite
def test_a_kept_checkpoint_is_not_trimmed_with_its_job(db: StoreFixture, store: Store, blobs: BlobFolder) -> None:
    job = Trained(db, blobs, checkpoint={"keep_last": 1})
    job.save(1, b"best", loss=0.1)
    job.save(2, b"kept", loss=0.5)
    add(store, job.id)
    for step in (3, 4):
        job.save(step, bytes(step), loss=0.5)
    assert job.steps() == [4, 2, 1]
    write(store, models.remove, "ada", "digits", caller=ADA)
    job.save(5, b"5", loss=0.5)
    assert job.steps() == [5, 1]


@quick_on_sqlite
def test_a_model_of_another_user_keeps_the_files_but_not_the_jobs_checkpoint(
    db: StoreFixture, store: Store, blobs: BlobFolder
) -> None:
    job = Trained(db, blobs, visibility="team", checkpoint={"keep_last": 1})
    job.save(1, b"best", loss=0.1)
    job.save(2, b"kept", loss=0.5)
    kept = add(store, job.id, caller=BOB)
    job.save(3, b"3", loss=0.5)
    cleanup.collect_garbage(store)
    assert job.steps() == [3, 1]
    assert store.blobs.path(kept.main_file["sha256"]).read_bytes() == b"kept"
    with pytest.raises(NotFound, match="no longer"):
        add(store, job.id, ref="step-2")


def start_from(store: Store, ref: str, *, caller: Caller = ADA) -> JobFacts:
    spec = {"trainer": "script", "config": {"code": "file:///code"}, "init_from": ref}
    return submission.submit_alone(store, Submission(parse_spec(spec), caller, "private")).job


def refused(store: Store, ref: str, *, caller: Caller = ADA) -> str:
    with pytest.raises(InvalidSpec) as caught:
        start_from(store, ref, caller=caller)
    (wrong,) = caught.value.errors
    assert wrong.field == "init_from"
    return wrong.message


@quick_on_sqlite
def test_a_job_starts_from_the_version_that_it_named_and_keeps_its_files(
    db: StoreFixture, store: Store, blobs: BlobFolder
) -> None:
    job = Trained(db, blobs)
    for step, content in ((1, b"one"), (2, b"two!")):
        job.save(step, content)
        add(store, job.id)
    job.end()
    job.delete(store)
    newest, older = start_from(store, "model:digits"), start_from(store, "model:ada/digits@1")
    for made, version, size in ((newest, 2, 4), (older, 1, 3)):
        initial = made.initial
        assert initial is not None
        assert (initial.ref, initial.size, initial.step) == (f"model:ada/digits@{version}", size, version)
        assert parse_spec(db.job(made.id).spec).init_from == initial.ref
    before = stored(db)
    write(store, models.remove, "ada", "digits", caller=ADA)
    assert cleanup.collect_garbage(store) == 0
    assert stored(db) == before, "what was removed counts as long as a job needs it"
    for made in (newest, older):
        assert made.initial is not None
        assert store.blobs.path(made.initial.files[0]["sha256"]).exists()
        db.cancel(made.id)
    assert cleanup.collect_garbage(store) == 2
    assert stored(db) == before - 7


def test_a_job_starts_only_from_a_model_that_its_owner_may_read(
    store: Store, trained: Trained, approved: Approved
) -> None:
    add(store, trained.id)
    assert refused(store, "model:ada/digits", caller=BOB) == approved("refused")
    assert refused(store, "model:digits", caller=BOB) == approved("there model")
    assert refused(store, "model:digits@2") == approved("model version")
    write(store, models.share, "ada", "digits", "team", caller=ADA)
    initial = start_from(store, "model:ada/digits", caller=BOB).initial
    assert initial is not None
    assert (initial.ref, initial.source_job) == ("model:ada/digits@1", None), "bob may not read the job"
    own = start_from(store, "model:digits").initial
    assert own is not None
    assert own.source_job == trained.id


def test_a_job_beside_the_removal_of_its_model_has_the_files_or_is_refused(
    store: Store, blobs: BlobFolder, db: StoreFixture
) -> None:
    for turn in range(2):
        job = Trained(db, blobs)
        job.save(1, content := f"turn {turn}".encode())
        job.end()
        add(store, job.id)
        job.delete(store)
        made, _ = run_together(
            lambda: start_from(store, "model:digits"), lambda: write(store, models.remove, "ada", "digits", caller=ADA)
        )
        cleanup.collect_garbage(store)
        assert isinstance(made, JobFacts | InvalidSpec), made
        if isinstance(made, JobFacts):
            assert made.initial is not None
            assert store.blobs.path(made.initial.files[0]["sha256"]).read_bytes() == content


@quick_on_sqlite
def test_versions_do_not_let_a_job_store_more_than_the_quota(db: StoreFixture, store: Store, blobs: BlobFolder) -> None:
    job = Trained(db, blobs)
    limit(db, "ada", 60)
    kept = 0
    for step in range(1, 12):
        job.save(step, bytes(10), loss=1 / step)
        try:
            add(store, job.id)
            kept += 1
        except QuotaExceeded:
            pass
    assert kept >= 5
    assert stored(db) <= 60 + 10, "the newest, which is the best one, is always kept"


@quick_on_sqlite
def test_there_is_a_most_of_versions(
    store: Store, trained: Trained, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr(models, "MOST_VERSIONS", 1)
    add(store, trained.id)
    with pytest.raises(Conflict) as raised:
        add(store, trained.id, "other")
    assert str(raised.value) == approved("message")
    assert [item.name for item in read(store, models.list_models, ModelFilter(), caller=ADA, limit=9).items] == [
        "digits"
    ]


def test_adds_at_once_get_different_numbers(store: Store, blobs: BlobFolder, db: StoreFixture) -> None:
    job = Trained(db, blobs)
    for step in range(1, 5):
        job.save(step, bytes(step))
    made = run_together(*(lambda step=step: add(store, job.id, ref=f"step-{step}") for step in range(1, 5)))
    found = [each for each in made if isinstance(each, ModelVersionFacts)]
    assert sorted(each.version for each in found) == [1, 2, 3, 4], made
    assert len({each.checkpoint_id for each in found}) == 4


def test_an_add_beside_the_deletion_of_its_job_keeps_the_files_or_is_refused(
    store: Store, blobs: BlobFolder, db: StoreFixture
) -> None:
    for turn in range(2):
        job = Trained(db, blobs)
        job.save(1, content := f"turn {turn}".encode())
        job.end()
        made, _ = run_together(lambda job=job: add(store, job.id), lambda job=job: job.delete(store))
        cleanup.collect_garbage(store)
        assert isinstance(made, ModelVersionFacts | NotFound), made
        if isinstance(made, ModelVersionFacts):
            assert store.blobs.path(made.main_file["sha256"]).read_bytes() == content


def test_an_add_beside_the_removal_of_its_checkpoint_keeps_the_files_or_is_refused(
    store: Store, blobs: BlobFolder, db: StoreFixture
) -> None:
    job = Trained(db, blobs, checkpoint={"keep_last": 1})
    job.save(1, b"best", loss=0.1)
    for step in range(2, 7):
        made, _ = run_together(
            lambda step=step: add(store, job.id, f"of-{step}", f"step-{step - 1}"),
            lambda step=step: job.save(step, f"step {step}".encode()),
        )
        cleanup.collect_garbage(store)
        assert isinstance(made, ModelVersionFacts | NotFound), made
        if isinstance(made, ModelVersionFacts):
            assert store.blobs.path(made.main_file["sha256"]).exists()


def test_a_version_that_a_transaction_has_found_is_removed_after_it(
    store: Store, trained: Trained, db: StoreFixture
) -> None:
    add(store, trained.id)
    with ThreadPoolExecutor(1) as pool:
        with store.write("other") as session:
            found = models.find_version(session, None, "digits", 1, caller=ADA, locked=True)
            removal = pool.submit(write, store, models.remove, "ada", "digits", caller=ADA)
            assert not wait([removal], timeout=0.1).done
            assert models.find_version(session, None, "digits", None, caller=ADA) == found
        removal.result()
    with pytest.raises(NotFound):
        find(store)
