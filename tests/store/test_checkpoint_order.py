"""The order of checkpoints is the time of their saving, and a job goes on from the newest whole one."""

from dataclasses import replace

import pytest

from store.attempts import prices
from store.attempts.facts import Claim
from store.jobs import submit as submission
from store.jobs.submission import Retry
from store.output import checkpoints
from store.output.checkpoints_facts import CAPTURED
from store.output.facts import CapturedFile, NewCheckpoint
from store.team.callers import SERVICE, Caller
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.states import CRASH_LOOP_CAP, EndReason, JobState
from torchyard.contract.team.roles import Role


@pytest.fixture
def claim(db: StoreFixture) -> Claim:
    return db.running(db.submit(), db.worker())


def saved(name: str, at: int, *, step: int = 0, damaged: bool = False, epoch: int | None = None) -> NewCheckpoint:
    return replace(checkpoint(name, step=step, epoch=epoch), saved_at=at, damaged=damaged)


def captured(name: str, at: int, *, step: int = 0, damaged: bool = False) -> NewCheckpoint:
    return replace(saved(name, at, step=step, damaged=damaged), source=CAPTURED)


def add(db: StoreFixture, claim: Claim, *new: NewCheckpoint) -> None:
    db.record(claim, seq=db.attempt(claim).relay_seq, checkpoints=list(new))


def aliases(db: StoreFixture, job_id: str) -> dict[str, list[str]]:
    """Returns the aliases of each checkpoint by its name, newest first."""
    found = db.read(lambda session: checkpoints.list_checkpoints(session, job_id, caller=SERVICE, limit=100).items)
    return {item.name: [*item.aliases] for item in found}


def resumed(db: StoreFixture, job_id: str) -> str | None:
    found = db.read(lambda session: checkpoints.find_resumed(session, job_id))
    return None if found is None else found.name


def test_the_newest_is_what_was_saved_last_whatever_its_step(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, saved("c", 30, step=5), saved("a", 10, step=20), saved("b", 20, step=15))
    assert list(aliases(db, claim.job_id)) == ["c", "b", "a"]
    assert aliases(db, claim.job_id)["c"] == ["latest", "step-5"]
    assert resumed(db, claim.job_id) == "c"
    assert [item.name for item in db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id))] == [
        *("c", "b", "a")
    ]
    db.end(claim, EndReason.WORKER_LOST)
    assert db.attempt(db.starting(claim.job_id, db.worker())).start_step == 5


def test_the_event_of_a_captured_one_names_the_file_or_folder_that_the_program_wrote(
    db: StoreFixture, claim: Claim
) -> None:
    digests = ("a" * 64, "b" * 64)
    folder = [
        CapturedFile(path=f"out/step 5/{name}", size=1, sha256=digest)
        for name, digest in zip(("m.bin", "o.bin"), digests, strict=True)
    ]
    file = CapturedFile(path="out/last.pt", size=1, sha256="c" * 64)
    add(db, claim, replace(captured("a", 10), files=folder), replace(captured("b", 20), files=[file]), saved("c", 30))
    said = [event.data.get("file") for event in db.events(claim.job_id) if event.type == "checkpoint"]
    assert said == ["out/step 5/", "out/last.pt", None]


def test_of_two_that_were_saved_at_the_same_time_the_later_one_is_newer(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, saved("a", 10, step=9), saved("b", 10, step=3))
    assert (list(aliases(db, claim.job_id)), resumed(db, claim.job_id)) == (["b", "a"], "b")


@quick_on_sqlite
def test_a_later_attempt_is_newer_whatever_its_clock_says(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, saved("first", 1000, step=9))
    db.end(claim, EndReason.WORKER_LOST)
    again = db.running(claim.job_id, db.worker())
    add(db, again, saved("second", 10, step=3))
    assert aliases(db, claim.job_id) == {"second": ["latest", "step-3"], "first": ["step-9"]}
    assert resumed(db, claim.job_id) == "second"


def test_a_second_save_of_a_step_or_epoch_takes_its_names(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, saved("epoch-0001", 10, step=5, epoch=1), saved("epoch-0001-f00", 20, step=5, epoch=1))
    assert aliases(db, claim.job_id) == {"epoch-0001-f00": ["latest", "epoch-1", "step-5"], "epoch-0001": []}


def test_what_is_not_whole_has_no_alias_and_is_not_resumed(db: StoreFixture, claim: Claim) -> None:
    torn = replace(checkpoint("torn", step=7, epoch=1, val_loss=0.1), saved_at=30, damaged=True)
    whole = replace(checkpoint("whole", step=3, val_loss=0.5), saved_at=10)
    add(db, claim, whole, torn)
    assert aliases(db, claim.job_id) == {"torn": [], "whole": ["best", "latest", "step-3"]}
    assert resumed(db, claim.job_id) == "whole"
    for ref in ("step-7", "epoch-1"):
        with pytest.raises(NotFound, match="has no checkpoint"):
            db.read(lambda session: checkpoints.resolve(session, db.job(claim.job_id), ref))  # noqa: B023
    (told, _) = db.read(
        lambda session: checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=100).items
    )
    assert (told.name, told.damaged) == ("torn", True)
    found = db.read(lambda session: checkpoints.resolve(session, db.job(claim.job_id), told.id))
    assert (found.name, found.damaged) == ("torn", True)


