"""Jobs that start from a checkpoint of another job: what they name, what they keep, and what nobody else may name."""

from io import BytesIO
from typing import Any

import pytest

from store import housekeeping as cleanup
from store.blobs.folder import BlobFolder
from store.jobs import batches, deletion, initial_files, listing, shared_commits, show
from store.jobs import submit as submission
from store.jobs.facts import JobFacts
from store.jobs.submission import KeyedRequest, Retry, Submission, Submitted
from store.output import checkpoints
from store.output.facts import NewCheckpoint
from store.store import Store
from store.team import access, quotas
from store.team.callers import Caller
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import read
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import InvalidSpec, NotFound
from torchyard.contract.jobs.filters import JobQuery
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

ADA, BOB, ROOT = Caller("ada", Role.MEMBER), Caller("bob", Role.MEMBER), Caller("root", Role.OPERATOR)
SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}
DIGITS: dict[str, Any] = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}}
TEXTS = {"data": {"source": "file:///texts"}}
NOBODY = f"job_{'0' * 32}"
MALFORMED = [
    *("", "best", "digits/best", "job_1/best", "file:///etc/passwd", "model:", "model:a/b/c", "model:a@0", "model:a@x"),
    *(f"{NOBODY}{rest}" for rest in ("", "/../x", "/best\n", "/ckpt_1", "/epoch--1", "/best/state.pt")),
]


@pytest.fixture
def store(db: StoreFixture, blobs: BlobFolder) -> Store:
    return store_on(db.database, blobs=blobs)


def saved(blobs: BlobFolder, content: bytes, *, step: int) -> NewCheckpoint:
    blob = blobs.add(BytesIO(content))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    manifest = Manifest(step=step, epoch=step, end_of_epoch=True, metrics={"val/loss": 1 / step}, files=files)
    return NewCheckpoint(f"epoch-{step}", manifest, files)


def trained(db: StoreFixture, blobs: BlobFolder, *contents: bytes, first: int = 1, **spec: Any) -> str:
    """Returns an ended job with a checkpoint of each content."""
    job_id = db.submit(**spec)
    claim = db.running(job_id, db.worker())
    db.record(claim, seq=0, checkpoints=[saved(blobs, content, step=first + n) for n, content in enumerate(contents)])
    db.end(claim, EndReason.COMPLETED)
    return job_id


def submit(store: Store, init_from: str, *, caller: Caller = ADA, key: str | None = None, **spec: Any) -> JobFacts:
    parsed = parse_spec({**SCRIPT, **spec, "init_from": init_from})
    keyed = None if key is None else KeyedRequest(caller.name, key, "f")
    return submission.submit_alone(store, Submission(parsed, caller, "private", keyed)).job


def refused(store: Store, init_from: str, *, caller: Caller = ADA, **spec: Any) -> str:
    with pytest.raises(InvalidSpec) as caught:
        submit(store, init_from, caller=caller, **spec)
    (wrong,) = caught.value.errors
    assert wrong.field == "init_from"
    return wrong.message


def delete(db: StoreFixture, job_id: str) -> None:
    db.write(lambda session: deletion.delete_job(session, job_id))


def collected(store: Store) -> int:
    return cleanup.collect_garbage(store)


def checkpoint_id(db: StoreFixture, job_id: str, ref: str) -> str:
    return db.read(lambda session: checkpoints.resolve(session, access.require_job(session, job_id, ADA), ref)).id


@quick_on_sqlite
def test_a_reference_is_resolved_once_and_stays_what_it_was(db: StoreFixture, store: Store) -> None:
    source = db.submit()
    claim = db.running(source, db.worker())
    db.record(claim, seq=0, checkpoints=[saved(store.blobs, b"one", step=1)])
    job = submit(store, f"{source}/best")
    first = checkpoint_id(db, source, "best")
    db.record(claim, seq=1, checkpoints=[saved(store.blobs, b"two", step=2)])
    assert checkpoint_id(db, source, "best") != first
    told = read(store, show.find_job, job.id, ADA)
    assert parse_spec(db.job(job.id).spec).init_from == f"{source}/{first}"
    for facts in (job.initial, told.initial):
        assert facts is not None
        assert (facts.source_job, facts.source_checkpoint, facts.trainer) == (source, first, "script")
        assert (facts.step, facts.epoch, facts.size) == (1, 1, 3)
        assert [file["path"] for file in facts.files] == ["state.pt"]
    assert read(store, show.find_job, source, ADA).initial is None


