"""Metrics of several jobs in columns, and the attempts of a job, over HTTP."""

from datetime import datetime
from itertools import islice
import json
import math
from typing import Any

import pytest

from api.curves import shares
from api.curves.encoding import encoded
from store import housekeeping as cleanup
from store.attempts.facts import Claim
from store.output import joining
from store.output.facts import MetricPoint
from tests.api.service import ApiFixture, both_databases
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.states import EndReason
from torchyard.contract.telemetry.curves import CurveColumns, CurvesView, CurveView, JobKeys, KeyView

MICROSECONDS = 1_700_000_000_000_000


def points(*values: float, key: str = "train/loss", first: int = 0) -> list[MetricPoint]:
    return [MetricPoint(key, step, value, MICROSECONDS + step) for step, value in enumerate(values, start=first)]


def curves(service: ApiFixture, *job_ids: str, keys: tuple[str, ...] = ("train/loss",), **query: Any) -> dict[str, Any]:
    return service.get("/v1/metrics", job=list(job_ids), key=list(keys), **query)


def columns(answer: dict[str, Any]) -> dict[str, Any]:
    """The columns of an answer with one curve."""
    (curve,) = answer["series"]
    return curve["columns"]


def running(service: ApiFixture, *values: float, device: str = "cpu-0") -> str:
    """A running job that logged these losses."""
    job_id = service.submit()["id"]
    service.record(service.start(job_id, device=device), points=points(*values))
    return job_id


def resumed(service: ApiFixture) -> str:
    """A job whose second attempt resumed from step 2, while the first had come to step 5."""
    job_id = service.submit()["id"]
    first = service.start(job_id)
    saved = service.new_checkpoint(step=2, epoch=1, files={"state.pt": b"x"}, val_loss=1)
    service.record(first, points=points(*range(6)), checkpoints=[saved])
    service.end(first, reason=EndReason.PREEMPTED)
    service.record(service.start(job_id), points=points(30, 40, first=3))
    return job_id


def test_curves_of_all_lengths_are_as_smooth_to_the_eye_and_a_zoom_changes_no_average(service: ApiFixture) -> None:
    def smooth(**query: Any) -> Any:
        return curves(service, job_id, smooth=0.5, smooth_points=10, **query)["series"][0]

    job_id = running(service, *(float(number % 7) for number in range(39)))
    whole = smooth()
    assert whole["smooth"] == pytest.approx(0.5 ** (10 / 32))
    plain = curves(service, job_id, smooth=whole["smooth"])["series"][0]
    assert whole["columns"]["ema"] == pytest.approx(plain["columns"]["ema"])
    assert smooth(max_points=20)["columns"]["ema"] == whole["columns"]["ema"][1::2] + whole["columns"]["ema"][-1:]
    part = smooth(from_step=30)
    assert (part["smooth"], part["points"]) == (whole["smooth"], 9)
    assert part["columns"]["ema"] == whole["columns"]["ema"][30:]


@quick_on_sqlite
def test_a_short_curve_has_each_of_its_points(service: ApiFixture) -> None:
    job_id = running(service, 1.0, 0.5, 0.25)
    answer = curves(service, job_id, smooth=0.5)
    assert answer["max_points"] == 1500
    (curve,) = answer["series"]
    shown = curve.pop("columns")
    assert curve == {
        "job_id": job_id,
        "key": "train/loss",
        "source": "run",
        "points": 3,
        "steps_per_bucket": None,
        "smooth": 0.5,
        "hidden": False,
    }
    assert shown["ema"] == [1.0, pytest.approx(2 / 3), pytest.approx(0.4285714)]
    assert {**shown, "ema": None} == {
        "step": [0, 1, 2],
        "time": [1_700_000_000.0] * 3,
        "attempt": [1, 1, 1],
        "mean": [1.0, 0.5, 0.25],
        "min": None,
        "max": None,
        "ema": None,
        "nonfinite": None,
    }


def test_a_long_curve_is_divided_into_buckets(service: ApiFixture) -> None:
    job_id = running(service, *[math.sin(step) for step in range(1000)])
    (curve,) = curves(service, job_id, max_points=100)["series"]
    shown = curve["columns"]
    assert (curve["points"], curve["steps_per_bucket"], shown["ema"]) == (1000, 10, None)
    assert shown["step"] == list(range(9, 1000, 10))
    assert shown["max"] == [max(math.sin(step) for step in range(first, first + 10)) for first in range(0, 1000, 10)]
    part = columns(curves(service, job_id, max_points=100, from_step=500, to_step=599))
    assert (part["step"], part["min"]) == (list(range(500, 600)), None)


