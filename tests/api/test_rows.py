"""Rows of lists have few bytes, whatever a spec holds and a job has said."""

import json
from typing import Any

import pytest

from store.sweeps import listing
from store.team.callers import SERVICE
from tests.api.service import ApiFixture, both_databases
from tests.api.test_sweeps import control, submitted, trials
from tests.store.fixture import recorded_statements
from torchyard.contract.spec.labels import MOST_LABELS_BYTES
from torchyard.contract.states import EndReason
from torchyard.contract.sweeps.spec import MOST_SHOWN_POINT_BYTES
from torchyard.contract.wire.text import MOST_SHOWN_TEXT

MOST_ROW_BYTES = 20_000
SCRIPT = {"trainer": "script", "config": {"code": "file:///code", "entrypoint": "train.py"}}
LARGE = "x" * 5_000
MOST_LABELLED = {f"{number}": "\x01" * 200 for number in range(3)}
"""Labels that have nearly as many bytes as JSON as a job may have."""


@both_databases
def test_a_long_point_is_left_out_of_lists_and_told_of_the_job(service: ApiFixture) -> None:
    points = [{"args.text": LARGE}, {"args.text": "short"}]
    sweep = submitted(service, job=SCRIPT, method="list", parameters={}, points=points)
    control(service)
    jobs = service.get(f"/v1/jobs?sweep={sweep['id']}&sort=-created")["data"]
    names = {"id": sweep["id"], "name": "lrs"}
    assert jobs[0]["sweep"] == {**names, "trial": 0, "point": {}, "point_omitted": True}
    assert jobs[1]["sweep"] == {**names, "trial": 1, "point": points[1]}
    assert service.get(f"/v1/jobs/{jobs[0]['id']}")["sweep"] == {**names, "trial": 0, "point": points[0]}
    told = trials(service, sweep["id"], "?sort=number")
    assert [(each["point"], each.get("point_omitted", False)) for each in told] == [({}, True), (points[1], False)]


@both_databases
def test_the_best_trial_of_a_sweep_has_its_whole_point(service: ApiFixture) -> None:
    point = {"args.text": LARGE}
    sweep = submitted(service, job=SCRIPT, method="list", parameters={}, points=[point])
    control(service)
    claim = service.start(trials(service, sweep["id"])[0]["job_id"])
    new = service.new_checkpoint(step=1, epoch=1, files={"state.pt": b"1"}, val_loss=0.5)
    service.record(claim, checkpoints=[new])
    service.end(claim, reason=EndReason.COMPLETED)
    best = service.get(f"/v1/sweeps/{sweep['id']}")["best"]
    assert (best["trial"], best["value"], best["point"]) == (0, 0.5, point)


def test_points_are_read_of_the_trials_that_are_told(service: ApiFixture) -> None:
    points = [{"args.n": number} for number in range(5)]
    sweep = submitted(service, job=SCRIPT, method="list", parameters={}, points=points)
    control(service)
    with recorded_statements(service.database) as statements, service.database.read() as session:
        page = listing.list_trials(session, sweep["id"], caller=SERVICE, sort="number", limit=2, after=3)
    assert [trial.point for trial, _ in page.items] == [points[3], points[4]]
    reading = [text for text in statements if ".point" in text]
    assert len(reading) == 1 and " IN (" in reading[0]


def test_a_row_with_all_that_a_job_may_have_is_small(service: ApiFixture) -> None:
    job = {**SCRIPT, "labels": MOST_LABELLED, "name": "n" * 90}
    point = {"args.text": "\x01" * (MOST_SHOWN_POINT_BYTES // 6 - 10)}
    submitted(service, job=job, method="list", parameters={}, points=[point], name="s" * 90)
    control(service)
    [row] = service.get("/v1/jobs")["data"]
    assert row["sweep"]["point"] == point and row["labels"] == MOST_LABELLED
    claim = service.start(row["id"])
    service.end(claim, reason=EndReason.USER_ERROR, message="\x01" * 4_000, may_retry=False)
    answer = service.client.get("/v1/jobs", params={"state": "failed"})
    [row] = answer.json()["data"]
    assert len(row["error"]["message"]) == len(row["status_reason"]["message"]) == MOST_SHOWN_TEXT
    assert len(answer.content) < MOST_ROW_BYTES
    assert len(service.get(f"/v1/jobs/{row['id']}")["error"]["message"]) == 4_000


@pytest.mark.parametrize("count", [1, 4])
def test_a_jobs_labels_have_few_bytes(service: ApiFixture, count: int) -> None:
    more: dict[str, Any] = {f"more-{number}": "\x01" * 200 for number in range(count)}
    job_id = service.submit(labels=MOST_LABELLED)["id"]
    size = len(json.dumps({**MOST_LABELLED, **more}, separators=(",", ":")))
    assert size > MOST_LABELS_BYTES
    refused = service.client.post("/v1/jobs/actions", json={"action": "label", "labels": more, "ids": [job_id]})
    assert refused.json()["refused"][0]["code"] == "conflict"
    changed = service.client.patch(f"/v1/jobs/{job_id}", json={"labels": {**MOST_LABELLED, **more}})
    assert (changed.status_code, changed.json()["errors"][0]["field"]) == (422, "labels")
    assert service.get(f"/v1/jobs/{job_id}")["labels"] == MOST_LABELLED
