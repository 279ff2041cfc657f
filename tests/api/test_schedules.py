"""Schedules over HTTP: what is answered, what is refused, and who may see them."""

from typing import Any

from httpx2 import Response
import pytest
from sqlalchemy import update

from controller.schedules import Schedules
from store.db.database import now_us
from store.tables import Schedule
from tests.api.service import SPEC, ApiFixture
from tests.api.test_problems import assert_problem
from tests.approved import Approved
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.team.roles import Role

DAY_US = 24 * 3600 * 1_000_000
NIGHTLY = {**SPEC, "schedule": "0 3 * * *"}


def added(service: ApiFixture, **schedule: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/schedules", json={**SPEC, "schedule": {"cron": "0 3 * * *", **schedule}})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/schedules/{made['id']}"
    assert service.get(answer.headers["location"]) == made
    return made


def test_a_schedule_is_a_job_spec_with_its_times(service: ApiFixture) -> None:
    answer = service.client.post("/v1/schedules", json=NIGHTLY)
    made = answer.json()
    assert (answer.status_code, made["name"], made["owner"], made["state"]) == (201, "digits", "admin", "active")
    assert made["schedule"] == {"cron": "0 3 * * *", "timezone": "UTC", "overlap": "skip", "until": None}
    assert made["next_at"].endswith("T03:00:00Z")
    assert made["last_run"] is made["last_error"] is made["status_reason"] is None
    assert "schedule" not in made["spec"] and made["spec"]["visibility"] == "private"
    assert service.get("/v1/schedules")["data"] == [{key: value for key, value in made.items() if key != "spec"}]
    foreseen = service.client.post("/v1/jobs/validate?place=true", json=NIGHTLY).json()
    assert foreseen["first_run_at"] == made["next_at"]


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        ("* * * * * *", "schedule.cron"),
        ("61 * * * *", "schedule.cron"),
        ("R * * * *", "schedule.cron"),
        ("0 0 30 2 *", "schedule.cron"),
        ({"cron": "0 3 * * *", "timezone": "Mars/Phobos"}, "schedule.timezone"),
        ({"cron": "0 3 * * *", "until": "2020-01-01T00:00:00Z"}, "schedule.until"),
    ],
)
def test_times_that_cannot_be_are_refused_by_name(
    service: ApiFixture, schedule: Any, field: str, approved: Approved
) -> None:
    """What its form refuses: tests/torchyard/contract/spec/test_schedule.py."""
    for path in ("/v1/schedules", "/v1/jobs/validate?place=true"):
        answer = service.client.post(path, json={**SPEC, "schedule": schedule})
        assert_problem(answer, 422, "invalid_spec")
        (error,) = answer.json()["errors"]
        assert error["field"] == field and error["message"] == approved.of_row("message")
    assert service.get("/v1/schedules")["data"] == []


def test_a_job_with_a_schedule_is_sent_elsewhere(service: ApiFixture) -> None:
    refused = [service.client.post("/v1/jobs", json=NIGHTLY)]
    refused.append(service.client.post("/v1/jobs/batch", json={"jobs": [NIGHTLY], "atomic": True}))
    for answer in refused:
        assert answer.status_code == 422
        assert "POST /v1/schedules" in answer.text
    assert service.get("/v1/jobs")["data"] == []
    answer = service.client.post("/v1/schedules", json=SPEC)
    assert_problem(answer, 422, "invalid_spec")
    assert answer.json()["errors"][0]["field"] == "schedule"
    assert service.client.post("/v1/jobs/validate", json=NIGHTLY).json()["spec"]["schedule"]["overlap"] == "skip"


def test_its_runs_are_jobs_that_a_filter_finds(service: ApiFixture) -> None:
    made = added(service)
    store = StoreFixture(service.database)
    store.write(lambda session: session.query(Schedule).update({Schedule.next_at: 1}))
    assert Schedules(store_on(service.database)).run()
    (job,) = service.get(f"/v1/jobs?schedule={made['id']}")["data"]
    assert job["schedule_id"] == made["id"]
    assert service.get(f"/v1/schedules/{made['id']}")["last_run"]["job_id"] == job["id"]
    assert service.get("/v1/jobs?schedule=sch_0")["data"] == []


