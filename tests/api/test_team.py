"""Users, tokens, sessions of browsers, and the audit."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
import json
import logging
import threading
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from store.db.database import in_us, now_us
from store.tables import AuditEntry, BrowserSession, Token
from store.team import audit, login, tokens
from store.team.callers import SERVICE
from store.team.facts import digest_of
from tests.api.service import TOKEN, ApiFixture, both_databases
from tests.approved import Approved
from tests.rows import each_row
from torchyard.contract.team.roles import Role


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make_token(service: ApiFixture, **body: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def log_in(service: ApiFixture, token: str) -> str:
    """Opens a session, and returns the value of its cookie."""
    answer = service.client.post("/v1/session", json={"token": token})
    service.client.cookies.clear()
    return answer.cookies[service.app.state.services.access.cookie_name(secure=False)]


def status(service: ApiFixture, token: str, path: str = "/v1/me") -> int:
    return service.client.get(path, headers=bearer(token)).status_code


def audited(service: ApiFixture) -> list[tuple[str, str, str, str]]:
    """Returns who, action, object and outcome of each entry, oldest first."""
    with service.database.read() as session:
        rows = session.scalars(select(AuditEntry).order_by(AuditEntry.id)).all()
    return [(row.who, row.action, row.object, row.outcome) for row in rows]


@both_databases
def test_a_token_is_shown_once_and_stored_as_a_digest(service: ApiFixture) -> None:
    service.act_as("alice")
    made = make_token(service, name="laptop")
    prefix, token_id, secret = made["token"].split("_", 2)
    assert (prefix, f"tok_{token_id}", len(secret)) == ("ty", made["id"], 43)
    (listed, _) = service.get("/v1/tokens")["data"]
    assert (listed["id"], listed["name"], "token" in listed) == (made["id"], "laptop", False)
    with service.database.read() as session:
        rows = session.execute(select(Token.__table__)).all()  # pyright: ignore[reportArgumentType]
    assert secret not in str(rows)
    assert service.client.get("/v1/me", headers=bearer(made["token"])).json()["token_id"] == made["id"]


def test_a_wrong_expired_or_revoked_token_is_refused(service: ApiFixture) -> None:
    made = make_token(service, name="short", lifetime="90d")["token"]
    assert status(service, made) == 200
    for wrong in (made[:-1], f"{made}x", made.replace("ty_", "tx_"), "ty_", "ty__", "", "ty_00_00", f"ty_{'0' * 32}_a"):
        assert service.client.get("/v1/me", headers=bearer(wrong)).status_code in {401, 429}, wrong
    with service.database.write() as session:
        session.execute(update(Token).values(expires_at=now_us() - 1))
    service.app.state.services.access.identities.forget()  # no token gets another time to expire but here
    assert status(service, made) == 401
    never = make_token(service, name="ci", lifetime=None)
    assert never["expires_at"] is None
    assert status(service, never["token"]) == 200
    for _ in range(2):
        assert service.client.delete(f"/v1/tokens/{never['id']}").status_code == 204
    assert status(service, never["token"]) == 401


@both_databases
def test_a_token_that_a_token_made_ends_with_it(service: ApiFixture) -> None:
    service.act_as("alice")
    first = make_token(service, lifetime="2h")
    second = service.client.post("/v1/tokens", json={"lifetime": None}, headers=bearer(first["token"])).json()
    assert second["expires_at"] == first["expires_at"]
    third = service.client.post("/v1/tokens", json={"lifetime": "1h"}, headers=bearer(second["token"])).json()
    assert third["expires_at"] < first["expires_at"]
    assert service.client.delete(f"/v1/tokens/{first['id']}").status_code == 204
    assert [status(service, made["token"]) for made in (first, second, third)] == [401] * 3
    assert service.client.get("/v1/me").status_code == 200, "the token that made the first one stays"


def test_a_token_of_another_user_outlives_the_administrators_that_made_it(service: ApiFixture) -> None:
    service.act_as("alice")
    service.act_as("root", Role.ADMIN)
    administrators = make_token(service)
    made = service.client.post("/v1/tokens", json={"user": "alice"}, headers=bearer(administrators["token"])).json()
    assert service.client.delete(f"/v1/tokens/{administrators['id']}").status_code == 204
    assert status(service, made["token"]) == 200


def test_a_narrow_token_of_an_administrator_makes_no_wider_one(service: ApiFixture) -> None:
    service.act_as("alice")
    service.act_as("root", Role.ADMIN)
    narrow = bearer(make_token(service, scopes=["account", "users", "tokens"])["token"])
    wide = service.client.post("/v1/tokens", json={"user": "alice", "scopes": ["jobs:read"]}, headers=narrow)
    assert (wide.status_code, wide.json()["code"]) == (403, "forbidden")
    made = service.client.post("/v1/tokens", json={"user": "alice"}, headers=narrow).json()
    assert made["scopes"] == ["account", "tokens", "users"]
    of_bootstrap = service.client.post("/v1/tokens", json={"user": "admin"}, headers=narrow)
    assert (of_bootstrap.status_code, of_bootstrap.json()["code"]) == (403, "forbidden")
    assert service.client.get("/v1/tokens", params={"user": "admin"}).status_code == 403


@both_databases
def test_a_user_has_a_limited_number_of_tokens_and_sessions(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 3)
    monkeypatch.setattr(login, "MAX_SESSIONS", 2)
    service.act_as("alice")
    made = [make_token(service) for _ in range(2)]
    full = service.client.post("/v1/tokens", json={})
    assert (full.status_code, full.json()["code"]) == (409, "conflict")
    assert full.json()["detail"] == approved("detail")
    service.client.delete(f"/v1/tokens/{made[0]['id']}")
    make_token(service)
    cookies = [log_in(service, made[1]["token"]) for _ in range(3)]
    with service.database.read() as session:
        stored = session.scalars(select(BrowserSession.digest)).all()
    assert {digest_of(cookie) for cookie in cookies[1:]} == set(stored)


@both_databases
@each_row(
    ("method", "path", "options", "status"),
    [
        ("POST", "/v1/session", {"json": {"token": TOKEN}, "headers": {"Origin": "http://["}}, 403),
        ("POST", "/v1/tokens", {"json": {"scopes": [[]]}}, 422),
        ("POST", "/v1/tokens", {"json": {"scopes": [{}]}}, 422),
        ("POST", "/v1/users", {"json": {"name": "x", "role": []}}, 422),
        ("POST", "/v1/users", {"json": {"name": "x", "role": {}}}, 422),
        ("DELETE", "/v1/tokens/a%00b", {}, 404),
        ("DELETE", "/v1/secrets/a%00b", {}, 404),
        ("GET", "/v1/users?after=%00", {}, 422),
        ("PATCH", "/v1/users/a%00b", {"json": {"disabled": True}}, 404),
        ("GET", "/v1/quotas/users/a%00b", {}, 404),
        ("DELETE", "/v1/quotas/users/a%00b", {}, 404),
        ("GET", "/v1/me", {"headers": {"X-Request-ID": "a" * 100, "Authorization": "Bearer nope"}}, 401),
    ],
)
def test_odd_input_gets_an_answer_that_says_what_is_wrong(
    service: ApiFixture, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    answer = service.client.request(method, path, **options)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_login_of_many_bytes_is_refused(service: ApiFixture) -> None:
    answer = service.client.post("/v1/session", json={"token": "x" * 5_000})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_only_administrators_reach_the_tokens_of_others(service: ApiFixture) -> None:
    service.act_as("bob")
    bobs = make_token(service)
    service.act_as("alice")
    assert service.client.delete(f"/v1/tokens/{bobs['id']}").status_code == 404
    assert service.client.post("/v1/tokens", json={"user": "bob"}).status_code == 403
    assert status(service, bobs["token"]) == 200
    service.act_as("admin")
    assert service.client.delete(f"/v1/tokens/{bobs['id']}").status_code == 204
    assert status(service, bobs["token"]) == 401
    assert service.client.post("/v1/tokens", json={"user": "nobody"}).status_code == 404


def test_the_last_use_is_stored_once_a_minute(service: ApiFixture) -> None:
    made = make_token(service)

    def used() -> Any:
        return next(row for row in service.get("/v1/tokens")["data"] if row["id"] == made["id"])["used_at"]

    assert used() is None
    status(service, made["token"])
    first = used()
    status(service, made["token"])
    assert first is not None
    assert used() == first
    with service.database.write() as session:
        session.execute(update(Token).values(used_at=now_us() - in_us(timedelta(minutes=2))))
    service.app.state.services.access.identities.forget()  # as after some seconds
    status(service, made["token"])
    assert used() >= first


@both_databases
def test_a_disabled_users_tokens_end_and_their_jobs_are_kept_or_cancelled(
    service: ApiFixture, approved: Approved
) -> None:
    service.act_as("alice")
    kept = service.submit()["id"]
    service.act_as("admin")
    disabled = service.client.patch("/v1/users/alice", json={"disabled": True}).json()
    assert disabled["disabled_at"] is not None
    service.act_as("alice")
    assert service.client.get("/v1/me").status_code == 401
    service.act_as("admin")
    assert service.get(f"/v1/jobs/{kept}")["state"] == "queued"
    assert service.client.patch("/v1/users/alice", json={"disabled": False}).json()["disabled_at"] is None
    service.act_as("alice")
    running = service.submit()["id"]
    service.start(running)
    service.act_as("admin")
    service.client.patch("/v1/users/alice", json={"disabled": True, "jobs": "cancel"})
    assert service.get(f"/v1/jobs/{kept}")["state"] == "cancelled"
    reason = service.get(f"/v1/jobs/{running}")["status_reason"]
    assert reason["code"] == "stopping"
    assert reason["message"] == approved("message")


def test_a_users_name_is_never_given_to_another(service: ApiFixture) -> None:
    service.act_as("alice")
    service.act_as("admin")
    again = service.client.post("/v1/users", json={"name": "alice"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    for body in ({"name": ""}, {"name": "a b"}, {"name": "x" * 65}, {"name": "x", "role": "root"}, {}, [], {"n": 1}):
        refused = service.client.post("/v1/users", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request"), body


def test_the_bootstrap_administrator_cannot_be_disabled_or_demoted(service: ApiFixture) -> None:
    for change in ({"disabled": True}, {"role": "viewer"}):
        answer = service.client.patch("/v1/users/admin", json=change)
        assert (answer.status_code, "TORCHYARD_TOKEN" in answer.json()["detail"]) == (409, True)
    assert service.get("/v1/me")["role"] == "admin"


@contextmanager
def watched_until_it_may_not(service: ApiFixture, job_id: str, token: str) -> Generator[None]:
    """Watches the job's stream. What happens in the block must end it, without an `end`."""
    ended: list[str] = []

    def watch() -> None:
        with service.client.stream("GET", f"/v1/jobs/{job_id}/stream", headers=bearer(token)) as answer:
            ended.append("".join(answer.iter_text()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    live = service.app.state.services.live
    while not (live.watched(job_id) and live.subscribed):
        assert watcher.is_alive()
    yield
    watcher.join(10)  # less than the time between two checks
    assert not watcher.is_alive()
    assert "event: end" not in ended[0]


@pytest.mark.parametrize("end", ["revoke", "disable", "role"])
def test_an_open_stream_ends_with_its_token(service: ApiFixture, end: str) -> None:
    service.act_as("alice")
    job_id = service.submit()["id"]
    made = make_token(service)
    with watched_until_it_may_not(service, job_id, made["token"]):
        service.act_as("admin")
        if end == "revoke":
            service.client.delete(f"/v1/tokens/{made['id']}")
        else:
            change = {"disabled": True} if end == "disable" else {"role": "viewer"}
            service.client.patch("/v1/users/alice", json=change)


def test_another_users_open_stream_ends_when_the_job_becomes_private(service: ApiFixture) -> None:
    service.act_as("bob")
    bobs = make_token(service)["token"]
    service.act_as("alice")
    job_id = service.submit(visibility="team")["id"]
    with watched_until_it_may_not(service, job_id, bobs):
        service.client.patch(f"/v1/jobs/{job_id}", json={"visibility": "private"})


def test_every_change_is_in_the_audit(service: ApiFixture, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service.act_as("alice")
    job_id = service.submit()["id"]
    for what in ("pause", "resume", "cancel"):
        service.client.post(f"/v1/jobs/{job_id}/{what}")
    service.client.patch(f"/v1/jobs/{job_id}", json={"visibility": "team"})
    retried = service.client.post(f"/v1/jobs/{job_id}/retry").json()["id"]
    service.client.delete(f"/v1/jobs/{job_id}")
    found = audited(service)
    assert [(action, object) for who, action, object, _ in found if who == "alice"] == [
        ("job.submit", job_id),
        ("job.pause", job_id),
        ("job.resume", job_id),
        ("job.cancel", job_id),
        ("job.change", job_id),
        ("job.retry", f"{job_id} as {retried}"),
        ("job.delete", job_id),
    ]
    assert ("admin", "user.add", "alice as member", "ok") in found
    lines = [json.loads(line.partition("audit ")[2]) for line in caplog.messages if line.startswith("audit ")]
    assert next(line["action"] for line in lines if line["who"] == "alice") == "job.submit"
    service.act_as("admin")
    entry = service.get("/v1/audit", action="job.cancel")["data"][0]
    assert (entry["who"], entry["object"], entry["outcome"]) == ("alice", job_id, "ok")
    assert entry["token_id"].startswith("tok_")
    assert entry["address"] == "testclient"
    assert entry["request_id"].startswith("req_")


def test_a_refused_change_is_not_in_the_audit_and_a_failed_login_is(service: ApiFixture) -> None:
    service.act_as("alice")
    before = audited(service)
    assert service.client.post(f"/v1/jobs/job_{'0' * 32}/cancel").status_code == 404
    assert audited(service) == before
    assert status(service, "ty_wrong_\x1b") == 401
    assert audited(service) == [*before, ("", "login", "", "not_authorized")]


@both_databases
def test_the_audit_is_searched_by_kind_outcome_and_time(service: ApiFixture) -> None:
    service.act_as("alice")
    job_id = service.submit()["id"]
    status(service, "ty_wrong")
    service.act_as("admin")

    def actions(**filters: str) -> list[str]:
        return [entry["action"] for entry in service.get("/v1/audit", **filters)["data"]]

    assert actions() == ["login", "job.submit", "token.make", "user.add"]
    assert actions(action="job") == ["job.submit"]
    assert actions(action="jo") == []
    assert actions(action="job_") == []
    assert actions(outcome="not_authorized") == ["login"]
    assert actions(outcome="ok", object=job_id) == ["job.submit"]
    times = [entry["time"] for entry in service.get("/v1/audit")["data"]]
    assert "login" in actions(**{"from": times[0]})
    assert actions(**{"to": times[0], "from": times[3]}) == actions()
    assert actions(to="2020-01-01T00:00:00Z") == actions(**{"from": "2100-01-01T00:00:00Z"}) == []


@both_databases
def test_a_search_of_the_audit_looks_at_few_entries_and_goes_on_where_it_ended(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_SEARCHED", 10)
    with service.database.write() as session:
        hour = 3_600_000_000
        first = now_us() - 100 * hour
        for number in range(45):
            done = {"who": "alice" if number in {0, 30} else "bob", "action": "job.cancel", "object": str(number)}
            rest = {"time": first + number * hour, "address": "", "outcome": "ok", "request_id": ""}
            session.execute(insert(AuditEntry).values(**done, **rest))
    pages: list[list[str]] = []
    after: str | None = None
    while not pages or after is not None:
        query = {"who": "alice", **({} if after is None else {"after": after})}
        answer = service.get("/v1/audit", **query)
        pages.append([entry["object"] for entry in answer["data"]])
        after = answer["next"]
    assert pages == [[], ["30"], [], [], ["0"]]
    times = {entry["object"]: entry["time"] for entry in service.get("/v1/audit", limit=50)["data"]}
    assert service.get("/v1/audit", who="alice", to=times["35"])["data"][0]["object"] == "30"
    recent = service.get("/v1/audit", **{"who": "alice", "from": times["36"]})
    assert (recent["data"], recent["has_more"]) == ([], False), "nothing older can match"
    beyond = service.get("/v1/audit", who="alice", after=str(10**17))
    newest = service.get("/v1/audit", who="alice", after=beyond["next"], limit=1)
    assert newest == service.get("/v1/audit", who="alice", limit=1), "what has no entries costs one page"


def test_an_audit_line_in_the_log_has_no_control_characters(
    service: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with service.database.write() as session:
        audit.add(session, SERVICE, "quota.clear", "user \n\x1b[2J\u202e\x7f")
    (line,) = (line for line in caplog.messages if line.startswith("audit "))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line.removeprefix("audit "))["object"] == "user \n\x1b[2J\u202e\x7f"


def test_failed_logins_of_an_address_are_limited_and_do_not_fill_the_audit(service: ApiFixture) -> None:
    limited = service.app.state.services.settings.max_wrong_tokens_per_minute
    codes = [status(service, f"ty_{number}_wrong") for number in range(limited + 5)]
    assert codes == [401] * limited + [429] * 5
    assert len([entry for entry in audited(service) if entry[1] == "login"]) == limited
    assert service.client.get("/v1/me").status_code == 200, "a valid token is accepted"


def test_the_audit_is_listed_in_pages_newest_first(service: ApiFixture) -> None:
    for name in ("a", "b", "c"):
        service.act_as(name, Role.VIEWER)
    service.act_as("admin")
    first = service.get("/v1/audit", limit=2, action="user.add")
    assert [entry["object"] for entry in first["data"]] == ["c as viewer", "b as viewer"]
    second = service.get("/v1/audit", limit=2, action="user.add", after=first["next"])
    assert ([entry["object"] for entry in second["data"]], second["has_more"]) == (["a as viewer"], False)
