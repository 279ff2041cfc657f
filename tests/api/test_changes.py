"""`PATCH /v1/jobs/{id}`: name, labels and, while the job is queued, priority."""

from typing import Any

from httpx2 import Response

from tests import line
from tests.api.service import ApiFixture
from tests.rows import each_row
from torchyard.contract.states import EndReason


def patch(service: ApiFixture, job_id: str, **change: Any) -> Response:
    return service.client.patch(f"/v1/jobs/{job_id}", json=change)


def test_a_change_shows_in_the_job_and_in_its_spec(service: ApiFixture) -> None:
    before = service.submit(labels={"team": "bridges", "run": "1"})
    answer = patch(service, before["id"], name="renamed", labels={"team": "roads"}, priority=7)
    assert answer.status_code == 200
    job = service.get(f"/v1/jobs/{before['id']}")
    assert answer.json() == job
    for shown in (job, job["spec"]):
        assert (shown["name"], shown["labels"], shown["priority"]) == ("renamed", {"team": "roads"}, 7)
    assert job["version"] == before["version"] + 1
    unchanged = before.keys() - {"name", "labels", "priority", "spec", "version"}
    assert {key: job[key] for key in unchanged} == {key: before[key] for key in unchanged}
    same = before["spec"].keys() - {"name", "labels", "priority"}
    assert {key: job["spec"][key] for key in same} == {key: before["spec"][key] for key in same}
    assert [item["id"] for item in service.get("/v1/jobs", name="renamed", label="team:roads")["data"]] == [job["id"]]


def test_the_priority_moves_the_job_in_both_queues(service: ApiFixture) -> None:
    first, second = service.submit()["id"], service.submit()["id"]
    assert patch(service, second, priority=1).json()["status_reason"]["position"] == 1
    assert line.waiting(service.queue) == [second, first]
    assert [job_id for job_id, _ in service.queued_rows()] == [second, first]
    patch(service, second, priority=-1)
    assert line.waiting(service.queue) == [first, second]


@each_row("change", [{}, {"name": "digits"}, {"priority": 0}, {"labels": {}}])
def test_a_change_to_the_present_value_changes_nothing(service: ApiFixture, change: dict[str, Any]) -> None:
    before = service.submit()
    answer = patch(service, before["id"], **change)
    assert (answer.status_code, answer.json()) == (200, before)


def test_labels_are_replaced_as_a_whole(service: ApiFixture) -> None:
    job_id = service.submit(labels={"a": "1", "b": "2"})["id"]
    assert patch(service, job_id, labels={"b": "3"}).json()["labels"] == {"b": "3"}
    assert patch(service, job_id, labels={}).json()["labels"] == {}


def test_only_a_queued_job_can_change_its_priority(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    refused = patch(service, job_id, name="fast", priority=1)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "running" in refused.json()["detail"]
    assert service.get(f"/v1/jobs/{job_id}")["name"] == "digits"  # a change is applied as a whole or not at all
    assert patch(service, job_id, name="fast").json()["name"] == "fast"
    service.end(claim, reason=EndReason.COMPLETED)
    assert patch(service, job_id, labels={"kept": "yes"}).json()["labels"] == {"kept": "yes"}
    assert patch(service, job_id, priority=1).status_code == 409
    assert line.waiting(service.queue) == []


@each_row(
    ("change", "field"),
    [
        ({"state": "running"}, "state"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "a/b"}, "name"),
        ({"priority": 101}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"priority": True}, "priority"),
        ({"labels": None}, "labels"),
        ({"labels": {"team": 1}}, "labels.team"),
        ({"labels": {"team": "a\0b"}}, "labels.team"),
    ],
)
def test_an_invalid_change_is_refused_with_the_name_of_its_field(
    service: ApiFixture, change: dict[str, Any], field: str
) -> None:
    before = service.submit()
    answer = patch(service, before["id"], **change)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert service.get(f"/v1/jobs/{before['id']}") == before


@each_row("body", ["", "[]", "null", "{", '"name"'])
def test_a_body_that_is_not_an_object_is_refused(service: ApiFixture, body: str) -> None:
    job_id = service.submit()["id"]
    answer = service.client.patch(f"/v1/jobs/{job_id}", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_another_users_job_cannot_be_changed(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.act_as("bob")
    assert patch(service, job_id, name="bobs").status_code == 404
    assert patch(service, "job_1", name="bobs").status_code == 404