@quick_on_sqlite
def test_each_way_to_name_a_checkpoint_works(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one", b"two")
    last = checkpoint_id(db, source, "latest")
    for ref in ("best", "latest", "epoch-2", "step-2", "step-02", last):
        assert parse_spec(db.job(submit(store, f"{source}/{ref}").id).spec).init_from == f"{source}/{last}"


@quick_on_sqlite
def test_what_is_not_there_or_not_ones_own_is_refused_alike(db: StoreFixture, store: Store, approved: Approved) -> None:
    private = trained(db, store.blobs, b"one")
    shared = trained(db, store.blobs, b"two", visibility="team")
    assert refused(store, f"{private}/best", caller=BOB) == approved("refused", private=private)
    assert refused(store, f"{private}/best", caller=ROOT) == approved("refused", private=private)
    assert refused(store, f"{NOBODY}/best") == approved("there", nobody=NOBODY)
    assert "no checkpoint 'epoch-9'" in refused(store, f"{shared}/epoch-9", caller=BOB)
    assert "no checkpoint" in refused(store, f"{shared}/{checkpoint_id(db, private, 'best')}", caller=BOB)
    assert submit(store, f"{shared}/best", caller=BOB).initial is not None
    assert refused(store, "model:cracks@3") == approved("there model")


@pytest.mark.parametrize("ref", MALFORMED)
def test_a_malformed_reference_is_an_error_of_its_field(ref: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec({**SCRIPT, "init_from": ref})
    assert [wrong.field for wrong in caught.value.errors] == ["init_from"]


@quick_on_sqlite
def test_a_recipe_starts_only_from_its_own_kind_and_a_script_from_any(db: StoreFixture, store: Store) -> None:
    script, digits = trained(db, store.blobs, b"one"), trained(db, store.blobs, b"two", **DIGITS)
    assert "script" in refused(store, f"{script}/best", **DIGITS)
    assert "image-classification" in refused(store, f"{digits}/best", trainer="text-classification", config=TEXTS)
    specs: tuple[dict[str, Any], ...] = (DIGITS, {**DIGITS, "mode": "evaluate"}, SCRIPT)
    for spec in specs:
        assert submit(store, f"{digits}/best", **spec).initial is not None


def test_an_evaluation_needs_weights_and_weights_have_one_source() -> None:
    weights = {**DIGITS["config"], "model": {"weights": "DEFAULT"}}
    wrong: tuple[dict[str, Any], ...] = ({"mode": "evaluate"}, {"init_from": "model:a", "config": weights})
    for each in wrong:
        with pytest.raises(InvalidSpec, match=r"not valid") as caught:
            parse_spec({**DIGITS, **each})
        assert "init_from" in caught.value.errors[0].message


@quick_on_sqlite
def test_the_files_are_kept_until_the_job_has_ended(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one")
    job = submit(store, f"{source}/best")
    assert job.initial is not None
    blob = store.blobs.path(job.initial.files[0]["sha256"])
    before = db.read(lambda session: quotas.stored_bytes(session, "ada"))
    delete(db, source)
    assert collected(store) == 0
    assert blob.exists()
    assert db.read(lambda session: quotas.stored_bytes(session, "ada")) == before, "who keeps it has stored it"
    db.cancel(job.id)
    assert collected(store) == 1
    assert not blob.exists()
    told = read(store, show.find_job, job.id, ADA).initial
    assert told is not None
    assert (told.source_job, told.files, told.size) == (source, [], 0), "what it was is still told"
    delete(db, job.id)


@quick_on_sqlite
def test_an_ended_job_leaves_the_files_of_a_source_that_is_there(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one")
    job = submit(store, f"{source}/best")
    db.complete(db.running(job.id, db.worker()))
    assert collected(store) == 0
    assert submit(store, f"{source}/best").initial is not None


def test_a_submission_beside_a_deletion_has_the_files_or_is_refused(db: StoreFixture, store: Store) -> None:
    for number in range(2):
        source = trained(db, store.blobs, b"content %d" % number)
        made, *_ = run_together(
            lambda source=source: submit(store, f"{source}/best"),
            lambda source=source: delete(db, source),
            lambda: collected(store),
        )
        collected(store)
        if isinstance(made, Exception):
            assert isinstance(made, InvalidSpec), made
        else:
            assert isinstance(made, JobFacts)
            assert made.initial is not None
            assert store.blobs.path(made.initial.files[0]["sha256"]).exists()


@quick_on_sqlite
def test_submissions_together_and_batches_each_have_their_own_answer(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one")
    specs = [{"init_from": f"{source}/best"}, {"init_from": f"{NOBODY}/best"}, {}]
    asked = [Submission(parse_spec({**SCRIPT, **more}), ADA, "private") for more in specs]
    good, bad, plain = shared_commits.submit_together(store, asked)
    assert isinstance(good, Submitted)
    assert isinstance(plain, Submitted)
    assert isinstance(bad, InvalidSpec)
    whole = KeyedRequest("ada", "k", "f")
    first = batches.submit_part(store, dict(enumerate(asked)), whole=whole, atomic=False)
    assert [type(first[index]) for index in range(3)] == [str, InvalidSpec, str]
    delete(db, source)
    assert batches.submit_part(store, {0: asked[0]}, whole=whole, atomic=False) == {0: first[0]}


@quick_on_sqlite
def test_a_repeated_request_gets_its_job_although_the_source_is_gone(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one")
    job = submit(store, f"{source}/best", key="k")
    delete(db, source)
    assert submit(store, f"{source}/best", key="k").id == job.id


def test_who_starts_from_a_job_is_found_by_those_who_may_read(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one", visibility="team")
    mine = submit(store, f"{source}/best").id
    theirs = submit(store, f"{source}/best", caller=BOB).id
    db.submit()

    def found(caller: Caller) -> list[str]:
        where = JobQuery(init_from=source)
        page = read(store, listing.list_jobs, where, caller=caller, limit=9, sort="created", after=None, counts=True)
        assert page.counts is not None
        assert sum(page.counts.by_state.values()) == len(page.page.items)
        return [job.id for job in page.page.items]

    assert (found(ADA), found(BOB), found(ROOT)) == ([mine], [theirs], [])
    assert found(Caller("admin", Role.ADMIN)) == [theirs, mine]


def retry(store: Store, job_id: str, *, caller: Caller = ADA, ref: str | None = None) -> JobFacts:
    return submission.submit_alone(store, Retry(job_id, caller, ref=ref)).job


def test_a_retry_needs_the_weights_again_unless_it_has_a_checkpoint(
    db: StoreFixture, store: Store, approved: Approved
) -> None:
    source = trained(db, store.blobs, b"one")
    bare, trains = submit(store, f"{source}/best").id, submit(store, f"{source}/best").id
    db.cancel(bare)
    claim = db.running(trains, db.worker())
    db.record(claim, seq=0, checkpoints=[saved(store.blobs, b"two", step=5)])
    db.end(claim, EndReason.COMPLETED)
    again = retry(store, bare).initial
    assert again is not None
    assert [file["path"] for file in again.files] == ["state.pt"]
    delete(db, source)
    with pytest.raises(InvalidSpec) as caught:
        retry(store, bare)
    assert caught.value.errors[0].message == approved("message", source=source)
    goes_on = retry(store, trains).initial
    assert goes_on is not None
    assert (goes_on.source_job, goes_on.files) == (source, ())


def test_a_retry_of_a_shared_job_by_another_user_cannot_take_private_weights(db: StoreFixture, store: Store) -> None:
    source = trained(db, store.blobs, b"one")
    job = submit(store, f"{source}/best", visibility="team").id
    db.cancel(job)
    with pytest.raises(InvalidSpec):
        retry(store, job, caller=BOB)


def test_a_retry_goes_on_from_the_checkpoint_that_it_names(db: StoreFixture, store: Store) -> None:
    old = trained(db, store.blobs, b"one", b"two", b"three", checkpoint={"keep_last": 2, "keep_best": 1})
    new = retry(store, old, ref="epoch-2")
    (only,) = db.read(lambda session: checkpoints.list_newest_first(session, new.id))
    assert (only.step, only.attempt) == (2, 0)
    claim = db.starting(new.id, db.worker())
    assert db.attempt(claim).start_step == 2
    assert any("from step 2" in str(event.data) for event in db.events(new.id))
    with pytest.raises(NotFound, match="was removed for newer and better ones"):
        retry(store, old, ref="epoch-1")
    with pytest.raises(NotFound, match="no checkpoint 'epoch-7'"):
        retry(store, old, ref="epoch-7")
    (alone,) = shared_commits.submit_together(store, [Retry(old, ADA, ref="step-3")])
    assert isinstance(alone, Submitted)


def test_a_job_that_names_no_weights_has_none(db: StoreFixture) -> None:
    job_id = db.submit()
    assert db.read(lambda session: initial_files.of_job(session, job_id)) is None
