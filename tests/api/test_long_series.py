"""A series of very many points is made shorter while it is read: memory follows the answer."""

from collections.abc import Callable
import math
import tracemalloc
from typing import Any

import numpy as np
from numpy.typing import NDArray
import pytest
from sqlalchemy import insert, update

from store.attempts.facts import Claim
from store.output import points, series
from store.output.facts import MetricPoint
from store.tables import PointChunk, Series
from tests.api.service import ApiFixture
from torchyard.contract.states import EndReason

HELD, PART = 4000, 1000
Values = NDArray[np.float64]


@pytest.fixture(autouse=True)
def _few_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_HELD", HELD)
    monkeypatch.setattr(points, "PART_POINTS", PART)


def store(service: ApiFixture, claim: Claim, values: Values, *, first_step: int = 0) -> None:
    """Stores a series in chunks of 500 points, as a relay does. It is `loss`, of which one point is stored at first."""
    service.record(claim, points=[MetricPoint("loss", first_step, float(values[0]), 1)])
    packed = np.zeros(len(values), dtype=[("step", "<i8"), ("value", "<f8"), ("time", "<i8")])
    packed["step"], packed["value"] = np.arange(len(values)) + first_step, values
    with service.database.write() as session:
        row = session.query(Series).filter_by(job_id=claim.job_id).one()
        begun = {"series_id": row.id, "job_id": claim.job_id, "attempt": claim.number}
        chunks = [(at, packed[at : at + 500]) for at in range(1, len(values), 500)]
        place = 10_000_000 + row.count
        rows = [{**begun, "first": place + at, "count": len(data), "data": data.tobytes()} for at, data in chunks]
        session.execute(insert(PointChunk), rows)
        session.execute(update(Series).where(Series.id == row.id).values(count=Series.count + len(values) - 1))


def long_job(service: ApiFixture, values: Values) -> Claim:
    claim = service.start(service.submit()["id"])
    store(service, claim, values)
    return claim


def curve(service: ApiFixture, claim: Claim, **query: Any) -> dict[str, Any]:
    return service.get("/v1/metrics", job=claim.job_id, key="loss", **query)["series"][0]


def peak_of(ask: Callable[[], object]) -> int:
    ask()
    tracemalloc.start()
    try:
        ask()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("curves", [True, pytest.param(False, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("falls", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["rising", "steps fall"])
def test_the_memory_of_a_read_does_not_grow_with_the_points(service: ApiFixture, *, curves: bool, falls: bool) -> None:
    """5 million points took 500 MB."""
    peaks: list[int] = []
    for count in (100_000, 200_000):
        claim = long_job(service, np.arange(count, dtype=np.float64))
        if falls:
            store(service, claim, np.arange(count, dtype=np.float64), first_step=0)
        path, query = "/v1/metrics", {"job": claim.job_id, "key": "loss", "smooth": 0.9}
        if not curves:
            path, query = f"/v1/jobs/{claim.job_id}/metrics", {"key": "loss"}
        peaks.append(peak_of(lambda path=path, query=query: service.get(path, **query, max_points=100)))
        service.end(claim, reason=EndReason.COMPLETED)
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_a_curve_of_groups_has_the_means_and_extremes_of_all_points(service: ApiFixture) -> None:
    values = np.random.default_rng(1).normal(size=50_001)
    values[[7, 40_000]] = math.nan, math.inf
    values[12_345], values[33_333] = -1e308, 1e308
    found = curve(service, long_job(service, values), max_points=50)
    columns = found["columns"]
    assert found["points"] == len(values)
    assert 25 <= len(columns["step"]) <= 50 and columns["step"][-1] == 50_000
    assert sum(columns["nonfinite"]) == 2
    begin = 0
    for at, step in enumerate(columns["step"]):
        bucket = values[begin : step + 1]
        bucket = bucket[np.isfinite(bucket)]
        assert (columns["min"][at], columns["max"][at]) == (bucket.min(), bucket.max())
        assert columns["mean"][at] == pytest.approx((bucket / len(bucket)).sum(), rel=1e-9, abs=1e-12)
        begin = step + 1


def test_an_average_of_groups_follows_that_of_the_points(service: ApiFixture) -> None:
    values = np.sin(np.arange(60_000) / 3000)
    found = curve(service, long_job(service, values), max_points=200, smooth=0.99)["columns"]
    average, exact = 0.0, []
    for count, value in enumerate(values, start=1):
        average = 0.99 * average + 0.01 * value
        exact.append(average / (1 - 0.99**count))
    assert np.abs(np.array(found["ema"]) - np.array(exact)[found["step"]]).max() < 0.01


def test_a_range_of_a_long_series_is_read_in_points(service: ApiFixture) -> None:
    claim = long_job(service, np.arange(50_000, dtype=np.float64))
    found = curve(service, claim, from_step=30_000, to_step=30_099)
    assert found["points"] == 100
    assert found["columns"]["mean"] == [float(value) for value in range(30_000, 30_100)]
    smooth = curve(service, claim, from_step=30_000, to_step=30_999, smooth=0.5)
    assert 900 <= smooth["points"] <= 1100
    assert smooth["columns"]["ema"][-1] == pytest.approx(smooth["columns"]["mean"][-1], abs=50)


def test_the_points_of_a_long_series_are_stored_ones_with_its_extremes(service: ApiFixture) -> None:
    values = np.random.default_rng(2).normal(size=50_000)
    values[[0, 20_000, 49_999]] = 0.5, math.nan, 0.25
    claim = long_job(service, values)
    (found,) = service.get(f"/v1/jobs/{claim.job_id}/metrics", max_points=60)["data"]
    points = {point["step"]: point["value"] for point in found["points"]}
    assert len(points) <= 60
    assert points[0] == 0.5 and points[49_999] == 0.25
    assert points[int(np.nanargmin(values))] == np.nanmin(values)
    assert points[int(np.nanargmax(values))] == np.nanmax(values)
    assert points[20_000] == "NaN"
    assert all(value == values[step] for step, value in points.items() if step != 20_000)


def test_what_later_attempts_hide_of_a_long_series_is_a_tail(service: ApiFixture) -> None:
    claim = long_job(service, np.zeros(30_000))
    service.record(claim, checkpoints=[service.new_checkpoint(step=9_999, files={"a": b"1"})])
    service.end(claim, reason=EndReason.WORKER_LOST)
    later = service.start(claim.job_id)
    store(service, later, np.ones(20_000), first_step=10_000)
    found = service.get("/v1/metrics", job=claim.job_id, key="loss", hidden="true", max_points=100)["series"]
    shown, hidden = found
    assert (shown["points"], hidden["points"], hidden["hidden"]) == (30_000, 20_000, True)
    assert set(hidden["columns"]["mean"]) == {0.0}
    assert shown["columns"]["mean"][0] == 0.0 and shown["columns"]["mean"][-1] == 1.0
    assert set(shown["columns"]["attempt"]) == {1, 2}
