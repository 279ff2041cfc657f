"""Submissions of several callers in one transaction: each has its own answer, or its own error."""

from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from store.bundles import bundles
from store.jobs import shared_commits
from store.jobs import submit as submission
from store.jobs.submission import KeyedRequest, Submission, Submitted
from store.queue import credits
from store.queue.announcing import Queue
from store.queue.line.line import line_of
from store.queue.line_facts import Bucket, Credits
from store.tables import AuditEntry, Job
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.errors import IdempotencyMismatch, InvalidSpec, QuotaExceeded, Unavailable
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.team.roles import Resource, Role

on_postgresql = pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
SHA = "a" * 64


def wanted(
    name: str = "job", *, owner: str = "ada", key: str | None = None, fingerprint: str = "f", code: str = "file:///code"
) -> Submission:
    spec = parse_spec({"trainer": "script", "name": name, "config": {"code": code}})
    keyed = None if key is None else KeyedRequest(owner, key, fingerprint)
    return Submission(spec, Caller(owner, Role.MEMBER), "private", keyed)


def together(db: StoreFixture, *asked: Submission, queue: Queue | None = None) -> list[Submitted | Exception | None]:
    return shared_commits.submit_together(store_on(db.database, queue=queue), asked)


def ids(found: list[Submitted | Exception | None]) -> list[str]:
    assert all(isinstance(each, Submitted) for each in found), found
    return [each.job.id for each in found if isinstance(each, Submitted)]


def stored(db: StoreFixture) -> dict[str, str]:
    """Returns the names of the stored jobs by id."""
    return dict(db.read(lambda session: session.execute(select(Job.id, Job.name)).all()))


def audited(db: StoreFixture) -> list[str]:
    query = select(AuditEntry.object).where(AuditEntry.action.startswith("job."))
    return sorted(db.read(lambda session: session.scalars(query).all()))


