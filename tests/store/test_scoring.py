"""Estimates are scored when their jobs have started: each once, whatever is interrupted, and by one worker."""

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
import random
from typing import Any

import pytest
from sqlalchemy import event, insert, select, update

from scheduling.calibration import MOST_SCORES, UNTAUGHT, Track, bucket_of, interval, scored
from store.attempts.facts import Claim
from store.jobs import deletion, edits
from store.queue import estimating as estimates
from store.queue.calibrations import tracks
from store.queue.estimates_facts import Estimated, Lease
from store.store import Store
from store.tables import Attempt, Base, Calibration, Estimate, Forecast, ForecastLease
from tests import sessions
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from tests.store.test_estimates import HOUR, MINUTE, estimated, kept, lease_on, now, on_sqlite, put, shown
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.states import EndReason, JobState

Key = tuple[str, int, int]
PAIRS = 4
"""Repetitions of each race."""


def score(db: StoreFixture, lease: Lease) -> int:
    return estimates.score_forecasts(store_on(db.database), lease)


def scores(db: StoreFixture) -> list[Forecast]:
    query = select(Forecast).where(Forecast.scored_at.is_not(None)).order_by(Forecast.scored_at)
    return db.read(lambda session: [*session.scalars(query)])


def calibrations(db: StoreFixture) -> dict[int, Calibration]:
    return db.read(lambda session: {row.bucket: row for row in session.scalars(select(Calibration))})


def pass_time(db: StoreFixture, passed_us: int) -> None:
    """Sets back all times: as if so much had passed since, or the clock had jumped."""
    tables = {
        "forecasts": ("made_at", "low", "high"),
        "estimates": ("made_at", "expected", "low", "high"),
        "jobs": ("lined_at", "created_at"),
        "attempts": ("started_at",),
    }
    for name, columns in tables.items():
        table = Base.metadata.tables[name]
        moved = update(table).values({column: table.c[column] - passed_us for column in columns})
        moved = moved.where(table.c.scored_at.is_(None)) if name == "forecasts" else moved
        db.write(lambda session, moved=moved: session.execute(moved))


def test_an_estimate_is_scored_once_when_its_job_has_started(db: StoreFixture) -> None:
    early, late, waiting = (db.submit() for _ in range(3))
    lease, at = lease_on(db), now(db)
    put(db, lease, estimated(early, at=at), estimated(late, at=at + HOUR), estimated(waiting, at=at), made_at=at)
    assert score(db, lease) == 0
    for slot, job_id in enumerate((early, late)):
        db.running(job_id, db.worker(f"box-{slot}"))
    assert shown(db) == sorted([early, late, waiting])
    assert score(db, lease) == 2
    assert score(db, lease) == 0
    assert shown(db) == [waiting]
    assert {row.job_id: row.held for row in scores(db)} == {early: True, late: False}
    assert sorted(kept(db)) == sorted((job_id, 1, 0) for job_id in (early, late, waiting))
    found = calibrations(db)[2]
    assert (found.scored, found.held, found.of) == (2, 1, 2)
    (track,) = db.read(tracks).values()
    assert (track.held, track.of, track.level) == (1, 2, found.level)
    with recorded_statements(db.database) as statements:
        score(db, lease)
    assert len(statements) == 2, "nothing is written where nothing started"


def test_estimates_that_come_neither_true_nor_false_are_dropped(db: StoreFixture) -> None:
    cancelled, paused, moved, again, still = (db.submit() for _ in range(5))
    lease = lease_on(db)
    put(db, lease, *(estimated(job_id) for job_id in (cancelled, paused, moved, again, still)))
    db.cancel(cancelled)
    db.pause(paused)
    db.write(lambda session: edits.change(session, moved, JobPatch(priority=5)))
    db.pause(again)
    db.resume(again)
    db.running(again, db.worker())
    assert score(db, lease) == 0
    assert kept(db) == [(still, 1, 0)]
    assert sorted(shown(db)) == sorted([moved, still])
    put(db, lease, estimated(moved), made_at=now(db) + HOUR)
    assert (moved, 1, 0) in kept(db)


