"""Points: replaced, non-finite, and what is visible where attempts overlap."""

import math

import pytest
from sqlalchemy import insert, select

from store.db.tables import Attempt, PointChunk, Series
from store.rows import attempts, metrics
from store.rows.attempts import Claim
from store.rows.metrics import POINT, NewPoint, PointFilter
from tests.store.yard import Yard
from torchyard.contract.job import EndReason

EVERYTHING = PointFilter()


def point(step: int, value: float, *, key: str = "train/loss", time: int = 1) -> NewPoint:
    return NewPoint(key, step, value, time)


def values(yard: Yard, job_id: str, where: PointFilter = EVERYTHING) -> dict[str, list[tuple[int, float]]]:
    return {key: [(step, value) for step, value, _, _ in points] for key, points in rows(yard, job_id, where).items()}


def rows(yard: Yard, job_id: str, where: PointFilter = EVERYTHING) -> dict[str, list[tuple[int, float, int, int]]]:
    """Step, value, time and attempt of each point, by key."""
    found = yard.read(lambda session: metrics.read(session, job_id, where))
    return {
        key: list(
            zip(
                *(column.tolist() for column in (points.steps, points.values, points.times, points.attempts)),
                strict=True,
            )
        )
        for key, points in found.items()
    }


def latest(yard: Yard, *job_ids: str) -> dict[str, dict[str, float]]:
    return yard.read(lambda session: metrics.latest(session, job_ids))


def test_points_come_back_by_step_with_their_time_and_attempt(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.record(claim, seq=0, points=[point(2, 0.5, time=20), point(1, 0.7, time=10), point(1, 9.0, key="val/loss")])
    assert rows(yard, claim.job_id) == {"train/loss": [(1, 0.7, 10, 1), (2, 0.5, 20, 1)], "val/loss": [(1, 9.0, 1, 1)]}


def test_of_a_step_that_was_measured_twice_the_newest_value_counts(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.record(claim, seq=0, points=[point(1, 1.0), point(1, 2.0)])
    assert values(yard, claim.job_id) == {"train/loss": [(1, 2.0)]}
    yard.record(claim, seq=1, points=[point(1, 3.0), point(2, 4.0)])
    assert values(yard, claim.job_id) == {"train/loss": [(1, 3.0), (2, 4.0)]}
    assert latest(yard, claim.job_id) == {claim.job_id: {"train/loss": 4.0}}
    assert yard.read(lambda session: session.scalars(select(Series.count)).all()) == [4]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.1, 5e-324, 1.7976931348623157e308, 2**53 + 1.0])
def test_every_float_survives(yard: Yard, value: float) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.record(claim, seq=0, points=[point(1, value)])
    ((_, stored),) = values(yard, claim.job_id)["train/loss"]
    newest = latest(yard, claim.job_id)[claim.job_id]["train/loss"]
    assert repr(float(stored)) == repr(float(newest)) == repr(value)


