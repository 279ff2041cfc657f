"""Estimates of waiting jobs: the lease of who makes them, what of the line they are made of, and what is kept."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import delete, select, update

from scheduling.calibration import ENOUGH
from scheduling.snapshot import Waiting
from store.db.database import now_us
from store.jobs import listing, show
from store.jobs.queued import list_queue
from store.queue import estimates as rows_of_estimates
from store.queue import estimating as estimates
from store.queue import forecast_lease, forecasting
from store.queue.estimates_facts import Estimated, EstimateFacts, Lease, Seen
from store.tables import Base, Calibration, Estimate, Forecast, ForecastLease
from store.team.callers import SERVICE
from tests import sessions
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from torchyard.contract.spec.resources import Resources

on_sqlite = pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
HOUR = 3_600_000_000
MINUTE = 60_000_000


def seen(db: StoreFixture, newcomer: Waiting | None = None, *, most: int = 200) -> Seen:
    return db.read(
        lambda session: forecasting.first_in_line(
            session, observed={}, max_stop_grace=timedelta(0), newcomer=newcomer, most=most
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
    return db.write(lambda session: estimates.store_estimates(session, lease, made_at=at, estimated=some, after=after))


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
    assert found.after == 3
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


@on_sqlite
def test_many_owners_make_few_statements_also_without_redis(db: StoreFixture) -> None:
    for number in range(300):
        db.submit(owner=f"user-{number}")
    with recorded_statements(db.database) as statements:
        found = seen(db)
    assert (len(found.snapshot.line), found.after) == (200, 100)
    assert len(statements) < 30


def test_one_worker_holds_the_lease_until_it_ends(db: StoreFixture) -> None:
    store = store_on(db.database)
    first = lease_on(db)
    assert first == Lease("one", 1)
    assert estimates.hold_lease(store, "two") is None
    assert estimates.hold_lease(store, "one") == first
    sessions.write(store, forecast_lease.release, first)
    second = lease_on(db, "two")
    assert second == Lease("two", 2)
    sessions.write(store, forecast_lease.release, first)
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


def test_a_queued_job_shows_its_estimate_in_its_json_in_lists_and_in_the_queue(db: StoreFixture) -> None:
    queued, lease, at = db.submit(), lease_on(db), now(db)
    put(db, lease, estimated(queued, at=at), made_at=at)
    told = EstimateFacts(at + MINUTE, at, at + 2 * MINUTE, at, held=0, of=0)
    assert db.read(lambda session: show.find_job(session, queued, SERVICE)).estimate == told
    assert [job.estimate for job in db.read(lambda session: listing.list_some(session, [queued]))] == [told]
    assert [job.estimate for job in db.read(lambda session: list_queue(session, limit=9)).items] == [told]
    db.running(queued, db.worker())
    assert db.read(lambda session: show.find_job(session, queued, SERVICE)).estimate is None


def test_a_list_reads_no_estimates_unless_it_has_a_queued_job(db: StoreFixture) -> None:
    running, queued = db.submit(), db.submit()
    db.running(running, db.worker())
    put(db, lease_on(db), estimated(queued))

    def read(*job_ids: str) -> list[str]:
        with recorded_statements(db.database) as statements:
            db.read(lambda session: listing.list_some(session, job_ids))
        return [statement for statement in statements if "estimates" in statement or "calibrations" in statement]

    assert read(running) == []
    assert len(read(running, queued)) == 2


def test_an_estimate_says_how_those_of_its_bucket_did(db: StoreFixture) -> None:
    jobs, lease = [db.submit() for _ in range(4)], lease_on(db)
    calibrations = [
        Calibration(bucket=bucket, level=0.2, scored=scored, held=held, of=of)
        for bucket, scored, held, of in ((0, 12, 0, 0), (1, 500, 158, 200), (2, 3, 1, 2))
    ]
    db.write(lambda session: session.add_all(calibrations))
    some = [Estimated(job_id, 1, 1, bucket, 5, 4, 6) for bucket, job_id in enumerate(jobs)]
    put(db, lease, *some, made_at=3)
    assert shown_of(db, jobs) == [(0, 0), (158, 200), (1, 2), (0, 0)]
    put(db, lease, Estimated(jobs[0], 1, 1, 0, 5, None, None), made_at=3)
    assert shown_of(db, jobs[:1]) == [(0, ENOUGH - 1)], "many have come true since it was made"
    db.write(lambda session: session.execute(delete(Calibration).where(Calibration.bucket == 1)))
    assert shown_of(db, jobs[:1]) == [(0, 15)]


def test_a_job_behind_those_that_are_looked_at_starts_after_them(db: StoreFixture) -> None:
    waiting, held = db.submit(), db.submit()
    db.hold_back(held, seconds=60)
    rows = [db.job(waiting), db.job(held)]

    def told(place: int) -> dict[str, EstimateFacts]:
        places = {waiting: place, held: place}
        return db.read(lambda session: rows_of_estimates.of_jobs(session, rows, places))

    assert told(201) == {}, "nobody has made any"
    at = now(db)
    put(db, lease_on(db), made_at=at, after=at + HOUR)
    assert told(200) == {}
    assert told(201) == {waiting: EstimateFacts(None, at + HOUR, None, at, 0, 0)}


def shown_of(db: StoreFixture, job_ids: Sequence[str]) -> list[tuple[int, int]]:
    found = {job.id: job.estimate for job in db.read(lambda session: listing.list_some(session, job_ids))}
    return [(one.held, one.of) for job_id in job_ids if (one := found[job_id]) is not None]
