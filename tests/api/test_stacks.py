"""Asking for stacks, and their answer."""

import pytest

from store.attempts import state as attempts
from store.output.facts import Answer
from tests.api.service import ApiFixture
from torchyard.contract.states import EndReason

RANKS = [{"rank": 0, "text": "in stuck_here", "note": None}, {"rank": 1, "text": None, "note": "has not answered"}]


def test_a_request_waits_for_its_answer(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    path = f"/v1/jobs/{job_id}/stacks"
    assert service.get(path) == {"attempt": 1, "requested_at": None, "taken_at": None, "ranks": []}
    asked = service.client.post(path)
    assert asked.status_code == 202
    waiting = asked.json()
    assert waiting["requested_at"] is not None
    assert (waiting["taken_at"], waiting["ranks"]) == (None, [])
    assert service.client.post(path).json() == waiting, "it waits already"
    assert service.get(path) == waiting
    with service.database.write() as session:
        row = attempts.find(session, claim)
        assert row.stacks_requested_at is not None
        answer = Answer(requested_at=row.stacks_requested_at, taken_at=row.stacks_requested_at + 1, ranks=RANKS)
        attempts.store_stacks(session, claim, answer)
    found = service.get(path)
    assert found["requested_at"] == waiting["requested_at"]
    assert (found["taken_at"] > found["requested_at"], found["ranks"]) == (True, RANKS)
    again = service.client.post(path).json()
    assert (again["taken_at"], again["ranks"]) == (None, []), "an earlier answer is not taken for the new one"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_job_that_does_not_run_has_no_stacks(service: ApiFixture, method: str) -> None:
    job_id = service.submit()["id"]
    answer = service.client.request(method, f"/v1/jobs/{job_id}/stacks")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "is queued: only a job that runs has stacks" in answer.json()["detail"]
    claim = service.start(job_id)
    service.client.post(f"/v1/jobs/{job_id}/stacks")
    service.end(claim, reason=EndReason.COMPLETED)
    assert service.client.request(method, f"/v1/jobs/{job_id}/stacks").status_code == 409
    assert service.client.request(method, "/v1/jobs/nothing/stacks").status_code == 404


def test_asking_is_not_a_change_of_the_job(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.start(job_id)
    before, audited = service.get(f"/v1/jobs/{job_id}"), service.get("/v1/audit")
    service.client.post(f"/v1/jobs/{job_id}/stacks")
    assert (service.get(f"/v1/jobs/{job_id}"), service.get("/v1/audit")) == (before, audited)