@pytest.mark.parametrize("known", [False, True])
def test_what_orders_the_line_is_not_read_in_the_transaction_of_a_submission(
    db: StoreFixture, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    jobs_before_reads: list[int] = []
    read = credits._read

    def noted(session: Session, buckets: Collection[Bucket]) -> Credits:
        jobs_before_reads.append(len(stored(db)))
        return read(session, buckets)

    store = store_on(db.database)
    if known:
        submission.submit_alone(store, wanted())
    monkeypatch.setattr(credits, "_read", noted)
    made = submission.submit_alone(store, wanted())
    assert (made.job.in_line, jobs_before_reads) == ((2, []) if known else (1, [1]))


def limit(db: StoreFixture, owner: str, *, queued: int) -> None:
    db.write(lambda session: users.add(session, owner, Role.MEMBER, caller=SERVICE))
    db.write(lambda session: quotas.set_limits(session, "user", owner, {Resource.QUEUED: queued}, caller=SERVICE))


@contextmanager
def refusing(db: StoreFixture, name: str) -> Generator[None]:
    """Has the database refuse the audit of a job with this name, after its row was inserted."""
    if db.database.engine.dialect.name == "sqlite":
        made = [
            "CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN EXISTS"
            f" (SELECT 1 FROM jobs WHERE id = NEW.object AND name = '{name}')"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ]
        undone = ["DROP TRIGGER refuse"]
    else:
        made = [
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF EXISTS (SELECT FROM jobs WHERE id = NEW.object AND name = '{name}')"
            " THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$",
            "CREATE TRIGGER refuse BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION refuse()",
        ]
        undone = ["DROP TRIGGER refuse ON audit", "DROP FUNCTION refuse"]
    for statement in made:
        db.write(lambda session, statement=statement: session.execute(text(statement)))
    try:
        yield
    finally:
        for statement in undone:
            db.write(lambda session, statement=statement: session.execute(text(statement)))


@contextmanager
def counted_commits(db: StoreFixture, *, refuse: bool = False) -> Generator[list[None]]:
    """Counts the commits; with `refuse`, the server is away when each begins."""
    found: list[None] = []

    def note(_: object) -> None:
        found.append(None)
        if refuse:
            raise OperationalError("COMMIT", None, ConnectionError("the server is away"))

    event.listen(db.database.engine, "commit", note)
    try:
        yield found
    finally:
        event.remove(db.database.engine, "commit", note)


def test_submissions_share_one_commit_and_each_has_its_answer(db: StoreFixture) -> None:
    with counted_commits(db) as commits:
        found = together(db, *(wanted(f"job-{number}", owner=f"user-{number % 3}") for number in range(20)))
    assert len(commits) == 1
    made = ids(found)
    assert [stored(db)[job_id] for job_id in made] == [f"job-{number}" for number in range(20)]
    assert audited(db) == sorted(made)
    assert all(db.moves(job_id) == ["queued"] for job_id in made)


def test_all_are_announced_and_what_failed_is_not(db: StoreFixture, queue: Queue) -> None:
    limit(db, "bob", queued=0)
    store = store_on(db.database, queue=queue)
    store.sweep_line()
    found = shared_commits.submit_together(store, [wanted("a"), wanted("b", owner="bob"), wanted("c")])
    with store.read() as session:
        counts = line_of(session).buckets()
        assert line_of(session).asks_redis
    assert {bucket.owner: count for bucket, count in counts.items()} == {"ada": 2}
    assert isinstance(found[1], QuotaExceeded)


def test_an_error_is_the_answer_to_its_own_submission_alone(db: StoreFixture) -> None:
    limit(db, "bob", queued=1)
    first = ids(together(db, wanted("known", key="k")))
    found = together(
        db,
        wanted("good"),
        wanted("one", owner="bob"),
        wanted("two", owner="bob"),
        wanted("other", key="k", fingerprint="other"),
        wanted("again", key="k"),
        wanted("no-bundle", code=f"bundle:sha256:{SHA}"),
        wanted("last"),
    )
    good, one, two, other, again, no_bundle, last = found
    assert isinstance(good, Submitted) and isinstance(last, Submitted)
    assert sorted(type(each).__name__ for each in (one, two)) == ["QuotaExceeded", "Submitted"]
    assert isinstance(other, IdempotencyMismatch)
    assert isinstance(again, Submitted) and again.replayed and [again.job.id] == first
    assert isinstance(no_bundle, InvalidSpec)
    assert sorted(stored(db).values()) == sorted(["known", "good", "last", *({"one", "two"} & {*stored(db).values()})])
    assert len(stored(db)) == len(audited(db)) == 4


def test_an_error_that_nobody_expects_is_that_of_its_own_submission(db: StoreFixture) -> None:
    """All that shared its transaction answered 500."""
    broken = wanted("broken")
    broken = replace(broken, spec=broken.spec.model_copy(update={"resources": None}))
    some = [wanted("one"), broken, wanted("two")]
    assert together(db, *some) == [None, None, None]
    assert stored(db) == {}
    with pytest.raises(AttributeError):
        together(db, broken)
    store = store_on(db.database)
    assert [submission.submit_alone(store, each).job.name for each in (some[0], some[2])] == ["one", "two"]


def test_one_key_in_one_commit_makes_one_job(db: StoreFixture) -> None:
    found = together(db, *[wanted("same", key="k")] * 5, wanted("other", key="k", fingerprint="other"))
    assert len({*ids(found[:5])}) == 1
    assert sorted(each.replayed for each in found[:5] if isinstance(each, Submitted)) == [False, *[True] * 4]
    assert isinstance(found[5], IdempotencyMismatch)
    assert len(stored(db)) == 1


def test_what_the_database_refuses_of_one_is_undone_and_the_others_are_stored(db: StoreFixture) -> None:
    with refusing(db, "bad"):
        found = together(db, wanted("a", key="1"), wanted("bad", key="2"), wanted("b", key="3"))
    assert isinstance(found[1], Exception)
    assert sorted(stored(db).values()) == ["a", "b"]
    assert len(audited(db)) == 2
    again = together(db, wanted("a", key="1"), wanted("bad", key="2"))
    assert [each.replayed for each in again if isinstance(each, Submitted)] == [True, False]


@pytest.mark.parametrize("count", [1, 5])
def test_a_refused_commit_stores_none_and_all_may_be_sent_again(db: StoreFixture, count: int) -> None:
    asked = [wanted(f"job-{number}", key=str(number)) for number in range(count)]
    with counted_commits(db, refuse=True), pytest.raises(Unavailable):
        together(db, *asked)
    assert stored(db) == {}
    assert audited(db) == []
    assert len({*ids(together(db, *asked))}) == len(stored(db)) == count


@on_postgresql
@pytest.mark.parametrize("alone", [True, False])
def test_a_user_or_a_bundle_that_is_locked_holds_up_nobody_else(db: StoreFixture, alone: bool) -> None:
    limit(db, "bob", queued=5)
    db.write(lambda session: bundles.add(session, "ada", SHA, size=1, files=1))
    theirs, mine = wanted("theirs", owner="bob"), wanted("mine", code=f"bundle:sha256:{SHA}")
    with db.database.write() as session:
        users.lock(session, "bob")
        bundles.use(session, "ada", {"code": SHA})
        if alone:
            assert [*together(db, theirs), *together(db, mine)] == [None, None]
        else:
            held, free, also = together(db, theirs, wanted("free"), mine)
            assert (held, also) == (None, None)
            assert isinstance(free, Submitted)
    assert len(ids(together(db, theirs, mine))) == 2


@on_postgresql
def test_transactions_that_share_keys_and_users_in_any_order_do_not_deadlock(db: StoreFixture) -> None:
    for owner in ("ada", "bob"):
        limit(db, owner, queued=1000)
    for turn in range(2):
        asked = [wanted(f"j{n}", owner=("ada", "bob")[n % 2], key=f"{turn}-{n}") for n in range(10)]
        shared = run_together(*[partial(together, db, *some) for some in (asked, asked[::-1], asked[5:])])
        assert not [found for found in shared if isinstance(found, Exception)], shared
        # Whose user another of them had locked is to be sent alone.
        assert all(isinstance(made, Submitted | None) for found in shared if isinstance(found, list) for made in found)
        ids(together(db, *asked))
        assert len(stored(db)) == 10 * (turn + 1)


@on_postgresql
def test_a_key_that_another_transaction_stores_meanwhile_is_answered_from_it(db: StoreFixture) -> None:
    for turn in range(2):
        asked = [wanted(f"j{n}", key=f"{turn}-{n}") for n in range(8)]
        both = run_together(lambda: together(db, *asked), lambda: together(db, *reversed(asked)))  # noqa: B023
        one, other = (found if not isinstance(found, Exception) else pytest.fail(str(found)) for found in both)
        assert ids(one) == ids(other)[::-1]
        assert len(stored(db)) == 8 * (turn + 1)
