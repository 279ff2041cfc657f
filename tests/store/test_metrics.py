"""Metric points: replaced, non-finite, and which are visible where attempts overlap."""

from dataclasses import replace
import math

import pytest
from sqlalchemy import insert, select

from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.output import metrics
from store.output.checkpoints_facts import CAPTURED
from store.output.facts import MetricPoint
from store.output.metrics import POINT
from store.output.series import PointFilter
from store.tables import Attempt, PointChunk, Series
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.states import EndReason

EVERYTHING = PointFilter()


def point(step: int, value: float, *, key: str = "train/loss", time: int = 1) -> MetricPoint:
    return MetricPoint(key, step, value, time)


def values(db: StoreFixture, job_id: str, where: PointFilter = EVERYTHING) -> dict[str, list[tuple[int, float]]]:
    return {key: [(step, value) for step, value, _, _ in points] for key, points in rows(db, job_id, where).items()}


def rows(
    db: StoreFixture, job_id: str, where: PointFilter = EVERYTHING
) -> dict[str, list[tuple[int, float, int, int]]]:
    """Step, value, time and attempt of each point, by key."""
    found = db.series(job_id, where)
    return {
        key: list(
            zip(
                *(column.tolist() for column in (points.steps, points.values, points.times, points.attempts)),
                strict=True,
            )
        )
        for key, points in found.items()
    }


def latest(db: StoreFixture, *job_ids: str) -> dict[str, dict[str, float]]:
    return db.read(lambda session: metrics.read_latest(session, job_ids))


def test_points_are_returned_by_step_with_their_time_and_attempt(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, points=[point(2, 0.5, time=20), point(1, 0.7, time=10), point(1, 9.0, key="val/loss")])
    assert rows(db, claim.job_id) == {"train/loss": [(1, 0.7, 10, 1), (2, 0.5, 20, 1)], "val/loss": [(1, 9.0, 1, 1)]}


def test_a_step_that_was_measured_twice_has_the_newest_value(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, points=[point(1, 1.0), point(1, 2.0)])
    assert values(db, claim.job_id) == {"train/loss": [(1, 2.0)]}
    db.record(claim, seq=1, points=[point(1, 3.0), point(2, 4.0)])
    assert values(db, claim.job_id) == {"train/loss": [(1, 3.0), (2, 4.0)]}
    assert latest(db, claim.job_id) == {claim.job_id: {"train/loss": 4.0}}
    assert db.read(lambda session: session.scalars(select(Series.count)).all()) == [4]


