"""Jobs that wait for others: what they name, when they may start, and why they fail."""

from io import BytesIO
from typing import Any

import pytest
from sqlalchemy import insert, update

from controller.duties import Dependencies
from store.blobs.folder import BlobFolder
from store.db.database import now_us
from store.jobs import batches, queued, release, requests, show, validate
from store.jobs import submit as submission
from store.jobs.batches import Refused
from store.jobs.facts import JobFacts
from store.jobs.submission import Retry, Submission
from store.output.facts import NewCheckpoint
from store.queue.line import sweep
from store.store import Store
from store.tables import HELD, Job, User
from store.team import quotas
from store.team.callers import SERVICE, Caller
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import read, write
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import InvalidSpec, QuotaExceeded
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Resource, Role

ADA, BOB = Caller("ada", Role.MEMBER), Caller("bob", Role.MEMBER)
SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}
DIGITS: dict[str, Any] = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}}
ENDINGS = {"succeeded": "success", "failed": "failure"}
NOBODY = f"job_{'0' * 32}"


@pytest.fixture
def store(db: StoreFixture, blobs: BlobFolder) -> Store:
    for name in ("ada", "bob"):
        db.write(lambda session, name=name: session.execute(insert(User).values(name=name, role=Role.MEMBER)))
    return store_on(db.database, blobs=blobs)


def submit(store: Store, *after: str | dict[str, str], caller: Caller = ADA, **spec: Any) -> JobFacts:
    named = [{"job": each} if isinstance(each, str) else each for each in after]
    parsed = parse_spec({**SCRIPT, "after": named, **spec})
    return submission.submit_alone(store, Submission(parsed, caller, "private")).job


def batch(store: Store, *specs: dict[str, Any], caller: Caller = ADA, atomic: bool = True) -> list[str]:
    wanted = {place: Submission(parse_spec(SCRIPT | spec), caller, "private") for place, spec in enumerate(specs)}
    made = batches.submit_part(store, wanted, whole=None, atomic=atomic)
    errors = [each for each in made.values() if isinstance(each, Exception)]
    if errors:
        raise errors[0]
    return [str(made[place]) for place in range(len(specs))]


def refused(store: Store, *after: str | dict[str, str], caller: Caller = ADA, **spec: Any) -> str:
    with pytest.raises(InvalidSpec) as caught:
        submit(store, *after, caller=caller, **spec)
    (wrong,) = caught.value.errors
    return f"{wrong.field}: {wrong.message}"


def end(db: StoreFixture, job_id: str, reason: EndReason = EndReason.COMPLETED, *saved: NewCheckpoint) -> None:
    claim = db.running(job_id, db.worker())
    if saved:
        db.record(claim, seq=0, checkpoints=list(saved))
    db.end(claim, reason)


def saved(blobs: BlobFolder, content: bytes, *, step: int) -> NewCheckpoint:
    blob = blobs.add(BytesIO(content))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    manifest = Manifest(step=step, epoch=step, end_of_epoch=True, metrics={"val/loss": 1 / step}, files=files)
    return NewCheckpoint(f"epoch-{step}", manifest, files)


def settle(store: Store) -> int:
    """Runs the duty until nothing is left. Returns how often that was."""
    duty, runs = Dependencies(store), 1
    while duty.run():
        runs += 1
    return runs


def told(db: StoreFixture, job_id: str) -> tuple[str, str, str]:
    job = db.job(job_id)
    return job.state, job.reason_code, job.reason_message


def waits(db: StoreFixture, job_id: str) -> bool:
    job = db.job(job_id)
    return job.state == JobState.QUEUED and job.not_before == HELD


