"""`Idempotency-Key`: a repeated request makes no second job, and gets the job of the first as it is now."""

from concurrent.futures import ThreadPoolExecutor
import json
import threading
from typing import Any

from httpx2 import Response
import pytest
from sqlalchemy import delete, update

from store.db.database import now_us
from store.tables import IdempotencyKey
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.approved import Approved
from tests.rows import each_row
from torchyard.contract.states import EndReason

DAY_US = 24 * 3600 * 1_000_000


def submit(service: ApiFixture, key: str, **spec: Any) -> Response:
    return service.client.post("/v1/jobs", json={**SPEC, **spec}, headers={"Idempotency-Key": key})


def age(service: ApiFixture, microseconds: int) -> None:
    """Makes every stored key older."""
    with service.database.write() as session:
        session.execute(update(IdempotencyKey).values(created_at=now_us() - microseconds))


def test_a_repeated_request_gets_the_job_as_it_is_now(service: ApiFixture) -> None:
    first = submit(service, "nightly-7", labels={"b": "1", "a": "ü"}, priority=3)
    assert first.status_code == 201
    assert "Idempotent-Replayed" not in first.headers
    service.start(first.json()["id"])
    again = submit(service, "nightly-7", labels={"b": "1", "a": "ü"}, priority=3)
    assert (again.status_code, again.json()) == (201, service.get(f"/v1/jobs/{first.json()['id']}"))
    assert again.json()["state"] == "running"
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert [job["id"] for job in service.get("/v1/jobs")["data"]] == [first.json()["id"]]


def test_another_body_under_the_same_key_is_refused(service: ApiFixture) -> None:
    first = submit(service, "one")
    other = submit(service, "one", priority=1)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert first.json()["id"] in other.json()["detail"]
    assert len(service.get("/v1/jobs")["data"]) == 1


def test_the_body_is_compared_byte_by_byte(service: ApiFixture) -> None:
    def send(body: str) -> int:
        return service.client.post("/v1/jobs", content=body, headers={"Idempotency-Key": "bytes"}).status_code

    assert send(json.dumps(SPEC)) == 201
    assert send(json.dumps(SPEC)) == 201
    assert send(json.dumps(SPEC, indent=1)) == 422


def test_a_key_belongs_to_its_user(service: ApiFixture) -> None:
    first = submit(service, "mine").json()
    service.act_as("bob")
    other = submit(service, "mine", priority=5)
    assert other.status_code == 201
    assert other.json()["id"] != first["id"]


def test_a_refused_request_does_not_use_up_its_key(service: ApiFixture) -> None:
    refused = submit(service, "typo", priority=101)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_spec")
    mended = submit(service, "typo", priority=100)
    assert mended.status_code == 201
    assert "Idempotent-Replayed" not in mended.headers


def test_a_key_is_kept_for_a_day_by_the_databases_clock(service: ApiFixture) -> None:
    first, other = submit(service, "daily"), submit(service, "other")
    age(service, DAY_US - 60_000_000)
    assert submit(service, "daily").json() == first.json()
    age(service, DAY_US + 1)
    second = submit(service, "daily", priority=1)
    assert second.status_code == 201
    assert second.json()["id"] != first.json()["id"]
    assert submit(service, "daily", priority=1).json() == second.json()
    with service.database.write() as session:  # the new key removed the expired one
        left = session.execute(delete(IdempotencyKey).returning(IdempotencyKey.key)).scalars().all()
    assert left == ["daily"]
    assert other.status_code == 201


@each_row("key", ["", "k" * 256, "two words", "ümlaut".encode().decode("latin-1"), "tab\there"])
def test_an_invalid_key_is_refused_by_name(service: ApiFixture, key: str, approved: Approved) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    refused = service.client.post("/v1/jobs", json=SPEC, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["errors"] == [{"field": "Idempotency-Key", "message": approved("message")}]
    assert service.get("/v1/jobs")["data"] == []


def test_two_keys_are_refused_and_the_longest_key_is_accepted(service: ApiFixture, approved: Approved) -> None:
    twice = [(b"Idempotency-Key", b"a"), (b"Idempotency-Key", b"a")]
    refused = service.client.post("/v1/jobs", json=SPEC, headers=twice)
    assert refused.status_code == 422
    assert refused.json()["errors"] == [{"field": "Idempotency-Key", "message": approved("message")}]
    assert submit(service, "~" * 255).status_code == submit(service, "!").status_code == 201


@both_databases
def test_concurrent_requests_with_one_key_make_one_job(service: ApiFixture) -> None:
    clients, barrier = 8, threading.Barrier(8)

    def send(key: str) -> Response:
        barrier.wait()
        return submit(service, key)

    with ThreadPoolExecutor(clients) as pool:
        for turn in range(2):
            answers = list(pool.map(send, [f"turn-{turn}"] * clients))
            assert {answer.status_code for answer in answers} == {201}
            assert len({json.dumps(answer.json(), sort_keys=True) for answer in answers}) == 1
            assert [answer.headers.get("Idempotent-Replayed") for answer in answers].count(None) == 1
    assert len(service.get("/v1/jobs")["data"]) == 2


@both_databases
def test_concurrent_requests_with_one_key_and_several_bodies_make_one_job(service: ApiFixture) -> None:
    barrier = threading.Barrier(8)

    def send(priority: int) -> Response:
        barrier.wait()
        return submit(service, "contested", priority=priority)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 7
    assert {answer.json()["code"] for answer in answers if answer.status_code == 422} == {"idempotency_mismatch"}
    assert len(service.get("/v1/jobs")["data"]) == 1


@both_databases
def test_a_retry_that_is_sent_twice_makes_one_job(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    headers = {"Idempotency-Key": "again"}
    early = service.client.post(f"/v1/jobs/{job_id}/retry", headers=headers)
    assert early.status_code == 409  # a refused request does not use up its key
    service.end(service.start(job_id), reason=EndReason.COMPLETED)
    first = service.client.post(f"/v1/jobs/{job_id}/retry", headers=headers)
    again = service.client.post(f"/v1/jobs/{job_id}/retry", headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    submitted = submit(service, "again")
    assert submitted.json()["code"] == "idempotency_mismatch"


def test_the_key_of_a_deleted_job_is_free(service: ApiFixture) -> None:
    first = submit(service, "gone").json()["id"]
    service.client.post(f"/v1/jobs/{first}/cancel")
    assert service.client.delete(f"/v1/jobs/{first}").status_code == 204
    assert submit(service, "gone").json()["id"] != first


def test_a_job_whose_answer_was_lost_is_found_by_its_key(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("crashed")

    with monkeypatch.context() as crashing:
        crashing.setattr("store.queue.announcing.Queue.announce", crash)  # runs after the commit
        assert submit(service, "lost").status_code == 500
    stored = service.get("/v1/jobs")["data"]
    replayed = submit(service, "lost")
    assert replayed.headers["Idempotent-Replayed"] == "true"
    assert [job["id"] for job in stored] == [replayed.json()["id"]]
