"""Estimates of waiting jobs: the lease of who makes them, what of the line they are made of, and what is kept."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import select, update

from scheduling.snapshot import Waiting
from store.commands import estimates
from store.db.database import now_us
from store.db.tables import Base, Estimate, Forecast, ForecastLease
from store.facts.estimates import Estimated, Lease, Seen
from store.rows import forecasting
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from torchyard.contract.resources import Resources

HOUR = 3_600_000_000
MINUTE = 60_000_000


def seen(db: StoreFixture, newcomer: Waiting | None = None, *, most: int = 200) -> Seen:
    return db.read(
        lambda session: forecasting.first_in_line(
            session, here="", observed={}, max_stop_grace=timedelta(0), newcomer=newcomer, most=most
        )
    )


def now(db: StoreFixture) -> int:
    return db.read(lambda session: session.execute(select(now_us())).scalar_one())


def estimated(job_id: str, *, attempt: int = 1, wait_us: int = MINUTE, at: int = 0) -> Estimated:
    return Estimated(job_id, attempt, wait_us, 2, at + wait_us, at, at + 2 * wait_us)


def lease_on(db: StoreFixture, worker: str = "one") -> Lease:
    found = estimates.hold_lease(store_on(db.database), worker)
    assert found is not None
    return found


def put(db: StoreFixture, lease: Lease, *some: Estimated, made_at: int | None = None, after: int | None = None) -> bool:
    at = now(db) if made_at is None else made_at
    return estimates.put(store_on(db.database), lease, made_at=at, estimated=some, after=after)


def shown(db: StoreFixture) -> list[str]:
    return db.read(lambda session: [*session.scalars(select(Estimate.job_id).order_by(Estimate.job_id))])


def kept(db: StoreFixture) -> list[tuple[str, int, int]]:
    query = select(Forecast.job_id, Forecast.attempt, Forecast.hour).order_by(
        Forecast.job_id, Forecast.attempt, Forecast.hour
    )
    return db.read(lambda session: [(row.job_id, row.attempt, row.hour) for row in session.execute(query)])


def ids(found: Sequence[Waiting]) -> list[str]:
    return [job.id for job in found]


def test_the_first_jobs_of_the_line_are_seen_with_how_many_follow(db: StoreFixture) -> None:
    db.worker()
    late = [db.submit(owner="bob", priority=-1) for _ in range(3)]
    held, first, second = (db.submit() for _ in range(3))
    db.hold_back(held, seconds=60)
    db.running(db.submit(priority=100), db.worker("two"))
    found = seen(db, most=3)
    assert ids(found.snapshot.line) == [first, second, late[0]]
    assert found.behind == 3
    assert found.attempts == dict.fromkeys([first, second, late[0]], 1)
    assert len(found.snapshot.running) == 1
    assert len(seen(db).snapshot.line) == 5


def test_a_newcomer_is_in_the_line_and_says_whether_others_that_are_not_seen_stand_before_it(db: StoreFixture) -> None:
    jobs = [db.submit(), db.submit()]

    def newcomer(priority: int) -> Waiting:
        return Waiting("new", "eve", priority, "shape", Resources(), now(db), limit_us=1)

    first, last = seen(db, newcomer(7), most=1), seen(db, newcomer(-7), most=1)
    assert ids(first.snapshot.line) == ids(last.snapshot.line) == [jobs[0], "new"]
    assert (first.is_newcomer_behind, last.is_newcomer_behind) == (False, True)
    assert not seen(db, newcomer(-7)).is_newcomer_behind
    known = next(job for job in seen(db).snapshot.line if job.id == jobs[1])
    assert sorted(ids(seen(db, known, most=1).snapshot.line)) == sorted(jobs)
    assert ids(seen(db, known).snapshot.line) == jobs


def test_statements_do_not_grow_with_the_jobs(db: StoreFixture) -> None:
    counts: list[int] = []
    for more in (2, 198):
        db.submit_many(more)
        with recorded_statements(db.database) as statements:
            seen(db)
        counts.append(len(statements))
    assert counts[0] == counts[1] < 30


def test_one_worker_holds_the_lease_until_it_ends(db: StoreFixture) -> None:
    store = store_on(db.database)
    first = lease_on(db)
    assert first == Lease("one", 1)
    assert estimates.hold_lease(store, "two") is None
    assert estimates.hold_lease(store, "one") == first
    estimates.release_lease(store, first)
    second = lease_on(db, "two")
    assert second == Lease("two", 2)
    estimates.release_lease(store, first)
    assert estimates.hold_lease(store, "one") is None, "who has lost it releases nothing"
    assert not put(db, first)
    assert put(db, second)


def test_a_lease_far_ahead_was_taken_before_the_clock_jumped_back(db: StoreFixture) -> None:
    lease_on(db)
    far = update(ForecastLease).values(until=now_us() + HOUR)
    db.write(lambda session: session.execute(far))
    assert estimates.hold_lease(store_on(db.database), "two") == Lease("two", 2)


def test_of_two_workers_that_ask_together_one_gets_the_lease(db: StoreFixture) -> None:
    store = store_on(db.database)
    found = run_together(*(lambda name=name: estimates.hold_lease(store, name) for name in ("one", "two", "three")))
    assert [one for one in found if isinstance(one, Exception)] == []
    assert len([one for one in found if one is not None]) == 1


def test_a_lease_that_lasts_is_only_read(db: StoreFixture) -> None:
    lease_on(db)
    with recorded_statements(db.database) as statements:
        estimates.hold_lease(store_on(db.database), "one")
        estimates.hold_lease(store_on(db.database), "two")
    assert len(statements) == 2


def test_new_estimates_replace_all_others(db: StoreFixture) -> None:
    first, second, third = (db.submit() for _ in range(3))
    lease = lease_on(db)
    put(db, lease, estimated(first), estimated(second))
    db.cancel(second)
    assert put(db, lease, estimated(second), estimated(third), estimated(first, attempt=2), after=now(db) + HOUR)
    assert shown(db) == [third], "the others left the line, or wait for another attempt"
    row = db.read(lambda session: session.scalars(select(ForecastLease)).one())
    assert row.after is not None
    assert row.made_at is not None


def test_the_first_estimate_of_a_queueing_and_one_an_hour_are_kept(db: StoreFixture) -> None:
    job_id = db.submit()
    lease, at = lease_on(db), now(db)
    ago = update(Base.metadata.tables["jobs"]).values(lined_at=at - 10 * HOUR)
    db.write(lambda session: session.execute(ago))
    for passed in (0, 30 * MINUTE, HOUR - 1, HOUR, HOUR + MINUTE, 5 * HOUR, 4 * HOUR):
        put(db, lease, estimated(job_id), made_at=at - 9 * HOUR + passed)
    assert kept(db) == [(job_id, 1, 0), (job_id, 1, 1), (job_id, 1, 5)]


def test_moments_that_cannot_be_are_cut(db: StoreFixture) -> None:
    job_id, at = db.submit(), now(db)
    wild = Estimated(job_id, 1, 2**80, 4, expected=2**80, low=-(2**80), high=-5)
    assert put(db, lease_on(db), wild, made_at=at + HOUR)
    row = db.read(lambda session: session.scalars(select(Estimate)).one())
    assert row.expected is not None
    assert row.low == row.made_at < at + HOUR, "it is not made in the future"
    assert at + HOUR < row.expected < 2**55
    assert row.high == row.expected