def test_each_queueing_of_a_job_is_scored_for_itself(db: StoreFixture) -> None:
    job_id, lease = db.submit(), lease_on(db)
    put(db, lease, estimated(job_id))
    claim = db.running(job_id, db.worker())
    db.end(claim, EndReason.PREEMPTED)
    put(db, lease, estimated(job_id, attempt=2))
    assert score(db, lease) == 1
    assert kept(db) == [(job_id, 1, 0), (job_id, 2, 0)]
    db.running(job_id, db.worker("box-b"))
    assert score(db, lease) == 1


def test_a_clock_that_jumps_makes_no_negative_wait(db: StoreFixture) -> None:
    job_id, lease = db.submit(), lease_on(db)
    put(db, lease, estimated(job_id))
    pass_time(db, -HOUR)
    db.running(job_id, db.worker())
    assert score(db, lease) == 1
    (found,) = scores(db)
    expected = scored(UNTAUGHT, wait_us=MINUTE, low=None, high=None, actual_us=0).scores[0].log_ratio
    assert found.log_ratio == expected


def test_who_has_lost_the_lease_scores_nothing(db: StoreFixture) -> None:
    job_id, lease = db.submit(), lease_on(db)
    put(db, lease, estimated(job_id))
    db.running(job_id, db.worker())
    expire(db)
    assert score(db, lease) == 0
    other = lease_on(db, "two")
    assert score(db, lease) == 0
    assert score(db, other) == 1


def test_the_newest_scores_of_a_bucket_are_kept_also_if_the_clock_was_ahead(db: StoreFixture) -> None:
    ahead, like = now(db) + HOUR, db.submit()
    rows = [
        {
            "job_id": like,
            "attempt": 1000 + number,
            "hour": 0,
            "made_at": 0,
            "wait_us": 1,
            "bucket": 2,
            "low": 0,
            "high": 1,
            "scored_at": ahead + number,
            "log_ratio": 0.0,
            "held": number % 2 == 0,
        }
        for number in range(MOST_SCORES)
    ]
    db.write(lambda session: session.execute(insert(Base.metadata.tables["forecasts"]), rows))
    lease = lease_on(db)
    for number in range(3):
        job_id, at = db.submit(), now(db)
        put(db, lease, estimated(job_id, at=at), made_at=at)
        db.running(job_id, db.worker(f"box-{number}"))
        assert score(db, lease) == 1
    found = scores(db)
    assert len(found) == MOST_SCORES
    assert [row.attempt for row in found[-4:]] == [1000 + MOST_SCORES - 1, 1, 1, 1]
    counted = calibrations(db)[2]
    assert (counted.held, counted.of, counted.scored) == (MOST_SCORES // 2 - 2 + 3, MOST_SCORES, 3)


def test_two_that_take_the_lease_from_each_other_score_each_estimate_once(db: StoreFixture) -> None:
    for number in range(PAIRS):
        expire(db)
        job_id, lease = db.submit(), lease_on(db)
        put(db, lease, estimated(job_id))
        db.running(job_id, db.worker(f"box-{number}"))
        found = run_together(
            lambda: score(db, lease),  # noqa: B023
            lambda: score(db, lease),  # noqa: B023
            lambda: expire(db) or score(db, lease_on(db, "two")),
        )
        assert [one for one in found if isinstance(one, Exception)] == [], "one of the two can have the lease"
        assert sum(row.scored for row in calibrations(db).values()) == number + 1
        assert len(scores(db)) == number + 1


def test_scores_wait_for_nobody_who_deletes_or_pauses_a_job(db: StoreFixture) -> None:
    for number in range(PAIRS):
        gone, paused, lease = db.submit(), db.submit(), lease_on(db)
        put(db, lease, estimated(gone), estimated(paused))
        db.complete(db.running(gone, db.worker(f"box-{number}")))
        found = run_together(
            lambda: score(db, lease),  # noqa: B023
            lambda: db.write(lambda session: deletion.delete_job(session, gone)),  # noqa: B023
            lambda: db.pause(paused),  # noqa: B023
            lambda: put(db, lease, estimated(paused)),  # noqa: B023
        )
        assert [one for one in found if isinstance(one, Exception)] == []
        score(db, lease)
        assert [key for key in kept(db) if key[0] in {gone, paused}] == []


@on_sqlite
def test_who_scores_until_there_are_none_has_scored_all(db: StoreFixture) -> None:
    gone, started, lease = db.submit(), db.submit(), lease_on(db)
    rows = [
        {"job_id": job_id, "attempt": 1, "hour": hour, "made_at": 1, "wait_us": 1, "bucket": 0}
        for job_id, hours in ((gone, 1001), (started, 2001))
        for hour in range(hours)
    ]
    db.write(lambda session: session.execute(insert(Base.metadata.tables["forecasts"]), rows))
    db.cancel(gone)
    db.running(started, db.worker())
    assert [score(db, lease) for _ in range(4)] == [1000, 1000, 1, 0]
    assert calibrations(db)[0].scored == 2001
    assert {key[0] for key in kept(db)} == {started}


@on_sqlite
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 40))])
def test_no_estimate_is_scored_twice_in_any_order_of_events(db: StoreFixture, seed: int) -> None:
    run = _Run(db, random.Random(seed))
    for _ in range(120):
        run.step()
    run.settle()
    assert run.done > 0


