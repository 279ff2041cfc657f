"""Codes by which machines become workers and users log in, and the removal of workers."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from starlette.testclient import TestClient

from store.cluster import worker_tokens
from store.tables import JoinCode, Worker
from tests.api.service import ApiFixture
from tests.api.test_team import audited, bearer
from tests.sessions import read, write
from torchyard.client import joining
from torchyard.contract.team.codes import parse_code
from torchyard.contract.wire.version import own_version


def make_code(service: ApiFixture, kind: str = "worker", name: str = "box-b") -> str:
    answer = service.client.post("/v1/codes", json={"kind": kind, "name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()["code"]


def join(
    service: ApiFixture, code: str, *, version: str | None = None, peer: str = "192.0.2.7", key: str | None = None
) -> Any:
    """Sends a code as a machine does that has nothing else."""
    stranger = TestClient(service.app, base_url="http://127.0.0.1:8000", client=(peer, 5000))
    sent = {"code": parse_code(code).secret, "version": version or own_version(), "key": key or joining.new_key()}
    return stranger.post("/v1/join", json=sent)


def test_a_code_makes_one_worker_whose_token_speaks_for_it_alone(service: ApiFixture) -> None:
    made = service.client.post("/v1/codes", json={"kind": "worker", "name": "box-b"}).json()
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=9) < left <= timedelta(minutes=10)
    assert made["code"].startswith("worker.ca."), "this service has no certificate of its own"
    answer = join(service, made["code"])
    assert answer.status_code == 200, answer.text
    joined = answer.json()
    assert (joined["kind"], joined["name"]) == ("worker", "box-b")
    token = read(service.app.state.services.store, lambda session: worker_tokens.find_worker(session, joined["token"]))
    assert token == joined["worker_id"]
    assert service.client.get("/v1/me", headers=bearer(joined["token"])).status_code == 401, "it is no user's token"
    own = service.client.get("/v1/worker", headers=bearer(joined["token"]))
    assert own.json() == {"worker_id": joined["worker_id"]}
    assert service.client.get("/v1/worker").status_code == 401, "an administrator is no worker"
    (listed,) = service.get("/v1/workers")["data"]
    assert (listed["id"], listed["name"], listed["state"]) == (joined["worker_id"], "box-b", "lost")
    again = join(service, made["code"])
    assert (again.status_code, again.json()["code"]) == (401, "not_authorized")
    assert "was used" in again.json()["detail"]
    stored = read(service.app.state.services.store, lambda session: session.scalars(select(JoinCode)).one())
    assert stored.digest not in made["code"] and parse_code(made["code"]).secret != stored.digest
    assert [entry[1] for entry in audited(service)] == ["worker.code", "worker.join", "login", "login", "login"]


def test_a_machine_that_has_lost_the_answer_gets_a_token_of_the_same_worker(service: ApiFixture) -> None:
    code, key, store = make_code(service), joining.new_key(), service.app.state.services.store
    first, second = join(service, code, key=key).json(), join(service, code, key=key).json()
    assert first["worker_id"] == second["worker_id"]
    owners = [
        read(store, lambda session, token=token: worker_tokens.find_worker(session, token))
        for token in (first["token"], second["token"])
    ]
    assert owners == [None, first["worker_id"]], "one token is good at a time"
    assert join(service, code).status_code == 401, "another machine has another key"
    assert len(service.get("/v1/workers")["data"]) == 1
    assert service.client.delete(f"/v1/workers/{first['worker_id']}").status_code == 204
    assert join(service, code, key=key).status_code == 404, "a removed worker does not come back"


def test_a_laptop_that_has_lost_the_answer_gets_another_token_for_the_first(service: ApiFixture) -> None:
    service.client.post("/v1/users", json={"name": "alice"})
    code, key = make_code(service, "user", "alice"), joining.new_key()
    first, second = (join(service, code, key=key).json()["token"] for _ in range(2))
    statuses = [service.client.get("/v1/me", headers=bearer(token)).status_code for token in (first, second)]
    assert statuses == [401, 200]


def test_a_worker_takes_the_jobs_of_those_users_whom_its_code_names(service: ApiFixture) -> None:
    made = service.client.post("/v1/codes", json={"kind": "worker", "name": "box-b", "users": ["bob", "alice"]})
    assert join(service, made.json()["code"]).status_code == 200
    assert [worker["users"] for worker in service.get("/v1/workers")["data"]] == [["alice", "bob"]]


def test_a_code_logs_a_user_in_with_their_own_rights(service: ApiFixture) -> None:
    assert service.client.post("/v1/users", json={"name": "alice", "role": "viewer"}).status_code == 201
    joined = join(service, make_code(service, "user", "alice")).json()
    assert (joined["kind"], joined["name"], joined["worker_id"]) == ("user", "alice", None)
    me = service.client.get("/v1/me", headers=bearer(joined["token"])).json()
    assert (me["name"], me["role"]) == ("alice", "viewer") and "jobs:write" not in me["scopes"]
    refused = service.client.post("/v1/codes", json={"kind": "user", "name": "nobody"})
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    waiting = make_code(service, "user", "alice")
    service.client.patch("/v1/users/alice", json={"disabled": True})
    assert join(service, waiting).status_code == 403


def test_a_code_that_is_late_or_of_another_service_is_refused_by_its_own_words(service: ApiFixture) -> None:
    late = make_code(service)
    write(
        service.app.state.services.store,
        lambda session: session.execute(update(JoinCode).values(expires_at=JoinCode.expires_at - 601_000_000)),
    )
    other = f"worker.ca.{'x' * 32}"
    for code, said in ((late, "too late: it is good for 10 minutes"), (other, "this service has not made the code")):
        refused = join(service, code)
        assert (refused.status_code, refused.json()["code"]) == (401, "not_authorized")
        assert said in refused.json()["detail"]


def test_a_version_that_is_too_far_away_is_refused_and_the_code_stays(service: ApiFixture) -> None:
    code = make_code(service)
    refused = join(service, code, version="0.3.0")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "0.3.0" in refused.json()["detail"] and own_version() in refused.json()["detail"]
    assert join(service, code, version="0.2.0").status_code == 200


def test_who_guesses_codes_is_stopped(service: ApiFixture) -> None:
    codes = [f"worker.ca.{number:032d}" for number in range(service.settings.max_wrong_tokens_per_minute + 1)]
    answers = [join(service, code, peer="192.0.2.9").status_code for code in codes]
    assert answers[0] == 401 and answers[-1] == 429
    assert join(service, make_code(service), peer="192.0.2.10").status_code == 200, "another address may"


def test_a_removed_workers_token_is_dead_and_its_jobs_are_queued_again(service: ApiFixture) -> None:
    joined = join(service, make_code(service)).json()
    service.worker_id = joined["worker_id"]
    job = service.submit()["id"]
    service.start(job)
    write(service.app.state.services.store, lambda session: session.execute(update(Worker).values(remote=True)))
    assert service.get(f"/v1/jobs/{job}")["state"] in {"starting", "running"}
    assert service.client.delete(f"/v1/workers/{joined['worker_id']}").status_code == 204
    assert (
        read(service.app.state.services.store, lambda session: worker_tokens.find_worker(session, joined["token"]))
        is None
    )
    assert service.get(f"/v1/jobs/{job}")["state"] == "queued"
    assert service.get("/v1/workers")["data"] == []
    assert service.client.delete(f"/v1/workers/{joined['worker_id']}").status_code == 404
    assert service.get(f"/v1/jobs/{job}/attempts")["data"][0]["worker"] == "box-a"


def test_a_worker_of_the_services_own_host_is_removed_when_it_is_lost(service: ApiFixture) -> None:
    service.start(service.submit()["id"])
    (worker,) = service.get("/v1/workers")["data"]
    refused = service.client.delete(f"/v1/workers/{worker['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    write(service.app.state.services.store, lambda session: session.execute(update(Worker).values(seen_at=0)))
    assert service.client.delete(f"/v1/workers/{worker['id']}").status_code == 204


def test_a_machine_that_joins_again_replaces_the_lost_worker_of_its_name(service: ApiFixture) -> None:
    first = join(service, make_code(service)).json()
    second = join(service, make_code(service)).json()
    assert [worker["id"] for worker in service.get("/v1/workers")["data"]] == [second["worker_id"]]
    assert (
        read(service.app.state.services.store, lambda session: worker_tokens.find_worker(session, first["token"]))
        is None
    )