def test_a_schedule_is_paused_resumed_changed_and_deleted(service: ApiFixture, approved: Approved) -> None:
    path = f"/v1/schedules/{added(service)['id']}"

    def patched(**patch: Any) -> dict[str, Any]:
        answer = service.client.patch(path, json=patch)
        assert answer.status_code == 200, answer.text
        return answer.json()

    paused = patched(paused=True)
    assert (paused["state"], paused["next_at"]) == ("paused", None)
    assert paused["status_reason"] == {"code": "paused", "message": approved("message")}
    assert patched(schedule="0 4 * * *")["state"] == "paused"
    resumed = patched(paused=False)
    assert (resumed["state"], resumed["status_reason"]) == ("active", None)
    assert resumed["next_at"].endswith("T04:00:00Z")
    assert_problem(service.client.patch(path, json={"paused": None}), 422, "invalid_request")
    assert_problem(service.client.patch(path, json={"cron": "0 3 * * *"}), 422, "invalid_request")
    assert service.client.delete(path).status_code == 204
    assert_problem(service.client.get(path), 404, "not_found")


def test_a_schedule_names_targets_that_its_owner_has_when_it_is_added(service: ApiFixture) -> None:
    named = {**NIGHTLY, "notify": {"targets": ["hook"]}}
    answer = service.client.post("/v1/schedules", json=named)
    assert_problem(answer, 422, "invalid_spec")
    assert [error["field"] for error in answer.json()["errors"]] == ["notify.targets.0"]
    assert service.get("/v1/schedules")["data"] == []
    target = {"name": "hook", "kind": "webhook", "address": "https://example.com/"}
    hook = service.client.post("/v1/notifications/targets", json=target).json()["id"]
    path = f"/v1/schedules/{service.client.post('/v1/schedules', json=named).json()['id']}"
    assert service.client.delete(f"/v1/notifications/targets/{hook}").status_code == 204
    for paused in (True, False):
        assert service.client.patch(path, json={"paused": paused}).status_code == 200, "its spec cannot be changed"


def test_a_repeated_request_with_a_key_adds_one_schedule(service: ApiFixture) -> None:
    def post(**changes: Any) -> Response:
        return service.client.post("/v1/schedules", json=NIGHTLY | changes, headers={"Idempotency-Key": "once"})

    first, again = post(), post()
    assert (again.status_code, again.json()) == (201, first.json())
    assert "idempotent-replayed" not in first.headers and again.headers["idempotent-replayed"] == "true"
    assert_problem(post(name="other"), 422, "idempotency_mismatch")
    assert len(service.get("/v1/schedules")["data"]) == 1
    service.act_as("bob")
    assert post().json()["id"] != first.json()["id"], "keys are each user's own"


def test_a_key_of_a_schedule_is_kept_for_24_hours(service: ApiFixture) -> None:
    def post(**changes: Any) -> str:
        keyed = {"Idempotency-Key": "once"}
        return service.client.post("/v1/schedules", json=NIGHTLY | changes, headers=keyed).json()["id"]

    first = post()
    with service.database.write() as session:
        session.execute(update(Schedule).values(created_at=now_us() - DAY_US))
    second = post(name="other")
    assert second != first and post(name="other") == second


def test_another_users_private_schedule_is_not_there(service: ApiFixture) -> None:
    service.act_as("bob")
    private, shared = (
        added(service)["id"],
        service.client.post("/v1/schedules", json={**NIGHTLY, "visibility": "team"}).json()["id"],
    )
    service.act_as("eve")
    for call in (service.client.get, service.client.delete):
        assert_problem(call(f"/v1/schedules/{private}"), 404, "not_found")
    assert [each["id"] for each in service.get("/v1/schedules")["data"]] == [shared]
    assert_problem(service.client.patch(f"/v1/schedules/{shared}", json={"paused": True}), 403, "forbidden")
    service.act_as("vic", Role.VIEWER)
    assert_problem(service.client.post("/v1/schedules", json=NIGHTLY), 403, "forbidden")


def test_an_operator_does_not_see_of_which_schedule_a_private_job_is(service: ApiFixture) -> None:
    service.act_as("alice")
    schedule = added(service)["id"]
    store = service.app.state.services.store
    with store.write("test") as session:
        session.get_one(Schedule, schedule).next_at = 1
    Schedules(store).run()
    assert [row["schedule_id"] for row in service.get("/v1/jobs")["data"]] == [schedule]
    service.act_as("opal", Role.OPERATOR)
    assert [row["schedule_id"] for row in service.get("/v1/jobs")["data"]] == [None]