def test_without_a_key_the_answer_only_lists_them(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    assert curves(service, job_id, keys=())["jobs"] == [{"job_id": job_id, "position": 1, "keys": []}]
    service.record(service.start(job_id), points=points(1, math.nan), curves={"tensorboard": points(3, key="val/loss")})
    answer = curves(service, job_id, keys=())
    assert answer["series"] == []
    (job,) = answer["jobs"]
    assert job["keys"] == [
        {"key": "train/loss", "count": 2, "source": "run", "latest": "NaN", "low": 1.0, "high": 1.0},
        {"key": "val/loss", "count": 1, "source": "tensorboard", "latest": 3.0, "low": 3.0, "high": 3.0},
    ]
    stream = service.get(f"/v1/jobs/{job_id}/events")["data"]
    assert job["position"] == stream[-1]["seq"] + 3


def test_curves_come_in_the_order_in_which_they_were_asked_for(service: ApiFixture) -> None:
    one, two = running(service, 1.0), running(service, 2.0, device="cpu-1")
    service.record(Claims.of(service, two), points=points(3.0, key="a"))
    answer = curves(service, two, one, two, keys=("train/loss", "a", "train/loss", "none"))
    found = [(curve["job_id"], curve["key"], curve["columns"]["mean"]) for curve in answer["series"]]
    assert found == [(two, "train/loss", [2.0]), (two, "a", [3.0]), (one, "train/loss", [1.0])]
    assert [job["job_id"] for job in answer["jobs"]] == [two, one]


class Claims:
    @staticmethod
    def of(service: ApiFixture, job_id: str) -> Claim:
        """The claim of the job's open attempt."""
        return next(claim for claim in service._stored if claim.job_id == job_id)  # pyright: ignore[reportPrivateUsage]


def test_a_seam_and_what_it_hides(service: ApiFixture) -> None:
    job_id = resumed(service)
    shown = columns(curves(service, job_id))
    assert (shown["mean"], shown["attempt"]) == ([0, 1, 2, 30, 40], [1, 1, 1, 2, 2])
    assert [curve["hidden"] for curve in curves(service, job_id)["series"]] == [False]
    plain, ghost = curves(service, job_id, hidden=True, smooth=0.5)["series"]
    assert plain["columns"]["mean"] == [0, 1, 2, 30, 40]
    assert (ghost["hidden"], ghost["points"], ghost["columns"]["mean"]) == (True, 3, [3, 4, 5])
    assert (ghost["columns"]["attempt"], ghost["columns"]["ema"]) == ([1, 1, 1], None)
    assert columns(curves(service, job_id, attempt=1, hidden=True))["mean"] == [0, 1, 2, 3, 4, 5]
    assert columns(curves(service, job_id, max_points=2))["attempt"] == [1, 2]
    assert [curve["points"] for curve in curves(service, job_id, hidden=True, from_step=4)["series"]] == [1, 2]
    assert [curve["points"] for curve in curves(service, job_id, hidden=True, to_step=2)["series"]] == [3]


def test_all_curves_of_an_answer_share_its_points(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_POINTS", 100)
    one, two = running(service, *range(500)), running(service, *range(10), device="cpu-1")
    answer = curves(service, one, two)
    assert answer["max_points"] == 90
    assert [curve["points"] for curve in answer["series"]] == [500, 10]
    assert sum(len(curve["columns"]["step"]) for curve in answer["series"]) <= 100


@both_databases
def test_values_that_are_no_numbers_and_very_great_ones(service: ApiFixture) -> None:
    greatest = 1.7976931348623157e308
    wild = running(service, math.nan, math.inf, greatest, greatest, -math.inf, greatest)
    only_nan = running(service, *[math.nan] * 6, device="cpu-1")
    short = curves(service, wild, only_nan, smooth=0.9)
    assert short["series"][0]["columns"]["mean"] == ["NaN", "Infinity", greatest, greatest, "-Infinity", greatest]
    assert short["series"][0]["columns"]["ema"] == [None, None, *[greatest] * 4]
    assert short["series"][1]["columns"]["ema"] == [None] * 6
    assert CurvesView.model_validate(short).series[0].columns.mean[1] == math.inf
    long = curves(service, wild, only_nan, smooth=0.9, max_points=2)
    first, second = (curve["columns"] for curve in long["series"])
    assert (first["mean"], first["min"], first["nonfinite"]) == ([greatest] * 2, [greatest] * 2, [2, 1])
    assert (second["mean"], second["min"], second["max"], second["ema"]) == ([None] * 2,) * 4
    assert second["nonfinite"] == [3, 3]


@each_row(
    "query",
    [
        "",
        "&smooth=1",
        "&smooth=nan",
        "&smooth=-0.1",
        "&smooth=inf",
        "&max_points=1",
        "&max_points=100001",
        "&from_step=-1",
        "&to_step=9223372036854775808",
        "".join(f"&job=job_{number:032}" for number in range(51)),
        "".join(f"&key=k{number}" for number in range(201)),
        "&key=%00",
    ],
)
def test_a_wrong_question_is_refused(service: ApiFixture, query: str) -> None:
    job_id = service.submit()["id"]
    asked = f"?job={job_id}{query}" if query else ""
    assert service.client.get(f"/v1/metrics{asked}").status_code == 422


def test_an_empty_range_has_no_points(service: ApiFixture) -> None:
    job_id = running(service, 1.0, 2.0)
    (curve,) = curves(service, job_id, from_step=2, to_step=1, smooth=0.5)["series"]
    assert (curve["points"], curve["columns"]["step"], curve["columns"]["ema"]) == (0, [], [])
    assert curves(service, service.submit()["id"])["series"] == []


def test_one_job_that_may_not_be_read_is_not_found(service: ApiFixture) -> None:
    service.act_as("alice")
    hers = service.submit()["id"]
    service.act_as("bob")
    his = running(service, 1.0)
    assert len(curves(service, his)["series"]) == 1
    for wrong in (hers, "job_" + "0" * 32, "nonsense", "../x"):
        for path in (f"/v1/metrics?job={his}&job={wrong}", f"/v1/jobs/{hers}/attempts"):
            assert service.client.get(path).status_code == 404
    service.act_as("alice")
    assert service.client.post(f"/v1/jobs/{hers}/cancel").status_code == 202
    assert service.client.delete(f"/v1/jobs/{hers}").status_code == 204
    assert service.client.get("/v1/metrics", params={"job": hers}).status_code == 404


@both_databases
def test_joining_changes_no_answer(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "BLOCK", 16)
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    for step in range(40):
        service.record(claim, points=points(float(step), first=step) + points(-step, key="lr", first=step))
    service.end(claim, reason=EndReason.COMPLETED)
    before = curves(service, job_id, keys=("train/loss", "lr"), smooth=0.9, max_points=7)
    stream = service.client.get(f"/v1/jobs/{job_id}/stream", params={"after": 17}).text
    passing = cleanup.join_points(service.app.state.services.store)
    assert len(list(islice(passing, 1000))) > 5
    assert curves(service, job_id, keys=("train/loss", "lr"), smooth=0.9, max_points=7) == before
    # One event further on, as the page after 17 is kept as it was read before.
    rest = service.client.get(f"/v1/jobs/{job_id}/stream", params={"after": 18}).text
    assert stream == stream.partition("\n\n")[0] + "\n\n" + rest


@both_databases
def test_attempts_are_listed_with_what_they_held(service: ApiFixture) -> None:
    job_id = resumed(service)
    assert service.get(f"/v1/jobs/{service.submit()['id']}/attempts") == {"data": [], "has_more": False, "next": None}
    first, second = service.get(f"/v1/jobs/{job_id}/attempts")["data"]
    assert (first["number"], first["worker"], first["start_step"], first["end_reason"]) == (1, "box-a", 0, "preempted")
    assert first["devices"] == [{"worker": "box-a", "index": 0, "uuid": "cpu-0", "name": "CPU slot", "node": 0}]
    times = [datetime.fromisoformat(at) for at in (first["started_at"], first["ended_at"], second["started_at"])]
    assert times == sorted(times)
    assert first["duration_seconds"] >= 0
    assert (second["number"], second["start_step"], second["end_reason"]) == (2, 2, None)
    assert (second["ended_at"], second["duration_seconds"], len(second["devices"])) == (None, None, 1)
    page = service.get(f"/v1/jobs/{job_id}/attempts", limit=1)
    assert ([row["number"] for row in page["data"]], page["next"]) == ([1], "1")
    assert [row["number"] for row in service.get(f"/v1/jobs/{job_id}/attempts", after="1")["data"]] == [2]


def test_curves_are_encoded_in_blocks_as_the_view_is_in_one() -> None:
    columns = CurveColumns(
        step=[*range(5000)],
        time=[0.5] * 5000,
        attempt=[1] * 5000,
        mean=[math.nan, None, math.inf, -math.inf, *[0.1] * 4996],
    )
    curve = CurveView(job_id="job", key="a", points=5000, columns=columns)
    listed = KeyView(key='"series":[]', count=1, latest=math.nan)
    view = CurvesView(jobs=[JobKeys(job_id="job", position=1, keys=[listed])], series=[curve, curve], max_points=5000)
    assert json.loads(encoded(view)) == json.loads(view.model_dump_json())
