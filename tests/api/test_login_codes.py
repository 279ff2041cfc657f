"""The one-time codes with which a browser on the service's machine logs in."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
import json
from typing import Any

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from store.tables import LoginCode
from store.team import login, stored_counts
from store.team.facts import digest_of
from tests.api.service import TOKEN, ApiFixture, both_databases
from tests.api.test_team import audited, bearer, make_token
from tests.rows import each_row
from tests.sessions import write

PAGE = {"Origin": "http://127.0.0.1:8000"}


@pytest.fixture
def local(service: ApiFixture) -> Iterator[TestClient]:
    """A program on the service's machine, without a credential."""
    with TestClient(service.app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        yield client


def make_code(local: TestClient, token: str = TOKEN) -> str:
    answer = local.post("/v1/session/codes", headers=bearer(token))
    assert answer.status_code == 201, answer.text
    return answer.json()["code"]


def log_in(local: TestClient, code: str, **headers: str) -> Any:
    local.cookies.clear()
    return local.post("/v1/session", json={"code": code}, headers={**PAGE, **headers})


def test_a_code_opens_one_session(service: ApiFixture, local: TestClient) -> None:
    made = local.post("/v1/session/codes", headers=bearer(TOKEN)).json()
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(0) < left <= timedelta(seconds=60)
    opened = log_in(local, made["code"])
    assert (opened.status_code, opened.json()["name"]) == (200, "admin")
    assert "httponly" in opened.headers["set-cookie"].lower()
    me = local.get("/v1/me?preferences=true", headers={"X-CSRF-Token": opened.json()["csrf"]}).json()
    assert {**me, "csrf": opened.json()["csrf"]} == opened.json()
    again = log_in(local, made["code"])
    assert (again.status_code, again.json()["code"]) == (401, "not_authorized")
    assert "set-cookie" not in again.headers
    assert [entry[1] for entry in audited(service)] == ["session.code", "session.open", "login"]


def test_a_code_stands_for_the_token_that_asked_for_it(service: ApiFixture, local: TestClient) -> None:
    service.act_as("alice")
    made = make_token(service, scopes=["jobs:read"])
    opened = log_in(local, make_code(local, made["token"])).json()
    assert (opened["name"], opened["scopes"]) == ("alice", ["account", "jobs:read"])
    assert opened["token_id"] == made["id"]
    own = {"X-CSRF-Token": opened["csrf"]}
    assert local.get("/v1/me", headers=own).status_code == 200
    waiting = make_code(local, made["token"])
    assert service.client.delete(f"/v1/tokens/{made['id']}").status_code == 204
    assert local.get("/v1/me", headers=own).status_code == 401, "the session ends with the token"
    assert log_in(local, waiting).status_code == 401


def test_whose_a_code_is_can_be_asked_before_it_is_spent(service: ApiFixture, local: TestClient) -> None:
    service.act_as("alice")
    code = make_code(local, make_token(service)["token"])
    before = audited(service)
    for _ in range(2):
        shown = local.post("/v1/session/codes/check", json={"code": code}, headers=PAGE)
        assert (shown.status_code, shown.json()) == (200, {"name": "alice", "role": "member"})
        assert "set-cookie" not in shown.headers
    assert audited(service) == before
    assert log_in(local, code).json()["name"] == "alice"
    spent = local.post("/v1/session/codes/check", json={"code": code}, headers=PAGE)
    assert (spent.status_code, spent.json()["code"]) == (401, "not_authorized")


def test_a_session_makes_no_code(local: TestClient) -> None:
    csrf = log_in(local, make_code(local)).json()["csrf"]
    refused = local.post("/v1/session/codes", headers={**PAGE, "X-CSRF-Token": csrf})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert local.post("/v1/session/codes", headers={"Authorization": "Bearer wrong"}).status_code == 401


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.7", {}),
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
        ("127.0.0.1", {"Host": "testserver", "Origin": "http://testserver"}),
    ],
)
def test_other_machines_and_proxies_neither_get_nor_use_a_code(
    service: ApiFixture, local: TestClient, peer: str, headers: dict[str, str]
) -> None:
    code = make_code(local)
    other = TestClient(service.app, base_url="http://127.0.0.1:8000", client=(peer, 5000))
    for refused in (
        other.post("/v1/session/codes", headers={**bearer(TOKEN), **headers}),
        other.post("/v1/session/codes/check", json={"code": code}, headers={**PAGE, **headers}),
        log_in(other, code, **headers),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert log_in(local, code).status_code == 200, "what was refused has not used it up"


def test_another_site_cannot_use_a_code(local: TestClient) -> None:
    code = make_code(local)
    evil = {"Origin": "http://evil.example"}
    assert local.post("/v1/session/codes/check", json={"code": code}, headers=evil).status_code == 403
    assert log_in(local, code, **evil).status_code == 403
    assert log_in(local, code).status_code == 200


def test_wrong_codes_are_limited_as_wrong_tokens_are(service: ApiFixture, local: TestClient) -> None:
    limited = service.app.state.services.settings.max_wrong_tokens_per_minute
    asked = [local.post("/v1/session/codes/check", json={"code": "wrong"}, headers=PAGE) for _ in range(3)]
    assert [answer.status_code for answer in asked] == [401] * 3
    assert [log_in(local, "wrong").status_code for _ in range(limited - 2)] == [401] * (limited - 3) + [429]
    assert local.get("/v1/me", headers={"Authorization": "Bearer wrong"}).status_code == 429


@each_row(
    "body", [{}, {"token": TOKEN, "code": "x"}, {"code": ""}, {"code": None}, {"code": ["x"]}, {"code": "\ud800"}, []]
)
def test_a_login_has_a_token_or_a_code(local: TestClient, body: object) -> None:
    answer = local.post("/v1/session", content=json.dumps(body), headers=PAGE)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_a_code_is_valid_for_its_time(service: ApiFixture, local: TestClient) -> None:
    code = make_code(local)
    with service.database.write() as session:
        session.execute(update(LoginCode).values(expires_at=LoginCode.expires_at - 60_000_000))
    assert log_in(local, code).status_code == 401
    make_code(local)
    with service.database.read() as session:
        assert len(session.scalars(select(LoginCode.digest)).all()) == 1, "the old one is deleted"


def test_no_code_is_stored(service: ApiFixture, local: TestClient) -> None:
    code = make_code(local)
    with service.database.read() as session:
        (row,) = session.scalars(select(LoginCode)).all()
        assert row.digest == digest_of(code)
        assert code not in str(vars(row))


def test_the_oldest_of_many_codes_ends(service: ApiFixture, local: TestClient) -> None:
    service.act_as("alice")
    other = make_code(local, make_token(service)["token"])
    made = [make_code(local) for _ in range(12)]
    with service.database.read() as session:
        left = {*session.scalars(select(LoginCode.digest))}
    assert [digest_of(code) in left for code in made] == [False] * 2 + [True] * 10
    assert log_in(local, other).status_code == 200


@both_databases
def test_of_all_who_use_a_code_at_once_one_gets_it(service: ApiFixture, local: TestClient) -> None:
    store = service.app.state.services.store
    code = make_code(local)
    with ThreadPoolExecutor(16) as pool:
        won = [*pool.map(write, [store] * 16, [login.take_code] * 16, [code] * 16)]
    assert sorted(won) == [False] * 15 + [True]


def test_who_has_written_more_than_the_quota_logs_in_a_few_times_and_then_once_a_minute(
    service: ApiFixture, local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_counts, "FREE_WRITTEN_BYTES", 0)
    service.act_as("alice")
    token = make_token(service)["token"]
    service.act_as("admin")
    service.client.put("/v1/quotas/users/alice", json={"stored_bytes": 1})
    for _ in range(2):
        assert log_in(local, make_code(local, token)).status_code == 200
    assert local.post("/v1/session", json={"token": token}, headers=PAGE).status_code == 200
    before = len(audited(service))
    answers = [local.post("/v1/session", json={"token": token}, headers=PAGE).status_code for _ in range(6)]
    answers += [local.post("/v1/session/codes", headers=bearer(token)).status_code for _ in range(6)]
    assert answers == [200] * 2 + [429] * 10
    assert len(audited(service)) == before + 2
    for _ in range(7):
        assert local.post("/v1/session", json={"token": TOKEN}, headers=PAGE).status_code == 200