def test_the_largest_step_is_stored(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.record(claim, seq=0, points=[point(2**63 - 1, 1.0)])
    assert values(yard, claim.job_id) == {"train/loss": [(2**63 - 1, 1.0)]}


def test_points_are_filtered_by_key_and_step(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.record(claim, seq=0, points=[point(step, step, key=key) for key in ("a", "b", "é/ü") for step in range(5)])
    job_id = claim.job_id
    assert set(values(yard, job_id)) == {"a", "b", "é/ü"}
    assert set(values(yard, job_id, PointFilter(keys=("é/ü", "none")))) == {"é/ü"}
    assert values(yard, job_id, PointFilter(keys=("a",), from_step=1, to_step=3)) == {"a": [(1, 1), (2, 2), (3, 3)]}
    assert values(yard, job_id, PointFilter(keys=("a",), from_step=5)) == {"a": []}


def test_jobs_do_not_see_each_others_points(yard: Yard) -> None:
    worker = yard.worker()
    one, two = yard.running(yard.submit(), worker, "a"), yard.running(yard.submit(), worker, "b")
    yard.record(one, seq=0, points=[point(1, 1.0)])
    yard.record(two, seq=0, points=[point(1, 2.0)])
    assert values(yard, one.job_id) == {"train/loss": [(1, 1.0)]}
    assert latest(yard, one.job_id, two.job_id) == {
        one.job_id: {"train/loss": 1.0},
        two.job_id: {"train/loss": 2.0},
    }
    empty = yard.submit()
    assert (values(yard, empty), latest(yard, empty)) == ({}, {empty: {}})


def trained(yard: Yard, job_id: str, worker: str, *, start: int, last: int, first: int | None = None) -> Claim:
    """An attempt from `start` that logged its own number at each step to `last`, and was then lost."""
    claim = yard.running(job_id, worker)
    yard.write(lambda session: attempts.mark_prepared(session, claim, start_step=start))
    steps = range(start + 1 if first is None else first, last + 1)
    yard.record(claim, seq=0, points=[point(step, claim.number) for step in steps])
    yard.end(claim, EndReason.WORKER_LOST)
    return claim


def who(yard: Yard, job_id: str, attempt: int | None = None) -> list[tuple[int, float]]:
    return values(yard, job_id, PointFilter(attempt=attempt)).get("train/loss", [])


def test_what_two_attempts_both_trained_is_the_later_ones(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    trained(yard, job_id, worker, start=0, last=5)
    trained(yard, job_id, worker, start=3, last=4)
    # Step 5 of the first attempt lies beyond the step from which the second resumed, which has not come so far.
    assert who(yard, job_id) == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert who(yard, job_id, attempt=1) == [(step, 1) for step in range(1, 6)]
    assert who(yard, job_id, attempt=2) == [(4, 2)]
    assert who(yard, job_id, attempt=3) == []


def test_three_attempts_the_last_of_which_went_back_further(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    trained(yard, job_id, worker, start=0, last=6)
    trained(yard, job_id, worker, start=4, last=8)
    trained(yard, job_id, worker, start=2, last=3)
    assert who(yard, job_id) == [(1, 1), (2, 1), (3, 3)]
    assert who(yard, job_id, attempt=2) == [(step, 2) for step in range(5, 9)]


def test_three_attempts_each_of_which_went_on(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    trained(yard, job_id, worker, start=0, last=3)
    trained(yard, job_id, worker, start=2, last=5)
    trained(yard, job_id, worker, start=4, last=6)
    assert who(yard, job_id) == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]


def test_an_attempt_that_started_over_hides_all_before_it(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    trained(yard, job_id, worker, start=0, last=3)
    yard.running(job_id, worker)
    assert who(yard, job_id) == []
    assert len(who(yard, job_id, attempt=1)) == 3


def test_thousands_of_attempts(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    first = trained(yard, job_id, worker, start=0, last=3)
    more = [
        {"job_id": job_id, "number": number, "worker_id": worker, "lease_until": 0, "ended_at": 1, "start_step": 2}
        for number in range(first.number + 1, 3000)
    ]
    yard.write(lambda session: session.execute(insert(Attempt), more))
    assert who(yard, job_id) == [(1, 1), (2, 1)]


def test_a_step_that_two_attempts_logged_is_one_point(yard: Yard) -> None:
    job_id, worker = yard.submit(), yard.worker()
    trained(yard, job_id, worker, start=0, first=0, last=2)
    trained(yard, job_id, worker, start=2, first=2, last=3)
    assert who(yard, job_id) == [(0, 1), (1, 1), (2, 2), (3, 2)]


def test_of_a_step_in_thousands_of_chunks_the_newest_value_counts(yard: Yard) -> None:
    claim = yard.running(yard.submit(), yard.worker())
    yard.record(claim, seq=0, points=[point(1, 0.0)])
    (series_id,) = yard.read(lambda session: session.scalars(select(Series.id)).all())
    place = {"series_id": series_id, "job_id": claim.job_id, "attempt": 1, "count": 2}
    # Positions over several of the spans that are joined to one when they are read.
    chunks = [
        {**place, "first": 100 + 37 * number, "data": POINT.pack(1, number, 1) + POINT.pack(number + 2, number, 1)}
        for number in range(5000)
    ]
    yard.write(lambda session: session.execute(insert(PointChunk), chunks))
    found = rows(yard, claim.job_id)["train/loss"]
    assert found[0] == (1, 4999.0, 1, 1)
    assert [step for step, _, _, _ in found] == list(range(1, 5002))
    assert [value for _, value, _, _ in found[1:]] == list(range(5000))