@quick_on_sqlite
def test_a_job_waits_out_of_the_line_until_the_other_has_succeeded(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    assert parse_spec(db.job(job.id).spec).after[0].job == first
    assert (job.reason.code, job.reason.message, job.in_line) == ("waits_for_jobs", "waits for prep", None)
    assert [(each.job_id, each.name, each.on, each.state) for each in job.after] == [
        (first, "prep", "succeeded", JobState.QUEUED)
    ]
    settle(store)
    assert waits(db, job.id)
    assert db.heads() == [first]
    assert [each.id for each in read(store, queued.list_queue, limit=9, after=None).items] == [first]
    assert (db.place(first), db.place(job.id)) == (1, None)
    end(db, first)
    settle(store)
    assert (db.job(job.id).not_before, db.heads(), db.place(job.id)) == (None, [job.id], 1)
    assert read(store, show.find_job, job.id, ADA).after[0].state is JobState.SUCCEEDED
    end(db, job.id)


@pytest.mark.parametrize(
    ("on", "ended", "starts"),
    [
        *(("succeeded", EndReason.COMPLETED, True), ("succeeded", EndReason.DATA_ERROR, False)),
        *(("succeeded", EndReason.CANCELLED, False), ("finished", EndReason.COMPLETED, True)),
        *(("finished", EndReason.DATA_ERROR, True), ("finished", EndReason.CANCELLED, True)),
        *(("failed", EndReason.DATA_ERROR, True), ("failed", EndReason.COMPLETED, False)),
        ("failed", EndReason.CANCELLED, False),
    ],
)
def test_how_the_other_ends_decides(
    db: StoreFixture, store: Store, on: str, ended: EndReason, starts: bool, *, approved: Approved
) -> None:
    first = db.submit(name="prep")
    job = submit(store, {"job": first, "on": on})
    end(db, first, ended)
    settle(store)
    if starts:
        assert told(db, job.id)[:2] == ("queued", "waiting")
        return
    assert told(db, job.id)[:2] == ("failed", "dependency_failed")
    assert db.job(job.id).reason_message == approved.of_row(
        "reason_message", state=db.job(first).state, endings=ENDINGS[on]
    )
    assert (db.job(job.id).error or {})["code"] == "dependency_failed"


@quick_on_sqlite
def test_it_waits_for_all_of_them(db: StoreFixture, store: Store, approved: Approved) -> None:
    names = ["a", "b", "c", "d", "e"]
    ids = [db.submit(name=name) for name in names]
    job = submit(store, *names)
    assert job.reason.message == approved("message")
    for each in ids[:-1]:
        end(db, each)
        settle(store)
        assert waits(db, job.id)
    end(db, ids[-1])
    settle(store)
    assert not waits(db, job.id)


def test_one_that_fails_ends_the_wait_for_the_others(db: StoreFixture, store: Store, approved: Approved) -> None:
    ids = [db.submit(name=name) for name in ("a", "b")]
    job = submit(store, *ids)
    db.cancel(ids[1])
    settle(store)
    assert told(db, job.id)[0] == "failed"
    assert db.job(job.id).reason_message == approved("reason_message")


@quick_on_sqlite
def test_what_has_ended_before_decides_at_once(db: StoreFixture, store: Store, approved: Approved) -> None:
    good, bad = db.submit(name="good"), db.submit(name="bad")
    end(db, good)
    end(db, bad, EndReason.DATA_ERROR)
    assert not waits(db, submit(store, "good").id)
    assert not waits(db, submit(store, "good", {"job": "bad", "on": "failed"}).id)
    assert refused(store, "bad") == approved("refused")


def test_what_is_not_there_or_not_ones_own_is_refused_alike(db: StoreFixture, store: Store, approved: Approved) -> None:
    private = db.submit(name="secret", owner="bob")
    assert refused(store, private) == approved("refused", private=private)
    assert refused(store, NOBODY) == approved("after there", nobody=NOBODY)
    assert refused(store, "secret") == approved("after there secret")
    assert refused(store, "mine") == approved("after there mine")
    shared = db.submit(name="shared", owner="bob", visibility="team")
    assert submit(store, "shared").after[0].job_id == shared
    assert refused(store, "shared", shared) == approved("after named twice", shared=shared)
    with pytest.raises(InvalidSpec, match="not valid"):
        read(store, validate.resolve_spec, parse_spec({**SCRIPT, "after": [{"job": "nobody"}]}), caller=ADA)


def test_a_name_is_of_the_newest_of_ones_own_jobs_before_any_others(db: StoreFixture, store: Store) -> None:
    db.submit(name="prep")
    mine = db.submit(name="prep")
    theirs = db.submit(name="prep", owner="bob", visibility="team")
    assert submit(store, "prep").after[0].job_id == mine
    assert submit(store, "prep", caller=BOB).after[0].job_id == theirs


def test_a_private_job_is_not_named_to_those_who_may_not_read_it(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="secret")
    job = submit(store, "secret", visibility="team")
    assert job.reason.message == f"waits for {first}"
    assert job.after[0].name == "secret"
    seen = read(store, show.find_job, job.id, BOB).after[0]
    assert (seen.job_id, seen.name, seen.state) == (first, None, None)
    own = submit(store, "secret")
    assert own.reason.message == "waits for secret"
    write(store, requests.change, own.id, JobPatch(visibility="team"), caller=ADA)
    assert db.job(own.id).reason_message == f"waits for {first}"


def test_who_may_not_read_the_other_any_more_learns_nothing_of_its_end(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="shared", owner="bob", visibility="team")
    job = submit(store, "shared")
    write(store, requests.change, first, JobPatch(visibility="private"), caller=BOB)
    end(db, first)
    settle(store)
    message = f"ada can no longer read job {first}, which this job waits for"
    assert told(db, job.id) == ("failed", "dependency_failed", message)


@quick_on_sqlite
def test_a_chain_fails_from_its_first_to_its_last_in_few_transactions(
    db: StoreFixture, store: Store, approved: Approved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "AT_ONCE", 8)
    ids = batch(store, {"name": "n0"}, *({"name": f"n{n}", "after": [{"job": f"n{n - 1}"}]} for n in range(1, 20)))
    end(db, ids[0], EndReason.DATA_ERROR)
    assert settle(store) <= 5
    assert {told(db, each)[:2] for each in ids[1:]} == {("failed", "dependency_failed")}
    assert db.job(ids[-1]).reason_message == approved("reason_message")


@quick_on_sqlite
def test_a_chain_runs_one_after_the_other(db: StoreFixture, store: Store) -> None:
    ids = batch(store, *({"name": f"n{n}", "after": [{"job": f"n{n - 1}"}] if n else []} for n in range(5)))
    for each in ids:
        assert db.heads() == [each]
        end(db, each)
        settle(store)


@quick_on_sqlite
def test_many_that_wait_for_one_go_on_in_parts(db: StoreFixture, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "AT_ONCE", 20)
    first = db.submit(name="prep")
    ids = batch(store, *({"name": f"n{n}", "after": [{"job": first}]} for n in range(50)))
    end(db, first)
    assert Dependencies(store).run()
    assert sum(waits(db, each) for each in ids) == 30
    settle(store)
    assert not any(waits(db, each) for each in ids)


@pytest.mark.parametrize(
    "specs",
    [
        [{"name": "a", "after": [{"job": "a"}]}],
        [{"name": name, "after": [{"job": other}]} for name, other in (("a", "b"), ("b", "c"), ("c", "a"))],
        [{"name": "a"}, {"name": "a"}, {"name": "b", "after": [{"job": "a"}]}],
    ],
)
def test_a_batch_that_cannot_be_ordered_is_refused(
    db: StoreFixture, store: Store, specs: list[dict[str, Any]], approved: Approved
) -> None:
    with pytest.raises(Refused) as caught:
        batch(store, *specs)
    errors = [error for error in caught.value.errors.values() if isinstance(error, InvalidSpec)]
    (said,) = {each.message for error in errors for each in error.errors}
    assert said == approved.of_row("message")
    assert db.everything()["jobs"] == []


def test_of_many_cycles_the_first_few_jobs_are_told_before_a_transaction(
    db: StoreFixture, store: Store, approved: Approved
) -> None:
    """Texts of all 16,000 cycles of 500 jobs took 270 MiB, while nobody else could write."""
    names = [f"{place:0100}" for place in range(500)]
    after = [[{"job": names[(place + step) % 500]} for step in range(1, 33)] for place in range(500)]
    with recorded_statements(db.database) as executed, pytest.raises(Refused) as raised:
        batch(store, *({"name": name, "after": its} for name, its in zip(names, after, strict=True)))
    assert executed == []
    messages = [error.errors[0].message for error in raised.value.errors.values() if isinstance(error, InvalidSpec)]
    assert len(messages) == 10
    assert max(map(len, messages)) < 700
    assert messages[0].replace("0" * 97, "0") == approved("message")


def test_jobs_of_a_batch_may_stand_in_any_order_but_only_all_together(
    db: StoreFixture, store: Store, approved: Approved
) -> None:
    later, first = batch(store, {"name": "later", "after": [{"job": "first"}]}, {"name": "first"})
    assert parse_spec(db.job(later).spec).after[0].job == first
    with pytest.raises(InvalidSpec) as caught:
        batch(store, {"name": "x"}, {"name": "y", "after": [{"job": "x"}]}, atomic=False)
    assert caught.value.errors[0].message == approved("message")


@quick_on_sqlite
def test_a_deleted_job_has_ended_as_it_did(db: StoreFixture, store: Store, approved: Approved) -> None:
    good, bad = db.submit(name="good"), db.submit(name="bad")
    of_good, of_bad = submit(store, good), submit(store, bad)
    end(db, good)
    end(db, bad, EndReason.DATA_ERROR)
    for each in (good, bad):
        write(store, requests.act, "delete", each, caller=ADA)
    settle(store)
    assert not waits(db, of_good.id)
    assert told(db, of_bad.id)[2] == approved("told", bad=bad)
    seen = read(store, show.find_job, of_good.id, ADA).after[0]
    assert (seen.name, seen.state) == (None, JobState.SUCCEEDED)


@quick_on_sqlite
def test_one_that_waits_may_be_cancelled_and_deleted(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    db.cancel(job.id)
    end(db, first)
    settle(store)
    assert told(db, job.id)[0] == "cancelled"
    write(store, requests.act, "delete", job.id, caller=ADA)
    assert db.everything()["dependencies"] == []


@quick_on_sqlite
def test_a_paused_one_waits_on_when_it_is_resumed(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    db.pause(job.id)
    db.resume(job.id)
    assert waits(db, job.id)
    assert told(db, job.id)[2] == "waits for prep"
    db.pause(job.id)
    end(db, first, EndReason.DATA_ERROR)
    settle(store)
    assert told(db, job.id)[0] == "paused"
    db.resume(job.id)
    settle(store)
    assert told(db, job.id)[:2] == ("failed", "dependency_failed")


@quick_on_sqlite
def test_one_that_ran_waits_for_nothing_when_it_is_resumed(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    end(db, first)
    settle(store)
    claim = db.running(job.id, db.worker())
    db.pause(job.id)
    db.end(claim, EndReason.PAUSED)
    db.resume(job.id)
    assert not waits(db, job.id)


def test_its_wait_for_others_is_no_wait_in_the_line(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    db.write(lambda session: session.execute(update(Job).values(lined_at=now_us() - 3_600_000_000)))
    db.pause(job.id)
    db.resume(job.id)
    db.write(lambda session: session.execute(update(Job).values(lined_at=now_us() - 3_600_000_000)))
    write(store, requests.change, job.id, JobPatch(priority=5), caller=ADA)
    end(db, first)
    settle(store)
    claim = db.claim(job.id, db.worker())
    assert claim is not None
    assert db.job(job.id).waited_us < 1_800_000_000


def test_a_job_that_waits_counts_as_queued(db: StoreFixture, store: Store) -> None:
    db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.QUEUED: 2}, caller=SERVICE))
    submit(store, db.submit(name="prep"))
    with pytest.raises(QuotaExceeded):
        submit(store, "prep")


def test_a_job_of_a_disabled_user_pauses_instead_of_starting(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    db.write(lambda session: session.execute(update(User).where(User.name == "ada").values(disabled_at=now_us())))
    end(db, first)
    assert settle(store) <= 2
    assert told(db, job.id)[0] == "paused"
    assert "ada is disabled" in told(db, job.id)[2]
    db.write(lambda session: session.execute(update(User).where(User.name == "ada").values(disabled_at=None)))
    db.resume(job.id)
    settle(store)
    assert told(db, job.id)[:2] == ("queued", "waiting")


@quick_on_sqlite
def test_weights_of_the_other_are_pinned_when_it_has_ended(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep", init_from="${jobs.prep.best}")
    assert db.job(job.id).spec["init_from"] == f"${{jobs.{first}.best}}"
    assert job.initial is None
    assert read(store, show.find_job, job.id, ADA).initial is None
    end(db, first, EndReason.COMPLETED, saved(store.blobs, b"one", step=1), saved(store.blobs, b"two", step=2))
    settle(store)
    initial = read(store, show.find_job, job.id, ADA).initial
    assert initial is not None
    assert (initial.source_job, initial.step) == (first, 2)
    assert db.job(job.id).spec["init_from"] == f"{first}/{initial.source_checkpoint}"
    assert not waits(db, job.id)
    db.pause(job.id)
    db.resume(job.id)
    settle(store)
    assert not waits(db, job.id)


@quick_on_sqlite
def test_weights_that_are_not_there_fail_the_job(db: StoreFixture, store: Store, approved: Approved) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep", init_from="${jobs.prep.epoch-7}")
    others = submit(store, "prep")
    end(db, first, EndReason.COMPLETED, saved(store.blobs, b"one", step=1))
    settle(store)
    assert told(db, job.id)[:2] == ("failed", "dependency_failed")
    assert told(db, job.id)[2] == approved("told", first=first)
    assert not waits(db, others.id)


@quick_on_sqlite
def test_weights_are_of_a_job_in_after_and_of_the_same_kind(db: StoreFixture, store: Store, approved: Approved) -> None:
    first = db.submit(name="prep")
    other = db.submit(name="other")
    assert refused(store, "prep", init_from="${jobs.other.best}") == approved("refused")
    assert refused(store, "prep", init_from="${jobs.prep.best}", **DIGITS) == approved("script and this")
    end(db, first, EndReason.COMPLETED, saved(store.blobs, b"one", step=1))
    assert submit(store, "prep", init_from="${jobs.prep.latest}").initial is not None
    both = submit(store, "prep", "other", init_from="${jobs.prep.latest}")
    end(db, other)
    settle(store)
    assert read(store, show.find_job, both.id, ADA).initial is not None


def test_a_retry_waits_for_what_has_not_ended(db: StoreFixture, store: Store) -> None:
    done, open_ = db.submit(name="done"), db.submit(name="open")
    job = submit(store, "done", "open", init_from="${jobs.done.latest}")
    end(db, done, EndReason.DATA_ERROR, saved(store.blobs, b"one", step=1))
    settle(store)
    assert told(db, job.id)[0] == "failed"
    again = submission.submit_alone(store, Retry(job.id, ADA)).job
    assert [each.job_id for each in again.after] == [open_]
    assert again.initial is not None
    assert waits(db, again.id)
    end(db, open_)
    settle(store)
    assert not waits(db, again.id)
    db.cancel(again.id)
    assert submission.submit_alone(store, Retry(again.id, ADA)).job.after == ()


def test_two_controllers_settle_each_job_once(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    ids = [submit(store, "prep", {"job": db.submit(), "on": "finished"}).id for _ in range(4)]
    db.cancel(first)
    made = run_together(*(lambda: settle(store) for _ in range(3)))
    assert not [each for each in made if isinstance(each, Exception)]
    settle(store)
    for each in ids:
        assert db.moves(each) == ["queued", "failed"]


def test_the_line_in_redis_is_compared_with_what_is_in_it(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="prep")
    job = submit(store, "prep")
    found = db.read(lambda session: session.execute(sweep._ROWS, {"ids": [first, job.id]}).all())  # pyright: ignore[reportPrivateUsage]
    assert [row.id for row in found] == [first]


def test_a_worker_that_saw_the_job_before_it_was_held_does_not_start_it(db: StoreFixture, store: Store) -> None:
    victim = db.running(db.submit(name="prep", preemptible=True), db.worker())
    job = submit(store, "prep", priority=9)
    assert db.claim(job.id, db.worker("box-b")) is None
    assert not db.preempt(victim.job_id, preemptor=job.id)
    assert waits(db, job.id)


@pytest.mark.parametrize("turn", range(3))
def test_a_submission_beside_the_end_of_the_other_waits_or_goes_on(db: StoreFixture, store: Store, turn: int) -> None:
    first = db.submit(name=f"prep-{turn}")
    claim = db.running(first, db.worker())
    made = run_together(lambda: submit(store, first).id, lambda: db.end(claim, EndReason.COMPLETED))
    assert isinstance(made[0], str), made
    settle(store)
    assert not waits(db, made[0])


@pytest.mark.thorough
def test_a_thousand_wait_for_one_and_a_thousand_for_each_other(db: StoreFixture, store: Store) -> None:
    first = db.submit(name="first")
    fan = [
        each for _ in range(2) for each in batch(store, *({"name": "n", "after": [{"job": first}]} for _ in range(500)))
    ]
    chain = batch(store, *({"name": f"c{n}", "after": [{"job": f"c{n - 1}" if n else first}]} for n in range(500)))
    chain += batch(store, *({"name": f"d{n}", "after": [{"job": f"d{n - 1}" if n else chain[-1]}]} for n in range(500)))
    assert db.heads() == [first]
    end(db, first, EndReason.DATA_ERROR)
    assert settle(store) <= 22
    assert {db.job(each).state for each in (*fan, *chain)} == {"failed"}
