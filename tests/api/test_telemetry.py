"""Metrics and logs over HTTP."""

import math
from typing import Any

import pytest

from api.curves import shares
from store.output import log_metrics as log_curves
from store.output.facts import MetricPoint, NewLines
from tests.api.service import ApiFixture
from tests.api.test_problems import assert_problem
from tests.rows import each_row
from torchyard.contract.states import EndReason
from torchyard.contract.telemetry.views import MetricsView


def series(answer: dict[str, Any]) -> dict[str, list[tuple[int, Any]]]:
    return {item["key"]: [(point["step"], point["value"]) for point in item["points"]] for item in answer["data"]}


def losses(*steps: int, key: str = "train/loss") -> list[MetricPoint]:
    return [MetricPoint(key, step, float(step), 1_700_000_000_000_000 + step) for step in steps]


def test_series_are_listed_by_key_and_step(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    assert service.get(f"/v1/jobs/{job_id}/metrics") == {"data": [], "max_points": 1500}
    claim = service.start(job_id)
    service.record(claim, points=losses(3, 1, 2))
    service.record(claim, points=losses(2, key="val/loss") + losses(4, key="val/accuracy"))
    path = f"/v1/jobs/{job_id}/metrics"
    assert series(service.get(path)) == {
        "train/loss": [(1, 1.0), (2, 2.0), (3, 3.0)],
        "val/accuracy": [(4, 4.0)],
        "val/loss": [(2, 2.0)],
    }
    assert list(series(service.get(path, key=["val/loss", "val/accuracy", "nope"]))) == ["val/accuracy", "val/loss"]
    assert series(service.get(path, key="train/loss", from_step=2, to_step=2)) == {"train/loss": [(2, 2.0)]}
    point = service.get(path)["data"][0]["points"][0]
    assert point == {"step": 1, "value": 1.0, "time": "2023-11-14T22:13:20.000001Z", "attempt": 1}


def test_a_series_says_where_its_points_come_from(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.record(service.start(job_id), points=losses(1), curves={"tensorboard": losses(1, 2, key="val/loss")})
    found = service.get(f"/v1/jobs/{job_id}/metrics")["data"]
    assert [(item["key"], item["source"]) for item in found] == [("train/loss", "run"), ("val/loss", "tensorboard")]


def test_nan_and_infinities_are_answered_as_strings(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    values = [1.5, math.nan, math.inf, -math.inf]
    points = [MetricPoint("train/loss", step, value, step) for step, value in enumerate(values)]
    service.record(service.start(job_id), points=points)
    answer = service.client.get(f"/v1/jobs/{job_id}/metrics")
    assert [point["value"] for point in answer.json()["data"][0]["points"]] == [1.5, "NaN", "Infinity", "-Infinity"]
    read = [point.value for point in MetricsView.model_validate_json(answer.content).data[0].points]
    assert [str(value) for value in read] == [str(value) for value in values]


def test_a_resumed_attempt_hides_the_steps_that_it_trained_again(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    first = service.start(job_id)
    saved = service.new_checkpoint(step=2, epoch=1, files={"state.pt": b"x"}, val_loss=1)
    service.record(first, points=losses(1, 2, 3), checkpoints=[saved])
    service.end(first, reason=EndReason.PREEMPTED)
    service.record(service.start(job_id), points=losses(3, 4))
    path = f"/v1/jobs/{job_id}/metrics"
    attempts = [(point["step"], point["attempt"]) for point in service.get(path)["data"][0]["points"]]
    assert attempts == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert series(service.get(path, attempt=1)) == {"train/loss": [(1, 1.0), (2, 2.0), (3, 3.0)]}


def test_a_long_series_is_downsampled_to_max_points(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    points = [MetricPoint("train/loss", step, math.sin(step / 50), step) for step in range(5000)]
    points[1234] = MetricPoint("train/loss", 1234, 99.0, 1234)
    points[4321] = MetricPoint("train/loss", 4321, math.nan, 4321)
    service.record(service.start(job_id), points=points)
    path = f"/v1/jobs/{job_id}/metrics"
    shown = series(service.get(path, max_points=50))["train/loss"]
    assert len(shown) <= 50
    assert shown == sorted(shown, key=lambda item: item[0])
    assert {(1234, 99.0), (4321, "NaN")} <= set(shown)
    assert (shown[0][0], shown[-1][0]) == (0, 4999)
    assert len(series(service.get(path))["train/loss"]) <= 1500
    assert len(series(service.get(path, max_points=100_000))["train/loss"]) == 5000


def test_all_series_of_an_answer_have_at_most_so_many_points_together(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shares.MAX_POINTS == 100_000
    monkeypatch.setattr(shares, "MAX_POINTS", 10_000)
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    for first in range(0, 200, 100):
        keys = [f"k{number}" for number in range(first, first + 100)]
        service.record(claim, points=[point for key in keys for point in losses(*range(60), key=key)])
    service.record(claim, points=losses(1, 2, key="k199") + losses(*range(60, 5000), key="k0"))
    path = f"/v1/jobs/{job_id}/metrics"
    answer = service.get(path)
    assert len(answer["data"]) == 200
    assert sum(len(item["points"]) for item in answer["data"]) <= 10_000
    assert all(45 <= len(item["points"]) <= 50 for item in answer["data"])
    assert answer["max_points"] == 50
    few = service.get(path, key=["k0", "k1"], max_points=100_000)
    assert [len(item["points"]) for item in few["data"]] == [5000, 60]
    assert few["max_points"] == 10_000


def test_short_series_leave_their_share_of_the_points_to_long_ones(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MAX_POINTS", 100)
    job_id = service.submit()["id"]
    points = [point for key, count in (("a", 10), ("b", 20), ("c", 500)) for point in losses(*range(count), key=key)]
    service.record(service.start(job_id), points=points)
    answer = service.get(f"/v1/jobs/{job_id}/metrics")
    assert [len(item["points"]) for item in answer["data"]] == [10, 20, 70]
    assert answer["max_points"] == 70


def test_logs_are_listed_in_order_and_in_pages(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    path = f"/v1/jobs/{job_id}/logs"
    assert service.get(path)["data"] == []
    claim = service.start(job_id)
    chunks = [NewLines(0, "stdout", ["a", "b"]), NewLines(1, "stderr", ["c"]), NewLines(None, "stderr", ["d"])]
    service.record(claim, lines=chunks)
    service.record(claim, lines=[NewLines(0, "stdout", ["é", ""])])
    whole = service.get(path)["data"]
    assert [(item["line"], item["rank"], item["stream"], item["text"]) for item in whole] == [
        (1, 0, "stdout", "a"),
        (2, 0, "stdout", "b"),
        (3, 1, "stderr", "c"),
        (4, None, "stderr", "d"),
        (5, 0, "stdout", "é"),
        (6, 0, "stdout", ""),
    ]
    page = service.get(path, limit=4)
    assert (page["has_more"], page["next"]) == (True, "4")
    rest = service.get(path, limit=4, after=page["next"])
    assert page["data"] + rest["data"] == whole
    assert (rest["has_more"], rest["next"]) == (False, None)


def test_a_page_of_long_lines_is_cut_at_8_mib_and_the_next_one_goes_on(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    for _ in range(3):
        service.record(claim, lines=[NewLines(0, "stdout", ["x" * 16_384] * 256)])
    path = f"/v1/jobs/{job_id}/logs"
    page = service.get(path, limit=1000)
    assert (len(page["data"]), page["has_more"], page["next"]) == (512, True, "512")
    rest = service.get(path, limit=1000, after=page["next"])
    assert [line["line"] for line in rest["data"]] == list(range(513, 769))
    assert [line["line"] for line in service.get(path, tail=10_000)["data"]] == list(range(257, 769))


@pytest.fixture
def of_two_ranks(service: ApiFixture) -> str:
    """A job of whose lines two ranks have written some each."""
    job_id = service.submit()["id"]
    chunks = [NewLines(0, "stdout", ["a", "b"]), NewLines(1, "stdout", ["c"]), NewLines(0, "stdout", ["d", "e"])]
    service.record(service.start(job_id), lines=[*chunks, NewLines(1, "stderr", ["f"])])
    return job_id


@each_row(
    ("params", "expected"),
    [
        ({"tail": 2}, ["e", "f"]),
        ({"tail": 10_000}, ["a", "b", "c", "d", "e", "f"]),
        ({"rank": 1}, ["c", "f"]),
        ({"rank": 1, "tail": 1}, ["f"]),
        ({"rank": 0, "after": "1"}, ["b", "d", "e"]),
        ({"rank": 9}, []),
    ],
)
def test_logs_are_filtered_by_rank_and_by_tail(
    service: ApiFixture, of_two_ranks: str, params: dict[str, Any], expected: list[str]
) -> None:
    assert [line["text"] for line in service.get(f"/v1/jobs/{of_two_ranks}/logs", **params)["data"]] == expected


LOSS = r"loss[ =:]+(?P<value>\S+)"


def posted(service: ApiFixture, path: str, pattern: str) -> dict[str, Any]:
    answer = service.client.post(path, json={"pattern": pattern})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(service: ApiFixture, *texts: str, **more: Any) -> str:
    """Returns a job that has ended, whose rank 0 has written these lines."""
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    service.record(claim, lines=[NewLines(0, "stdout", [*texts]), NewLines(1, "stdout", ["loss=7"])], **more)
    service.end(claim, reason=EndReason.COMPLETED)
    return job_id


def test_curves_are_made_once_of_the_stored_lines_of_a_job_that_has_ended(service: ApiFixture) -> None:
    job_id = ended(service, "epoch 1 loss=0.9", "nothing", "epoch 2 loss: 0.5, acc=1", "loss=nan")
    path = f"/v1/jobs/{job_id}/metrics"
    made = posted(service, f"{path}/from-log", LOSS)
    assert made == {"keys": ["loss"], "known": [], "points": 3, "complete": True}
    found = service.get(path)
    assert series(found) == {"loss": [(1, 0.9), (2, 0.5), (3, "NaN")]}
    assert found["data"][0]["source"] == "log"
    again = posted(service, f"{path}/from-log", LOSS)
    assert again == {"keys": [], "known": ["loss"], "points": 0, "complete": True}
    assert service.get(path) == found


def test_what_the_job_has_logged_itself_is_not_mixed_with_its_lines(service: ApiFixture) -> None:
    pattern = r"(?P<key>loss|acc)=(?P<value>\S+) at (?P<step>\d+)"
    job_id = ended(service, "loss=9 at 4", "acc=0.5 at 8", points=losses(1, key="loss"))
    path = f"/v1/jobs/{job_id}/metrics"
    made = posted(service, f"{path}/from-log", pattern)
    assert made == {"keys": ["acc"], "known": ["loss"], "points": 1, "complete": True}
    assert series(service.get(path)) == {"acc": [(8, 0.5)], "loss": [(1, 1.0)]}


def test_of_a_job_that_runs_no_curves_are_made(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    service.record(claim, lines=[NewLines(0, "stdout", ["loss=1"])])
    answer = service.client.post(f"/v1/jobs/{job_id}/metrics/from-log", json={"pattern": LOSS})
    assert_problem(answer, 409, "conflict")
    assert series(service.get(f"/v1/jobs/{job_id}/metrics")) == {}


@each_row("pattern", ["loss", "(?P<value>", r"(?P<value>a)\1", r"(?P<value>(?:x{1000}){1000})", ""])
def test_an_expression_that_re2_has_not_is_refused(service: ApiFixture, pattern: str) -> None:
    answer = service.client.post(f"/v1/jobs/{ended(service, 'loss=1')}/metrics/from-log", json={"pattern": pattern})
    assert answer.status_code in {400, 422}


@pytest.mark.parametrize("bound", ["MOST_TEXT", "MOST_POINTS"])
def test_what_is_beyond_the_bounds_is_left_out_and_said(
    service: ApiFixture, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    for _ in range(5):
        service.record(claim, lines=[NewLines(0, "stdout", ["loss=1"])])
    service.end(claim, reason=EndReason.COMPLETED)
    monkeypatch.setattr(log_curves, bound, 2 if bound == "MOST_POINTS" else 10)
    made = posted(service, f"/v1/jobs/{job_id}/metrics/from-log", LOSS)
    assert made == {"keys": ["loss"], "known": [], "points": 2, "complete": False}


def test_steps_of_an_attempt_that_began_anew_hide_those_before(service: ApiFixture) -> None:
    job_id = service.submit(max_restarts=1)["id"]
    first = service.start(job_id)
    service.record(first, lines=[NewLines(0, "stdout", ["loss=1", "loss=2", "loss=3"])])
    service.end(first, reason=EndReason.OUT_OF_MEMORY, message="x", rank=0)
    second = service.start(job_id)
    service.record(second, lines=[NewLines(0, "stdout", ["loss=5"])])
    service.end(second, reason=EndReason.COMPLETED)
    posted(service, f"/v1/jobs/{job_id}/metrics/from-log", LOSS)
    assert series(service.get(f"/v1/jobs/{job_id}/metrics")) == {"loss": [(1, 5.0)]}
