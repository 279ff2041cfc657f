"""The operations on schedules, by both clients."""

import json
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.client.answers import NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from torchyard.client import Client
from torchyard.contract.errors import Conflict, InvalidSpec, NotFound

PATH, ID = "/v1/schedules", "sch_0192a0"
OF_ONE = f"{PATH}/{ID}"
SPEC = {"trainer": "image-classification", "schedule": "0 3 * * *"}


def schedule(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": ID,
        "name": "nightly",
        "owner": "admin",
        "visibility": "private",
        "schedule": {"cron": "0 3 * * *", "timezone": "UTC", "overlap": "skip", "until": None},
        "state": "active",
        "status_reason": None,
        "next_at": NOW,
        "last_run": {"job_id": "job_1", "due_at": NOW},
        "skipped": 2,
        "last_error": None,
        "created_at": NOW,
        "spec": {"trainer": "image-classification"},
    }
    return {**plain, **changes}


def sent(server: FakeServer) -> Any:
    return json.loads(server.requests[-1].body)


def test_a_schedule_is_created_with_the_id_of_a_named_job_and_sent_again_with_its_key(
    server: FakeServer, client: Client
) -> None:
    server.on("/v1/jobs", page([job(id=f"job_{'1' * 32}")]))
    server.on(f"/v1/jobs/job_{'1' * 32}", job(id=f"job_{'1' * 32}"))
    server.on(PATH, Answer(schedule(), 201))
    assert client.schedules.create({**SPEC, "init_from": "digits/best"}).schedule.cron == "0 3 * * *"
    assert sent(server) == {**SPEC, "init_from": f"job_{'1' * 32}/best"}
    server.on(PATH, Answer(status=0), Answer(schedule(), 201))
    client.schedules.create(SPEC, idempotency_key="nightly")
    assert [request.headers["Idempotency-Key"] for request in server.requests[-2:]] == ["nightly", "nightly"]
    server.on(PATH, problem("invalid_spec", 422, errors=[{"field": "schedule.cron", "message": "never comes"}]))
    with pytest.raises(InvalidSpec, match=r"schedule\.cron: never comes"):
        client.schedules.create(SPEC)


def test_a_schedule_is_found_by_its_id_its_name_and_the_beginning_of_its_id(
    server: FakeServer, client: Client, approved: Approved
) -> None:
    server.on(OF_ONE, schedule())
    server.on(PATH, page([schedule(), schedule(id="sch_0192a1", name="other")]))
    for ref in (ID, "nightly", "sch_0192a0"):
        assert client.schedules.get(ref).id == ID
    with pytest.raises(Conflict) as raised:
        client.schedules.get("sch_0192a")
    assert str(raised.value) == approved("message")
    with pytest.raises(NotFound) as raised:
        client.schedules.get("absent")
    assert str(raised.value) == approved("there schedule id")


def test_a_schedule_is_paused_resumed_changed_and_removed(server: FakeServer, client: Client) -> None:
    server.on(OF_ONE, schedule(state="paused", next_at=None))
    assert client.schedules.pause(ID).state == "paused"
    assert sent(server) == {"paused": True}
    client.schedules.resume(ID)
    assert sent(server) == {"paused": False}
    client.schedules.change(ID, {"cron": "0 4 * * *", "overlap": "queue"})
    assert sent(server) == {"schedule": {"cron": "0 4 * * *", "overlap": "queue"}}
    server.on(OF_ONE, Answer(b"", 204))
    client.schedules.delete(ID)
    assert server.requests[-1].method == "DELETE"