def test_a_captured_one_has_the_alias_of_a_step_only_where_its_program_told_one(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, captured("none", 10), captured("told", 20, step=3))
    assert aliases(db, claim.job_id) == {"told": ["latest", "step-3"], "none": []}


def test_a_job_whose_only_checkpoint_is_torn_goes_on_from_none(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, captured("torn", 10, step=7, damaged=True))
    assert resumed(db, claim.job_id) is None
    with pytest.raises(NotFound):
        db.read(lambda session: checkpoints.resolve(session, db.job(claim.job_id), "latest"))
    db.end(claim, EndReason.WORKER_LOST)
    assert db.attempt(db.starting(claim.job_id, db.worker())).start_step == 0


def test_where_a_program_publishes_the_latest_is_one_of_those(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, captured("early", 5, step=1))
    assert (resumed(db, claim.job_id), aliases(db, claim.job_id)["early"]) == ("early", ["latest", "step-1"])
    add(db, claim, saved("published", 10, step=2), captured("file", 20, step=2), saved("torn", 30, damaged=True))
    assert aliases(db, claim.job_id) == {
        "torn": [],
        "file": ["step-2"],
        "published": ["latest"],
        "early": ["step-1"],
    }
    assert resumed(db, claim.job_id) == "published"


def test_the_price_of_a_stop_counts_from_the_checkpoint_that_is_resumed(db: StoreFixture, claim: Claim) -> None:
    db.record(claim, seq=0, progress={"step": 100})
    add(db, claim, saved("b", 20, step=60), saved("a", 10, step=90), saved("torn", 30, step=95, damaged=True))
    (price,) = db.read(lambda session: prices.price_jobs(session, [claim.job_id]))
    assert (price.stake.resumes_at, price.stake.steps) == (60, 40)


def test_a_page_goes_on_behind_a_checkpoint_by_the_time_of_saving(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, saved("b", 20, step=1), saved("c", 30, step=0), saved("a", 10, step=2))
    page = db.read(lambda session: checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=2).items)
    assert [item.name for item in page] == ["c", "b"]
    rest = db.read(
        lambda session: (
            checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=100, after=page[-1].id).items
        )
    )
    assert [item.name for item in rest] == ["a"]


def test_a_retried_job_goes_on_from_the_newest_whole_one_and_keeps_what_it_is(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, captured("whole", 10, step=3), captured("torn", 20, step=7, damaged=True))
    db.end(claim, EndReason.CANCELLED)
    new = db.retry(claim.job_id)
    (copy,) = db.read(lambda session: checkpoints.list_newest_first(session, new))
    assert (copy.name, copy.attempt, copy.step) == ("whole", 0, 3)
    assert (copy.source, copy.saved_at, copy.damaged) == (CAPTURED, 10, False)


def test_no_job_is_retried_from_a_torn_checkpoint(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, saved("whole", 10, step=3), saved("torn", 20, step=7, damaged=True))
    db.end(claim, EndReason.CANCELLED)
    torn, _ = db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id))
    wanted = Retry(claim.job_id, Caller("ada", Role.MEMBER), ref=torn.id)
    with pytest.raises(Conflict, match="is damaged"):
        db.write(lambda session: submission.submit(session, wanted))


@pytest.mark.parametrize(
    ("new", "is_progress"),
    [
        pytest.param(captured("captured-a-1-1", 10), True, id="a captured one"),
        pytest.param(captured("captured-a-1-1", 10, damaged=True), False, id="a torn one"),
        pytest.param(saved("step-0", 10, step=0), False, id="no later step"),
        pytest.param(saved("step-1", 10, step=1), True, id="a later step"),
        pytest.param(saved("step-1", 10, step=1, damaged=True), False, id="a torn later step"),
    ],
)
def test_a_new_whole_checkpoint_is_progress(db: StoreFixture, new: NewCheckpoint, *, is_progress: bool) -> None:
    job_id, worker = db.submit(max_restarts=0), db.worker()
    for _ in range(CRASH_LOOP_CAP - 1):
        assert db.end(db.running(job_id, worker), EndReason.WORKER_LOST) is JobState.QUEUED
    claim = db.running(job_id, worker)
    add(db, claim, new)
    expected = JobState.QUEUED if is_progress else JobState.FAILED
    assert db.end(claim, EndReason.WORKER_LOST) is expected
