"""Retries in one transaction, also beside submissions: each has its own answer, its own error, or is stored alone."""

from collections.abc import Sequence
from functools import partial

import pytest
from sqlalchemy import select

from store.jobs import deletion, jobs, shared_commits
from store.jobs import submit as submission
from store.jobs.submission import KeyedRequest, Retry, Submission, Submitted
from store.queue.announcing import Queue
from store.tables import AuditEntry, Job
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from tests import line
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.errors import Conflict, NotFound, QuotaExceeded
from torchyard.contract.team.roles import Resource, Role

on_postgresql = pytest.mark.parametrize("databases", ["postgresql"], indirect=True)


def ended(db: StoreFixture, count: int, *, owner: str = "ada") -> list[str]:
    """Returns jobs that were cancelled."""
    made = [db.submit(owner=owner) for _ in range(count)]
    for job_id in made:
        db.cancel(job_id)
    return made


def retry(job_id: str, *, owner: str = "ada", key: str | None = None) -> Retry:
    keyed = None if key is None else KeyedRequest(owner, key, f"retry {job_id}")
    return Retry(job_id, Caller(owner, Role.MEMBER), keyed)


def together(
    db: StoreFixture, *asked: Submission | Retry, queue: Queue | None = None
) -> list[Submitted | Exception | None]:
    return shared_commits.submit_together(store_on(db.database, queue=queue), asked)


def one_by_one(db: StoreFixture, asked: Sequence[Retry]) -> list[Submitted]:
    return [submission.submit_alone(store_on(db.database), each) for each in asked]


def retried(db: StoreFixture) -> list[str]:
    """Returns the jobs that were retried, each as often as it was."""
    found = db.read(lambda session: session.scalars(select(Job.retry_of)).all())
    return sorted(old for old in found if old is not None)


def limit(db: StoreFixture, owner: str, *, queued: int) -> None:
    db.write(lambda session: users.add(session, owner, Role.MEMBER, caller=SERVICE))
    db.write(lambda session: quotas.set_limits(session, "user", owner, {Resource.QUEUED: queued}, caller=SERVICE))


def test_what_is_announced_and_audited_of_each_is_what_one_alone_has(db: StoreFixture, queue: Queue) -> None:
    old = ended(db, 2)
    fresh = Submission(db.spec(), Caller("ada", Role.MEMBER), "private")
    found = together(db, retry(old[0]), fresh, retry(old[1]), queue=queue)
    alone = submission.submit_alone(store_on(db.database, queue=queue), retry(old[0]))
    made = [each.job for each in (*found, alone) if isinstance(each, Submitted)]
    assert [job.retry_of for job in made] == [old[0], None, old[1], old[0]]
    assert sorted(line.waiting(queue)) == sorted(job.id for job in made)
    assert [job.in_line for job in made] == [1, 2, 3, 4]
    audited = dict(db.read(lambda session: session.execute(select(AuditEntry.object, AuditEntry.action)).all()))
    assert audited == {
        f"{job.retry_of} as {job.id}" if job.retry_of else job.id: "job.retry" if job.retry_of else "job.submit"
        for job in made
    }


def test_a_job_that_cannot_be_retried_is_refused_alone_and_the_others_are_stored(db: StoreFixture) -> None:
    limit(db, "bob", queued=0)
    good, still_open = ended(db, 1)[0], db.submit()
    (bobs,) = ended(db, 1, owner="bob")
    asked = [retry(still_open), retry(good), retry("nonsense"), retry(bobs), retry(bobs, owner="bob")]
    found = together(db, *asked)
    assert [type(each) for each in found] == [type(None), Submitted, type(None), type(None), QuotaExceeded]
    assert retried(db) == [good]
    for wanted, error in zip(asked, (Conflict, None, NotFound, NotFound, QuotaExceeded), strict=True):
        if error is not None:
            with pytest.raises(error):
                submission.submit_alone(store_on(db.database), wanted)
    assert together(db, retry(still_open)) == [None]


def test_one_key_in_one_commit_retries_once_also_after_the_old_job_is_gone(db: StoreFixture) -> None:
    (old,) = ended(db, 1)
    found = together(db, *[retry(old, key="k")] * 5)
    assert len({each.job.id for each in found if isinstance(each, Submitted)}) == 1
    assert retried(db) == [old]
    db.write(lambda session: deletion.delete_job(session, old))
    again = submission.submit_alone(store_on(db.database), retry(old, key="k"))
    assert again.replayed


@on_postgresql
def test_a_job_that_is_locked_holds_up_no_other_retry(db: StoreFixture) -> None:
    locked, free = ended(db, 2)
    with db.database.write() as session:
        jobs.lock(session, locked)
        held, made = together(db, retry(locked), retry(free))
        assert held is None
        assert isinstance(made, Submitted)
        assert together(db, retry(locked)) == [None]
    assert isinstance(together(db, retry(locked))[0], Submitted)


@on_postgresql
def test_transactions_that_share_jobs_users_and_keys_in_any_order_do_not_deadlock(db: StoreFixture) -> None:
    for owner in ("ada", "bob"):
        limit(db, owner, queued=1000)
    old = ended(db, 5) + ended(db, 5, owner="bob")
    for turn in range(2):
        asked = [
            retry(job_id, owner=("ada", "bob")[n // 5], key=f"{turn}-{n}" if n % 2 else None)
            for n, job_id in enumerate(old)
        ]
        both = [partial(together, db, *some) for some in (asked, asked[::-1], asked[5:] + asked[:5])]
        found = run_together(*both, partial(one_by_one, db, asked))
        assert not [each for each in found if isinstance(each, Exception)], found
        # Whose job or user another of them had locked is to be stored alone.
        assert all(isinstance(made, Submitted | None) for each in found if isinstance(each, list) for made in each)
