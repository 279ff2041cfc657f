"""The kept counts of jobs are those of the rows, whatever happened to the jobs."""

from collections.abc import Callable
from itertools import count, product
import random

import pytest
from sqlalchemy import func, select

from store.attempts import lease as leases
from store.jobs import counts as job_counts
from store.jobs import deletion, edits, listing
from store.jobs.facts import JobCounts
from store.tables import Job, JobCount
from store.team import access
from store.team.callers import SERVICE, Caller
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, new_job, recorded_statements, run_together
from torchyard.contract.jobs.filters import JobQuery
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role

CALLERS = [SERVICE, Caller("ada", Role.MEMBER), Caller("eve", Role.MEMBER), Caller("oz", Role.OPERATOR)]
MOST_ROWS = 8


class History:
    """Jobs of two users to whom random things happen."""

    def __init__(self, db: StoreFixture, seed: int) -> None:
        self.db = db
        self._random = random.Random(seed)
        self._worker = db.worker()
        self._devices = count()

    def step(self) -> None:
        acts: list[Callable[[], None]] = [self._submit, self._submit, self._start, self._start, self._end]
        acts += [self._cancel, self._pause, self._resume, self._show, self._archive, self._delete, self._add_up]
        self._random.choice(acts)()

    def _submit(self) -> None:
        owner, visibility = self._random.choice(["ada", "eve"]), self._random.choice(["team", "private"])
        self.db.submit_many(self._random.randint(1, 12), owner=owner, visibility=visibility)

    def _start(self) -> None:
        for job_id in self._some(JobState.QUEUED):
            self.db.running(job_id, self._worker, f"slot-{next(self._devices)}")

    def _end(self) -> None:
        for claim in self.db.read(lambda session: leases.list_open(session, self._worker))[:2]:
            self.db.end(claim, self._random.choice([EndReason.COMPLETED, EndReason.PREEMPTED]))

    def _cancel(self) -> None:
        for job_id in self._some(JobState.QUEUED, JobState.RUNNING, JobState.PAUSED):
            self.db.cancel(job_id)

    def _pause(self) -> None:
        for job_id in self._some(JobState.QUEUED):
            self.db.pause(job_id)

    def _resume(self) -> None:
        for job_id in self._some(JobState.PAUSED):
            self.db.resume(job_id)

    def _show(self) -> None:
        for job_id in self._some(*JobState):
            patch = JobPatch(visibility=self._random.choice(["team", "private"]))
            self.db.write(lambda session, job_id=job_id, patch=patch: edits.change(session, job_id, patch))

    def _archive(self) -> None:
        for job_id in self._some(JobState.CANCELLED, JobState.SUCCEEDED):
            patch = JobPatch(archived=self._random.choice([True, True, False]))
            self.db.write(lambda session, job_id=job_id, patch=patch: edits.change(session, job_id, patch))

    def _delete(self) -> None:
        for job_id in self._some(JobState.CANCELLED, JobState.SUCCEEDED):
            self.db.write(lambda session, job_id=job_id: deletion.delete_job(session, job_id))

    def _add_up(self) -> None:
        self.db.write(job_counts.add_up)

    def _some(self, *states: JobState) -> list[str]:
        ids = self.db.read(lambda session: session.scalars(select(Job.id).where(Job.state.in_(states))).all())
        return self._random.sample(sorted(ids), min(len(ids), 2))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2, 3))])
@quick_on_sqlite
def test_the_counts_are_those_of_the_jobs_at_every_point_of_a_history(db: StoreFixture, seed: int) -> None:
    history = History(db, seed)
    for _ in range(15):
        history.step()
        check(db)
    db.write(job_counts.add_up)
    check(db)
    assert max(rows_of_groups(db)) <= MOST_ROWS


def test_counts_that_are_added_up_by_two_workers_while_jobs_come_stay_exact(db: StoreFixture) -> None:
    for _ in range(2 * MOST_ROWS):
        db.submit()
    submissions = [lambda: db.submit_many(3, owner="eve") for _ in range(4)]
    done = run_together(*submissions, *[lambda: db.write(job_counts.add_up)] * 3)
    assert [found for found in done if isinstance(found, Exception)] == []
    check(db)


@quick_on_sqlite
def test_a_transaction_that_fails_counts_nothing(db: StoreFixture) -> None:
    db.submit()
    with pytest.raises(ZeroDivisionError), db.database.write() as session:
        new_job(session, db.spec(), owner="ada")
        raise ZeroDivisionError
    check(db)


def test_a_list_without_other_filters_is_counted_without_reading_a_job(db: StoreFixture) -> None:
    db.submit_many(3)
    for where in ({}, {"owner": "ada"}):
        with recorded_statements(db.database) as statements:
            found = db.read(
                lambda session, where=where: listing.count_jobs(session, JobQuery.model_validate(where), caller=SERVICE)
            )
        assert found == JobCounts({JobState.QUEUED: 3})
        assert [statement for statement in statements if "FROM jobs" in statement] == []


def test_of_a_long_list_the_newest_jobs_that_are_found_are_counted(
    db: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [db.submit(name="digits-old") for _ in range(3)]
    for job_id in old:
        db.cancel(job_id)
    for name in ("digits-new", "digits-new", "cracks"):
        db.submit(name=name)

    def counted(**where: str) -> JobCounts:
        query = JobQuery.model_validate(where)
        return db.read(lambda session: listing.count_jobs(session, query, caller=SERVICE))

    every = {JobState.QUEUED: 2, JobState.CANCELLED: 3}
    assert counted(q="digits") == JobCounts(every)
    monkeypatch.setattr(listing, "_ALL_COUNTED", 5)
    monkeypatch.setattr(listing, "_MOST_COUNTED", 4)
    assert counted(q="digits") == JobCounts({JobState.QUEUED: 2, JobState.CANCELLED: 2}, is_complete=False)
    assert counted(q="digits-old") == JobCounts({JobState.CANCELLED: 3})
    assert counted(name="cracks") == JobCounts({JobState.QUEUED: 1})
    assert counted(q="nothing") == JobCounts({})
    assert counted() == JobCounts({JobState.QUEUED: 3, JobState.CANCELLED: 3})


def check(db: StoreFixture) -> None:
    """Compares what each caller is told with the rows of jobs."""
    for caller in CALLERS:
        for owner, archived in product((None, "ada", "nobody"), (False, True)):
            with db.database.read() as session:
                kept = job_counts.by_state(session, caller=caller, owner=owner, archived=archived)
            query = select(Job.state, func.count()).where(access.match_listed(caller)).group_by(Job.state)
            query = query.where(Job.archived_at.is_not(None) if archived else Job.archived_at.is_(None))
            if owner is not None:
                query = query.where(Job.owner == owner)
            rows = db.read(lambda session, query=query: session.execute(query).all())
            assert sorted(kept.items()) == sorted(map(tuple, rows)), (caller.name, owner, archived)


def rows_of_groups(db: StoreFixture) -> list[int]:
    query = select(func.count(JobCount.id)).group_by(*job_counts.KEY)
    return [*db.read(lambda session: session.scalars(query).all())]