def test_every_float_is_stored_exactly(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    for seq, value in enumerate((math.nan, math.inf, -math.inf, 0.1, 5e-324, 1.7976931348623157e308, 2**53 + 1.0)):
        db.record(claim, seq=seq, points=[point(seq, value)])
        _, stored = values(db, claim.job_id)["train/loss"][-1]
        newest = latest(db, claim.job_id)[claim.job_id]["train/loss"]
        assert repr(float(stored)) == repr(float(newest)) == repr(value)


def test_the_largest_step_is_stored(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, points=[point(2**63 - 1, 1.0)])
    assert values(db, claim.job_id) == {"train/loss": [(2**63 - 1, 1.0)]}


def test_points_are_filtered_by_key_and_step(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, points=[point(step, step, key=key) for key in ("a", "b", "é/ü") for step in range(5)])
    job_id = claim.job_id
    assert set(values(db, job_id)) == {"a", "b", "é/ü"}
    assert set(values(db, job_id, PointFilter(keys=("é/ü", "none")))) == {"é/ü"}
    assert values(db, job_id, PointFilter(keys=("a",), from_step=1, to_step=3)) == {"a": [(1, 1), (2, 2), (3, 3)]}
    assert values(db, job_id, PointFilter(keys=("a",), from_step=5)) == {"a": []}


def test_jobs_do_not_see_each_others_points(db: StoreFixture) -> None:
    worker = db.worker()
    one, two = db.running(db.submit(), worker, "a"), db.running(db.submit(), worker, "b")
    db.record(one, seq=0, points=[point(1, 1.0)])
    db.record(two, seq=0, points=[point(1, 2.0)])
    assert values(db, one.job_id) == {"train/loss": [(1, 1.0)]}
    assert latest(db, one.job_id, two.job_id) == {
        one.job_id: {"train/loss": 1.0},
        two.job_id: {"train/loss": 2.0},
    }
    empty = db.submit()
    assert (values(db, empty), latest(db, empty)) == ({}, {empty: {}})


def trained(
    db: StoreFixture, job_id: str, worker: str, *, start: int, last: int, first: int | None = None, ends: bool = True
) -> Claim:
    """An attempt from `start` that logged its own number at each step to `last`, and was then lost."""
    claim = db.running(job_id, worker)
    db.write(lambda session: attempts.mark_prepared(session, claim, start_step=start))
    steps = range(start + 1 if first is None else first, last + 1)
    db.record(claim, seq=0, points=[point(step, claim.number) for step in steps])
    if ends:
        db.end(claim, EndReason.WORKER_LOST)
    return claim


def who(db: StoreFixture, job_id: str, attempt: int | None = None) -> list[tuple[int, float]]:
    return values(db, job_id, PointFilter(attempt=attempt)).get("train/loss", [])


@quick_on_sqlite
def test_a_step_of_two_attempts_shows_the_later_one(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    trained(db, job_id, worker, start=0, last=5)
    trained(db, job_id, worker, start=3, last=4)
    # Step 5 of the first attempt lies beyond the step from which the second resumed, which has not come so far.
    assert who(db, job_id) == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert who(db, job_id, attempt=1) == [(step, 1) for step in range(1, 6)]
    assert who(db, job_id, attempt=2) == [(4, 2)]
    assert who(db, job_id, attempt=3) == []


@quick_on_sqlite
def test_the_third_of_three_attempts_resumes_before_the_second(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    trained(db, job_id, worker, start=0, last=6)
    trained(db, job_id, worker, start=4, last=8)
    trained(db, job_id, worker, start=2, last=3)
    assert who(db, job_id) == [(1, 1), (2, 1), (3, 3)]
    assert who(db, job_id, attempt=2) == [(step, 2) for step in range(5, 9)]


@quick_on_sqlite
def test_each_of_three_attempts_resumes_from_the_one_before(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    trained(db, job_id, worker, start=0, last=3)
    trained(db, job_id, worker, start=2, last=5)
    trained(db, job_id, worker, start=4, last=6)
    assert who(db, job_id) == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]


def test_an_attempt_from_step_zero_hides_all_earlier_ones(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    trained(db, job_id, worker, start=0, last=3)
    claim = db.running(job_id, worker)
    db.write(lambda session: attempts.mark_prepared(session, claim, start_step=0))
    assert who(db, job_id) == []
    assert len(who(db, job_id, attempt=1)) == 3


def test_a_recipe_without_a_checkpoint_hides_all_earlier_points_at_once(db: StoreFixture) -> None:
    job_id, worker = db.submit(trainer="image-classification", config={"data": {"source": "digits"}}), db.worker()
    trained(db, job_id, worker, start=0, last=3)
    db.running(job_id, worker)
    assert who(db, job_id) == []


def test_a_script_that_may_go_on_from_its_own_files_hides_points_from_its_first_step(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    trained(db, job_id, worker, start=0, last=5)
    claim = db.running(job_id, worker)
    assert who(db, job_id) == [(step, 1) for step in range(1, 6)]
    db.record(claim, seq=0, points=[point(4, 2), point(3, 2)])
    assert who(db, job_id) == [(1, 1), (2, 1), (3, 2), (4, 2)]
    db.record(claim, seq=1, points=[point(1, 2)])  # what it tells later hides nothing more
    assert who(db, job_id) == [(1, 2), (2, 1), (3, 2), (4, 2)]


@pytest.mark.parametrize("captured", [True, False])
def test_an_attempt_after_a_captured_checkpoint_hides_points_from_its_first_step(
    db: StoreFixture, captured: bool
) -> None:
    job_id, worker = db.submit(), db.worker()
    first = trained(db, job_id, worker, start=0, last=5, ends=False)
    saved = replace(checkpoint("c", step=2), source=CAPTURED if captured else None)
    db.record(first, seq=1, checkpoints=[saved])
    db.end(first, EndReason.WORKER_LOST)
    claim = db.running(job_id, worker)
    assert db.attempt(claim).start_step == 2
    assert who(db, job_id) == [(step, 1) for step in range(1, 6 if captured else 3)]
    db.write(lambda session: attempts.mark_prepared(session, claim, start_step=2, is_known=not captured))
    db.record(claim, seq=0, curves={"tensorboard": [point(5, 2, key="curve")]})
    assert who(db, job_id) == [(step, 1) for step in range(1, 5 if captured else 3)]


def test_thousands_of_attempts_are_joined(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    first = trained(db, job_id, worker, start=0, last=3)
    more = [
        {"job_id": job_id, "number": number, "worker_id": worker, "lease_until": 0, "ended_at": 1, "hides_after": 2}
        for number in range(first.number + 1, 3000)
    ]
    db.write(lambda session: session.execute(insert(Attempt), more))
    assert who(db, job_id) == [(1, 1), (2, 1)]


@quick_on_sqlite
def test_a_step_that_two_attempts_logged_has_one_point(db: StoreFixture) -> None:
    job_id, worker = db.submit(), db.worker()
    trained(db, job_id, worker, start=0, first=0, last=2)
    trained(db, job_id, worker, start=2, first=2, last=3)
    assert who(db, job_id) == [(0, 1), (1, 1), (2, 2), (3, 2)]


def test_a_step_in_thousands_of_chunks_has_the_newest_value(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, points=[point(1, 0.0)])
    (series_id,) = db.read(lambda session: session.scalars(select(Series.id)).all())
    place = {"series_id": series_id, "job_id": claim.job_id, "attempt": 1, "count": 2}
    chunks = [
        {**place, "first": 100 + 37 * number, "data": POINT.pack(1, number, 1) + POINT.pack(number + 2, number, 1)}
        for number in range(5000)
    ]
    db.write(lambda session: session.execute(insert(PointChunk), chunks))
    found = rows(db, claim.job_id)["train/loss"]
    assert found[0] == (1, 4999.0, 1, 1)
    assert [step for step, _, _, _ in found] == list(range(1, 5002))
    assert [value for _, value, _, _ in found[1:]] == list(range(5000))


def sources(db: StoreFixture, job_id: str) -> dict[str, str | None]:
    found = db.series(job_id, EVERYTHING)
    return {key: columns.source for key, columns in found.items()}


def test_what_a_script_reports_itself_comes_before_its_event_files(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, curves={"tensorboard": [point(1, 1.0), point(1, 1.0, key="lr")]})
    assert sources(db, claim.job_id) == {"train/loss": "tensorboard", "lr": "tensorboard"}
    db.record(claim, seq=1, points=[point(2, 2.0)], curves={"tensorboard": [point(2, 9.0), point(2, 2.0, key="lr")]})
    assert sources(db, claim.job_id) == {"train/loss": None, "lr": "tensorboard"}
    assert values(db, claim.job_id) == {"train/loss": [(1, 1.0), (2, 2.0)], "lr": [(1, 1.0), (2, 2.0)]}