class _Interrupted(Exception):
    pass


class _Run:
    """Does what comes at random, and compares what is scored with what was scored before."""

    def __init__(self, db: StoreFixture, chance: random.Random) -> None:
        self._db = db
        self._chance = chance
        self._store: Store = store_on(db.database)
        self._leases: dict[str, Lease | None] = {"one": None, "two": None}
        self._claims: list[Claim] = []
        self._known: set[Key] = set()
        self._tracks: dict[int, Track] = defaultdict(lambda: UNTAUGHT)
        self._workers = 0

    @property
    def done(self) -> int:
        return len(self._known)

    def step(self) -> None:
        ways = (
            (self._submit, 4),
            (self._estimate, 8),
            (self._score, 6),
            (self._start, 6),
            (self._end, 2),
            (self._leave, 2),
            (self._lose, 1),
            (self._pass_time, 2),
        )
        (act,) = self._chance.choices([act for act, _ in ways], [weight for _, weight in ways])
        act()
        self._compare()

    def settle(self) -> None:
        """Scores all that is left."""
        expire(self._db)
        lease = estimates.hold_lease(self._store, "three")
        assert lease is not None
        estimates.score_forecasts(self._store, lease)
        self._compare()
        waiting = {job.id: job.attempt + 1 for job in self._jobs(JobState.QUEUED)}
        pending = select(Forecast.job_id, Forecast.attempt).where(Forecast.scored_at.is_(None))
        left = self._db.read(lambda session: [tuple(row) for row in session.execute(pending)])
        assert set(left) <= set(waiting.items())
        assert set(shown(self._db)) <= waiting.keys()

    def _submit(self) -> None:
        self._db.submit()

    def _estimate(self) -> None:
        name = self._chance.choice([*self._leases])
        with self._interrupted():
            self._leases[name] = estimates.hold_lease(self._store, name) or self._leases[name]
        lease, at = self._leases[name], now(self._db)
        if lease is None:
            return
        known = self._db.read(tracks)
        some = [self._estimated(job.id, job.attempt + 1, at, known) for job in self._jobs(JobState.QUEUED)]
        before, stored = self._everything(), False
        with self._interrupted() as was:
            stored = sessions.write(
                self._store, estimates.store_estimates, lease, made_at=at, estimated=some, after=None
            )
        assert stored == (lease == self._holder() and not was)
        if not stored:
            assert self._everything() == before

    def _estimated(self, job_id: str, attempt: int, at: int, tracks: dict[int, Track] | Any) -> Estimated:
        wait = self._chance.choice([0, MINUTE, 20 * MINUTE, HOUR, 2 * HOUR])
        found = interval(tracks, wait)
        low, high = found.low, found.high
        if low is None and self._chance.random() < 0.5:
            low, high = 0, self._chance.choice([MINUTE, HOUR])
        moments = (None if one is None else at + one for one in (low, high))
        return Estimated(job_id, attempt, wait, bucket_of(wait), at + found.expected, *moments)

    def _score(self) -> None:
        lease = self._leases[self._chance.choice([*self._leases])]
        if lease is None:
            return
        before = self._everything()
        with self._interrupted() as was:
            estimates.score_forecasts(self._store, lease)
        if was or lease != self._holder():
            assert self._everything() == before

    def _start(self) -> None:
        if waiting := self._jobs(JobState.QUEUED):
            self._workers += 1
            worker = self._db.worker(f"box-{self._workers}")
            self._claims.append(self._db.running(self._chance.choice(waiting).id, worker))

    def _end(self) -> None:
        if self._claims:
            claim = self._claims.pop(self._chance.randrange(len(self._claims)))
            self._db.end(claim, self._chance.choice([EndReason.PREEMPTED, EndReason.COMPLETED]))

    def _leave(self) -> None:
        waiting = self._jobs(JobState.QUEUED)
        if not waiting:
            return
        job_id = self._chance.choice(waiting).id
        if self._chance.random() < 0.5:
            self._db.cancel(job_id)
        else:
            self._db.pause(job_id)
            self._db.resume(job_id)

    def _lose(self) -> None:
        expire(self._db)

    def _pass_time(self) -> None:
        pass_time(self._db, self._chance.choice([HOUR, 10 * MINUTE, -5 * MINUTE]))

    @contextmanager
    def _interrupted(self) -> Generator[list[int]]:
        """Breaks the block at some statement, as the end of the program would: sometimes, and says so."""
        left, was = self._chance.choice([1, 2, 3, 4, 5, 6, 7, 8, *[1000] * 16]), list[int]()

        def count(*_: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                was.append(1)
                raise _Interrupted

        event.listen(self._db.database.engine, "before_cursor_execute", count)
        try:
            yield was
        except _Interrupted:
            pass
        finally:
            event.remove(self._db.database.engine, "before_cursor_execute", count)

    def _compare(self) -> None:
        """Checks that what is newly scored never was, and that the calibrations have learnt just that."""
        started = {(row.job_id, row.number): row.started_at for row in self._attempts()}
        for row in scores(self._db):
            key = (row.job_id, row.attempt, row.hour)
            if key in self._known:
                continue
            self._known.add(key)
            actual = max(0, started[row.job_id, row.attempt] - row.made_at)
            low, high = (None if one is None else one - row.made_at for one in (row.low, row.high))
            track = scored(self._tracks[row.bucket], wait_us=row.wait_us, low=low, high=high, actual_us=actual)
            self._tracks[row.bucket] = track
            assert (row.log_ratio, row.held) == (track.scores[-1].log_ratio, track.scores[-1].held)
        found = calibrations(self._db)
        assert sum(row.scored for row in found.values()) == len(self._known)
        for bucket, row in found.items():
            track = self._tracks[bucket]
            assert (row.level, row.held, row.of) == (track.level, track.held, track.of)
            assert row.of <= MOST_SCORES

    def _jobs(self, state: JobState) -> list[Any]:
        table = Base.metadata.tables["jobs"]
        query = select(table.c.id, table.c.attempt).where(table.c.state == state).order_by(table.c.id)
        return self._db.read(lambda session: [*session.execute(query)])

    def _attempts(self) -> list[Attempt]:
        return self._db.read(lambda session: [*session.scalars(select(Attempt))])

    def _holder(self) -> Lease | None:
        row = self._db.read(lambda session: session.scalars(select(ForecastLease)).first())
        return None if row is None or row.until <= now(self._db) else Lease(row.holder, row.token)

    def _everything(self) -> list[Any]:
        """Returns what who has lost the lease must not change."""
        tables = [Base.metadata.tables[one.__tablename__] for one in (Estimate, Forecast, Calibration)]
        return self._db.read(
            lambda session: [
                tuple(row) for table in tables for row in session.execute(select(table).order_by(*table.c))
            ]
        )


def expire(db: StoreFixture) -> None:
    db.write(lambda session: session.execute(update(ForecastLease).values(until=0)))
