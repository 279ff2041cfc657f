"""Submits, lists, shows and cancels jobs."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
import logging
from pathlib import Path
from typing import Any

import pytest

from store.db.database import Database
from store.output.facts import MetricPoint
from tests import line
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import EndReason, JobState

MONITORED = {"monitor": "val/accuracy", "mode": "max"}


def ids(page: dict[str, Any]) -> list[str]:
    return [job["id"] for job in page["data"]]


def test_a_submitted_job_is_stored_and_queued_and_the_answer_is_complete(service: ApiFixture) -> None:
    answer = service.client.post("/v1/jobs", json={**SPEC, "priority": 7, "labels": {"team": "bridges"}})
    assert answer.status_code == 201
    job = JobView.model_validate(answer.json())
    assert answer.headers["Location"] == f"/v1/jobs/{job.id}"
    assert (job.state, job.owner, job.name, job.priority) == (JobState.QUEUED, "admin", "digits", 7)
    assert job.labels == {"team": "bridges"}
    assert job.status_reason.position == 1
    assert job.spec.trainer == "image-classification"
    assert job.spec.config.training.epochs == 3  # a default, filled in
    assert answer.json()["created_at"].endswith("Z")
    assert line.waiting(service.queue) == [job.id]
    assert JobView.model_validate(service.get(f"/v1/jobs/{job.id}")) == job


def test_a_job_shows_its_card_as_soon_as_the_run_has_one(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    path = f"/v1/jobs/{job_id}"
    claim = service.start(job_id)
    before = service.get(path)
    assert before["card"] is None
    card = {"parameters": 62, "speed": "NaN", "versions": {"torch": "2.14.1", "cuda": None}, "list": [1, 2.5, True]}
    service.record(claim, card=card)
    job = service.get(path, wait=30, after_version=before["version"])
    assert (job["card"], job["version"]) == (card, before["version"] + 1)
    assert JobView.model_validate(job).card == card
    service.record(claim, card=card)
    assert service.get(path) == job


@both_databases
def test_a_list_shows_summaries_and_the_job_itself_everything(service: ApiFixture) -> None:
    job_id = service.submit(env={"TZ": "UTC"}, max_restarts=0, checkpoint=MONITORED)["id"]
    claim = service.start(job_id)
    keys = ("train/loss", "val/loss", "val/accuracy", "train/lr", *(f"own/{number}" for number in range(50)))
    service.record(claim, card={"parameters": 62}, points=[MetricPoint(key, 1, float("nan"), 1) for key in keys])
    failure = {"message": "it broke", "rank": 1, "exit_code": 3, "traceback": "Traceback: …"}
    service.end(claim, reason=EndReason.USER_ERROR, **failure)
    job, (row,) = service.get(f"/v1/jobs/{job_id}"), service.get("/v1/jobs")["data"]
    assert JobView.model_validate(job).spec.env == {"TZ": "UTC"}
    assert job["error"] == {"code": "user_error", **failure}
    assert set(job["metrics"]) == set(keys)
    shown = dict.fromkeys(("train/loss", "val/loss", "val/accuracy"), "NaN")
    assert row == {
        **{key: value for key, value in job.items() if key not in {"spec", "card", "init_from", "after", "notes"}},
        "metrics": shown,
        "error": {**job["error"], "traceback": None},
    }


def test_a_resolved_spec_can_be_submitted_again(service: ApiFixture) -> None:
    first = service.submit(time_limit="90m", config={"optimizer": {"lr": 1e-5}})
    again = service.client.post("/v1/jobs", json=first["spec"])
    assert again.status_code == 201
    assert again.json()["spec"] == first["spec"]


def test_the_queue_is_ordered_by_priority_then_submission(service: ApiFixture) -> None:
    low, first, second = (service.submit(priority=priority)["id"] for priority in (-5, 3, 3))
    assert line.waiting(service.queue) == [first, second, low]
    shown = {job["id"]: job["status_reason"]["position"] for job in service.get("/v1/jobs")["data"]}
    assert shown == {first: 1, second: 2, low: 3}
    assert service.get(f"/v1/jobs/{low}")["status_reason"]["position"] == 3


def test_a_job_that_needs_more_devices_than_any_worker_has_is_queued(service: ApiFixture) -> None:
    assert service.submit(resources={"devices_per_node": 1024})["state"] == "queued"


def test_a_submission_is_accepted_without_redis(
    tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    lonely = ApiFixture(tmp_path, database, f"unix://{tmp_path}/nobody.sock")
    with lonely.client, caplog.at_level(logging.WARNING):
        job = lonely.submit()
        assert job["id"] in caplog.text
        assert [job_id for job_id, _ in lonely.queued_rows()] == [job["id"]]
        assert lonely.client.post(f"/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
        ready = lonely.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert (ready.json()["database"], ready.json()["redis"]) == ("ok", "does not answer")


def test_concurrent_submissions_are_all_stored(service: ApiFixture) -> None:
    def submit(number: int) -> dict[str, Any]:
        return service.submit(name=f"job-{number}")

    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(submit, range(24)))
    assert len({job["id"] for job in jobs}) == 24
    assert set(ids(service.get("/v1/jobs"))) == {job["id"] for job in jobs} == set(line.waiting(service.queue))


@both_databases
def test_pages_of_a_list_join_into_the_whole(service: ApiFixture) -> None:
    submitted = [service.submit()["id"] for _ in range(7)]
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = service.get("/v1/jobs", limit=3, **cursor)
        pages.append(ids(page))
        if not page["has_more"]:
            break
        service.submit()  # a newer job does not change the following pages
        cursor = {"after": page["next"]}
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job_id for page in pages for job_id in page] == submitted[::-1]
    assert page["next"] is None


def test_a_page_that_ends_the_list_has_no_next(service: ApiFixture) -> None:
    for _ in range(2):
        service.submit()
    page = service.get("/v1/jobs", limit=2)
    assert (len(page["data"]), page["has_more"], page["next"]) == (2, False, None)


@both_databases
def test_lists_are_filtered(service: ApiFixture) -> None:
    digits = service.submit()["id"]
    script = service.submit(trainer="script", name="mine", config={"code": "file:///srv/code"})["id"]
    stopped = service.submit(name="stopped")["id"]
    service.client.post(f"/v1/jobs/{stopped}/cancel")
    assert ids(service.get("/v1/jobs", trainer="script")) == [script]
    assert ids(service.get("/v1/jobs", name="digits")) == [digits]
    assert ids(service.get("/v1/jobs", state="cancelled")) == [stopped]
    assert ids(service.get("/v1/jobs", state=["cancelled", "queued"])) == [stopped, script, digits]
    assert ids(service.get("/v1/jobs", owner="admin", state="queued", name="mine")) == [script]
    assert ids(service.get("/v1/jobs", owner="somebody")) == []


@both_databases
def test_labels_filter_a_list_and_all_of_them_must_match(service: ApiFixture) -> None:
    both = service.submit(labels={"team": "bridges", "site/a.b": "x:y=ü z", "empty": ""})["id"]
    one = service.submit(labels={"team": "bridges"})["id"]
    service.submit(labels={"team": "Bridges"})
    assert ids(service.get("/v1/jobs", label="team:bridges")) == [one, both]
    assert ids(service.get("/v1/jobs", label=["team:bridges", "site/a.b:x:y=ü z"])) == [both]
    assert ids(service.get("/v1/jobs", label="empty:")) == [both]
    assert ids(service.get("/v1/jobs", label=["team:bridges", "team:roads"])) == []
    assert ids(service.get("/v1/jobs", label="site:x")) == []


@each_row("label", ["", "team", ":x", "te am:x", 'a"b:x', "a\0b:x", "team:a\0", "a" * 64 + ":x"])
def test_a_malformed_label_is_refused(service: ApiFixture, label: str, approved: Approved) -> None:
    answer = service.client.get("/v1/jobs", params={"label": label})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    (error,) = answer.json()["errors"]
    assert error["field"] == "label.0"
    assert error["message"] == approved("message")


@both_databases
def test_the_time_of_submission_filters_a_list(service: ApiFixture) -> None:
    jobs = [service.submit() for _ in range(3)]
    first, middle, last = (job["created_at"] for job in jobs)
    assert datetime.fromisoformat(first) < datetime.fromisoformat(middle) < datetime.fromisoformat(last)
    assert ids(service.get("/v1/jobs", created_after=first)) == [jobs[2]["id"], jobs[1]["id"]]
    assert ids(service.get("/v1/jobs", created_before=last)) == [jobs[1]["id"], jobs[0]["id"]]
    assert ids(service.get("/v1/jobs", created_after=first, created_before=last)) == [jobs[1]["id"]]
    shifted = datetime.fromisoformat(middle).astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    assert ids(service.get("/v1/jobs", created_after=shifted)) == [jobs[2]["id"]]
    assert ids(service.get("/v1/jobs", created_before="0001-01-01T00:00:00+14:00")) == []
    assert len(ids(service.get("/v1/jobs", created_before="9999-12-31T23:59:59.999999-12:00"))) == 3


@each_row(
    "instant",
    [
        "",
        "yesterday",
        "1700000000",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31T12:00:00 01:00",
    ],
)
@each_row("parameter", ["created_after", "created_before"])
def test_a_malformed_time_or_one_without_a_zone_is_refused(service: ApiFixture, parameter: str, instant: str) -> None:
    answer = service.client.get("/v1/jobs", params={parameter: instant})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert [error["field"] for error in answer.json()["errors"]] == [parameter]


@both_databases
def test_pages_of_a_filtered_list_join_into_the_whole(service: ApiFixture) -> None:
    wanted = [service.submit(labels={"n": str(number % 2)})["id"] for number in range(7)][1::2]
    since = service.get(f"/v1/jobs/{wanted[0]}")["created_at"]
    shown: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = service.get("/v1/jobs", label="n:1", created_after=since, limit=1, **cursor)
        shown += ids(page)
        if not page["has_more"]:
            break
        cursor = {"after": page["next"]}
    assert shown == wanted[:0:-1]


def test_a_running_job_shows_its_progress_metrics_and_devices(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    progress = {"step": 6, "total_steps": 12, "epoch": 1, "epochs": 2, "fraction": 0.5, "eta_seconds": 9.5}
    points = [MetricPoint("train/loss", step, 1 / step, step) for step in (5, 6)]
    points.append(MetricPoint("val/loss", 6, float("nan"), 6))
    good = service.new_checkpoint(step=6, epoch=1, files={"state.pt": b"one"}, val_loss=0.5)
    worse = service.new_checkpoint(step=12, epoch=2, files={"state.pt": b"two"}, val_loss=0.75)
    service.record(claim, points=points, checkpoints=[good, worse], progress=progress)
    job = service.get(f"/v1/jobs/{job_id}")
    assert job["state"] == "running"
    assert job["attempt"] == 1
    assert job["progress"] == progress
    assert job["metrics"] == {"train/loss": 1 / 6, "val/loss": "NaN"}
    held = {"worker": service.worker_id, "index": 0, "uuid": "cpu-0", "name": "CPU slot", "node": 0, "host": None}
    assert job["devices"] == [held]
    assert job["status_reason"]["position"] is None
    best = service.get(f"/v1/jobs/{job_id}/checkpoints/best")
    assert job["best"] == {
        "metric": "val/loss", "value": 0.5, "epoch": 1, "step": 6, "checkpoint_id": best["id"], "remeasured": None,
    }  # fmt: skip
    assert [item["best"] for item in service.get("/v1/jobs")["data"]] == [job["best"]]


@quick_on_sqlite
def test_a_list_shows_each_jobs_own_best(service: ApiFixture) -> None:
    expected: dict[str, float | None] = {}
    for mode, values, best in (("min", (0.5, 0.25), 0.25), ("max", (0.5, 0.25), 0.5), ("min", (), None)):
        job_id = service.submit(checkpoint={"mode": mode})["id"]
        claim = service.start(job_id)
        for step, value in enumerate(values, start=1):
            saved = service.new_checkpoint(step=step, epoch=step, files={"state.pt": b"x"}, val_loss=value)
            service.record(claim, checkpoints=[saved])
        service.end(claim, reason=EndReason.COMPLETED)
        expected[job_id] = best
    shown = {job["id"]: job["best"] and job["best"]["value"] for job in service.get("/v1/jobs")["data"]}
    assert shown == expected


def test_a_failed_job_shows_its_error(service: ApiFixture) -> None:
    job_id = service.submit(max_restarts=0)["id"]
    report = {"message": "rank 1 raised", "rank": 1, "exit_code": 1, "traceback": "Traceback …\nValueError: no"}
    service.end(service.start(job_id), reason=EndReason.USER_ERROR, **report)
    job = service.get(f"/v1/jobs/{job_id}")
    assert job["state"] == "failed"
    assert job["error"] == {"code": "user_error", **report}
    created, started, finished = (
        datetime.fromisoformat(job[key]) for key in ("created_at", "started_at", "finished_at")
    )
    assert created <= started <= finished


def test_a_queued_job_is_cancelled_at_once(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    answer = service.client.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert line.waiting(service.queue) == []
    again = service.client.post(f"/v1/jobs/{job_id}/cancel")
    assert (again.status_code, again.json()) == (202, answer.json())


def test_a_running_job_is_asked_to_stop_and_the_worker_is_woken(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    listener = service.queue.listener()
    listener.wait(10)  # ends when the subscription is confirmed
    answer = service.client.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    assert answer.json()["status_reason"]["code"] == "stopping"
    assert listener.wait(120)
    listener.close()
    service.end(claim, reason=EndReason.CANCELLED)
    assert service.get(f"/v1/jobs/{job_id}")["state"] == "cancelled"


def test_a_forced_cancel_shortens_a_stop_and_is_recorded(service: ApiFixture) -> None:
    job_id = service.submit(stop_grace="1h")["id"]
    claim = service.start(job_id)
    gentle = service.client.post(f"/v1/jobs/{job_id}/cancel").json()
    answer, again = (service.client.post(f"/v1/jobs/{job_id}/cancel", params={"now": "true"}) for _ in range(2))
    assert (answer.status_code, answer.json()["version"]) == (202, gentle["version"] + 1)
    assert again.json() == answer.json()
    assert service.client.post(f"/v1/jobs/{job_id}/cancel").json() == answer.json()
    message = "forced cancel requested: killed without saving"
    assert answer.json()["status_reason"]["message"] == message
    events = service.get(f"/v1/jobs/{job_id}/events")["data"]
    texts = [gentle["status_reason"]["message"], message]
    assert [event["data"]["text"] for event in events if event["type"] == "message"] == texts
    assert [entry["object"] for entry in service.get("/v1/audit", action="job.cancel_now")["data"]] == [job_id] * 2
    service.end(claim, reason=EndReason.CANCELLED)
    assert service.client.post(f"/v1/jobs/{job_id}/cancel?now=true").json()["state"] == "cancelled"
    assert service.client.post(f"/v1/jobs/{job_id}/cancel?now=perhaps").status_code == 422


def test_a_job_that_has_ended_cannot_be_cancelled(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.end(service.start(job_id), reason=EndReason.COMPLETED)
    answer = service.client.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "succeeded" in answer.json()["detail"]


def test_events_are_listed_in_order_and_in_pages(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.end(service.start(job_id), reason=EndReason.COMPLETED)
    whole = service.get(f"/v1/jobs/{job_id}/events")
    assert [event["seq"] for event in whole["data"]] == [1, 2, 3, 4]
    assert [event["data"]["to"] for event in whole["data"]] == ["queued", "starting", "running", "succeeded"]
    assert [event["attempt"] for event in whole["data"]] == [None, 1, 1, 1]
    page = service.get(f"/v1/jobs/{job_id}/events", limit=3)
    assert (page["has_more"], page["next"]) == (True, "3")
    rest = service.get(f"/v1/jobs/{job_id}/events", after=page["next"])
    assert page["data"] + rest["data"] == whole["data"]


def test_another_users_job_is_not_found(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    service.record(claim, checkpoints=[service.new_checkpoint(step=1, epoch=1, files={"state.pt": b"x"})])
    service.act_as("bob")
    mine = service.submit(name="bobs")
    assert mine["owner"] == "bob"
    assert ids(service.get("/v1/jobs")) == [mine["id"]]
    assert ids(service.get("/v1/jobs", owner="admin")) == []
    parts = ("", "/events", "/metrics", "/logs", "/checkpoints", "/checkpoints/best", "/checkpoints/best/download")
    answers = [service.client.get(f"/v1/jobs/{job_id}{part}") for part in parts]
    answers.append(service.client.get(f"/v1/jobs/{job_id}/checkpoints/best/files/state.pt"))
    answers.append(service.client.post(f"/v1/jobs/{job_id}/cancel"))
    assert {answer.status_code for answer in answers} == {404}
    assert service.client.post(f"/v1/jobs/{mine['id']}/cancel").status_code == 202
    service.act_as("admin")
    assert set(ids(service.get("/v1/jobs"))) == {job_id, mine["id"]}


def test_pause_and_resume_change_the_job_and_the_queue(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    paused = service.client.post(f"/v1/jobs/{job_id}/pause")
    assert (paused.status_code, paused.json()["state"]) == (202, "paused")
    assert line.waiting(service.queue) == []
    resumed = service.client.post(f"/v1/jobs/{job_id}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
    assert line.waiting(service.queue) == [job_id]

    claim = service.start(job_id)
    asked = service.client.post(f"/v1/jobs/{job_id}/pause").json()
    assert (asked["state"], asked["status_reason"]["code"]) == ("running", "stopping")
    service.end(claim, reason=EndReason.PAUSED)
    assert service.get(f"/v1/jobs/{job_id}")["state"] == "paused"
    service.client.post(f"/v1/jobs/{job_id}/cancel")
    for verb in ("pause", "resume"):
        refused = service.client.post(f"/v1/jobs/{job_id}/{verb}")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert service.client.post(f"/v1/jobs/job_{'0' * 32}/{verb}").status_code == 404
