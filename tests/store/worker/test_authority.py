"""A worker's verbs reach its own attempts and jobs, whatever claim it brings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from store.attempts import keeping
from store.attempts.facts import Claim
from store.db.database import Database
from store.worker.records import Answer, Batch, Begun, KeepOrder, NewEvent, Prepared
from store.worker.verbs import WorkerStore
from tests.rows import each_row
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import EnvironmentReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import EndReason, Reason

Call = Callable[[WorkerStore, Claim], object]

ABOUT_AN_ATTEMPT: dict[str, Call] = {
    "read": lambda verbs, claim: verbs.read(claim),
    "read_wanted": lambda verbs, claim: verbs.read_wanted(claim),
    "prepared": lambda verbs, claim: verbs.change(claim, Prepared(1)),
    "environment": lambda verbs, claim: verbs.change(claim, EnvironmentReport(name="env", path="/env")),
    "reason": lambda verbs, claim: verbs.change(claim, Reason("starting", "looks")),
    "begun": lambda verbs, claim: verbs.change(claim, Begun(launcher={"pid": 1})),
    "running": lambda verbs, claim: verbs.change(claim, Begun(running=Reason("running", "runs"))),
    "append": lambda verbs, claim: verbs.append(
        claim, Batch(offsets={}, events=[NewEvent("message", {"text": "x"}, 1)]), seq=0
    ),
    "stacks": lambda verbs, claim: verbs.answer_stacks(claim, Answer(requested_at=1, taken_at=2, ranks=[])),
    "end": lambda verbs, claim: verbs.end(claim, ExitReport(reason=EndReason.COMPLETED)),
}
ABOUT_A_JOB: dict[str, Call] = {
    "attempts": lambda verbs, claim: verbs.history.list_attempts(claim.job_id),
    "ended": lambda verbs, claim: verbs.history.count_ended(claim, EndReason.USER_ERROR, since=1),
    "messages": lambda verbs, claim: verbs.history.list_messages(claim.job_id, attempt=1),
    "checkpoints": lambda verbs, claim: verbs.history.list_checkpoints(claim.job_id),
    "checkpoint": lambda verbs, claim: verbs.history.find_checkpoint(claim.job_id, "ckpt_1"),
    "files": lambda verbs, claim: verbs.history.list_files(claim.job_id),
    "initial": lambda verbs, claim: verbs.history.find_initial(claim.job_id),
    "captured": lambda verbs, claim: verbs.history.list_captured_names(claim.job_id),
    "published": lambda verbs, claim: verbs.history.list_published_names(claim),
    "removed": lambda verbs, claim: verbs.history.find_removed(claim.job_id, attempt=1, names={"a"}),
    "room": lambda verbs, claim: verbs.read_room(claim.job_id),
    "secrets": lambda verbs, claim: verbs.read_secrets(claim.job_id),
}
FORGED: dict[str, Callable[[Claim, "Two"], Claim]] = {
    "that of another worker": lambda claim, two: claim,
    "under its own name": lambda claim, two: replace(claim, worker_id=two.own.worker_id),
    "with the id of its own attempt": lambda claim, two: replace(two.own, job_id=claim.job_id),
    "with another number": lambda claim, two: replace(two.own, number=7),
    "of no attempt": lambda claim, two: replace(two.own, attempt_id=99),
}


@dataclass
class Two:
    """Two workers with an open attempt each, and the verbs of the first one."""

    db: StoreFixture
    own: Claim
    other: Claim
    verbs: WorkerStore


@pytest.fixture
def two(database: Database) -> Two:
    db = StoreFixture(database)
    own, other = (db.starting(db.submit(), db.worker(name)) for name in ("box-a", "box-b"))
    return Two(db, own, other, WorkerStore(store_on(database), own.worker_id, remote=True))


@each_row("forged", FORGED)
@each_row("verb", ABOUT_AN_ATTEMPT)
def test_no_verb_about_an_attempt_takes_a_claim_that_is_not_the_workers(two: Two, forged: str, verb: str) -> None:
    before = two.db.everything()
    with pytest.raises(StaleClaim):
        ABOUT_AN_ATTEMPT[verb](two.verbs, FORGED[forged](two.other, two))
    assert two.db.everything() == before


def test_each_verb_about_an_attempt_takes_the_workers_own_claim_until_it_has_ended(two: Two) -> None:
    for call in ABOUT_AN_ATTEMPT.values():
        call(two.verbs, two.own)
    for name in ABOUT_AN_ATTEMPT.keys() - {"running"}:  # a job that has ended is moved by nobody
        with pytest.raises(StaleClaim):
            ABOUT_AN_ATTEMPT[name](two.verbs, two.own)


@each_row("verb", ABOUT_A_JOB)
def test_what_is_asked_about_a_job_is_answered_to_the_worker_that_runs_it(two: Two, verb: str) -> None:
    ABOUT_A_JOB[verb](two.verbs, two.own)
    for claim in (two.other, replace(two.other, worker_id=two.own.worker_id)):
        with pytest.raises(StaleClaim):
            ABOUT_A_JOB[verb](two.verbs, claim)


def test_the_worker_of_a_retry_reads_what_the_retried_job_has_left(two: Two) -> None:
    two.db.complete(two.other)
    two.db.starting(two.db.retry(two.other.job_id), two.own.worker_id, "slot-1")
    assert two.verbs.history.list_files(two.other.job_id) == ([], [])
    with pytest.raises(StaleClaim):
        two.verbs.read_room(two.other.job_id)


def test_files_are_kept_by_the_worker_that_is_asked_and_of_the_attempt_that_was(two: Two) -> None:
    code = {"code": f"bundle:sha256:{'0' * 64}"}
    ended = two.db.starting(two.db.submit(config=code), two.own.worker_id, "slot-1")
    two.db.complete(ended)
    two.db.write(lambda session: keeping.ask(session, ended.job_id, ["a.txt"]))
    (order,) = two.verbs.list_keep_orders(limit=5)
    assert two.verbs.read_room(ended.job_id).stored == []

    others = WorkerStore(store_on(two.db.database), two.other.worker_id, remote=True)
    assert others.list_keep_orders(limit=5) == []
    for verbs, wrong in ((others, order), (two.verbs, replace(order, attempt=7)), (two.verbs, _of(two.other, order))):
        with pytest.raises(StaleClaim):
            verbs.keep_files(wrong, [], copied=1)
        with pytest.raises(StaleClaim):
            verbs.answer_keep(wrong, refused=None)
    two.verbs.keep_files(order, [], copied=1)
    two.verbs.answer_keep(order, refused=None)
    with pytest.raises(StaleClaim):
        two.verbs.read_secrets(ended.job_id)


def _of(claim: Claim, order: KeepOrder) -> KeepOrder:
    return replace(order, job_id=claim.job_id)
