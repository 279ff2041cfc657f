"""Jobs that wait for others, over REST: what their spec may name, and what is told of them."""

from typing import Any

import pytest

from controller.duties import Dependencies
from tests.api.service import SPEC, ApiFixture
from tests.approved import Approved
from torchyard.contract.states import EndReason

NOBODY = f"job_{'0' * 32}"


def refused(service: ApiFixture, path: str, body: dict[str, Any]) -> dict[str, str]:
    """Returns the messages by their fields."""
    answer = service.client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    return {each["field"]: each["message"] for each in answer.json()["errors"]}


def test_what_waits_is_not_in_the_queue_and_says_for_what_it_waits(service: ApiFixture, approved: Approved) -> None:
    first = service.submit(name="prep")["id"]
    job = service.submit(name="eval", after=[{"job": "prep"}], init_from="${jobs.prep.best}")
    assert job["spec"]["after"] == [{"job": first, "on": "succeeded"}]
    assert job["after"] == [{"job_id": first, "name": "prep", "on": "succeeded", "state": "queued"}]
    reason = job["status_reason"]
    assert (reason["code"], reason["message"], reason["position"]) == ("waits_for_jobs", "waits for prep", None)
    assert service.get(f"/v1/jobs/{job['id']}") == job
    assert [each["job_id"] for each in service.get("/v1/queue")["data"]] == [first]
    advice = service.get(f"/v1/jobs/{job['id']}/advice")
    assert advice["steps"] == [approved("steps")]


def test_one_that_cannot_start_any_more_says_because_of_which(service: ApiFixture) -> None:
    first = service.submit(name="prep", max_restarts=0)["id"]
    job = service.submit(name="eval", after=[{"job": "prep"}])["id"]
    service.end(service.start(first), reason=EndReason.USER_ERROR, message="a bug")
    while Dependencies(service.app.state.services.store).run():
        pass
    failed = service.get(f"/v1/jobs/{job}")
    message = "prep failed; this job needs it to succeed"
    assert (failed["state"], failed["error"]["code"], failed["error"]["message"]) == (
        *("failed", "dependency_failed"),
        message,
    )
    assert service.get(f"/v1/jobs/{job}/advice")["headline"] == f"skipped: {message}"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/validate"])
def test_an_unknown_job_is_an_error_of_its_field(service: ApiFixture, path: str, approved: Approved) -> None:
    for named in ("nobody", NOBODY):
        assert refused(service, path, {**SPEC, "after": [{"job": named}]}) == {
            "after.0.job": approved("after_0_job", named=named)
        }
    assert refused(service, path, {**SPEC, "after": [{"job": "a"}] * 33}) == {"after": approved("after")}
    assert set(refused(service, path, {**SPEC, "after": [{"job": "a", "on": "never"}]})) == {"after.0.on"}


def test_a_foreign_private_job_is_none(service: ApiFixture, approved: Approved) -> None:
    first = service.submit(name="secret", visibility="private")["id"]
    service.act_as("eve")
    for named in ("secret", first):
        wrong = refused(service, "/v1/jobs", {**SPEC, "after": [{"job": named}]})
        assert wrong == {"after.0.job": approved("after_0_job", named=named)}


def test_a_circle_in_a_batch_is_written_out_and_nothing_is_stored(service: ApiFixture, approved: Approved) -> None:
    jobs = [{**SPEC, "name": name, "after": [{"job": other}]} for name, other in (("a", "b"), ("b", "a"))]
    wrong = refused(service, "/v1/jobs/batch", {"jobs": jobs, "atomic": True})
    assert wrong == {"jobs.1.after.0.job": approved("jobs_1_after_0_job")}
    assert service.get("/v1/jobs")["data"] == []


def test_a_batch_that_waits_for_itself_in_order_is_sent_twice_with_one_key(service: ApiFixture) -> None:
    jobs = [{**SPEC, "name": "a"}, {**SPEC, "name": "b", "after": [{"job": "a"}]}]
    headers = {"Idempotency-Key": "chain"}
    body = {"jobs": jobs, "atomic": True}
    made = [service.client.post("/v1/jobs/batch", json=body, headers=headers).json() for _ in range(2)]
    assert made[0] == made[1]
    first, second = (item["id"] for item in made[0]["data"])
    assert [each["job_id"] for each in service.get(f"/v1/jobs/{second}")["after"]] == [first]
