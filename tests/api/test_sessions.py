"""Sessions of browsers: the cookie, the second secret that the page sends, and links to files."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from io import BytesIO
import re
from typing import Any

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from api.auth.links import LIFETIME_S, FileLinks
from store.output.facts import NewArtifact
from store.tables import BrowserSession
from store.team.facts import digest_of
from tests.api.service import TOKEN, ApiFixture, both_databases
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.states import EndReason

SESSION = "5" * 64


class Browser:
    """A browser that is logged in as alice. It sends its cookie, and what each request names."""

    def __init__(self, service: ApiFixture) -> None:
        service.act_as("alice")
        self.service = service
        self.client = service.client
        self.token = str(self.client.headers.pop("Authorization")).removeprefix("Bearer ")
        self.csrf = self.log_in()
        self.own = {"Origin": "http://testserver", "X-CSRF-Token": self.csrf}

    @cached_property
    def job(self) -> str:
        """A job of alice's that has ended, with files."""
        service = self.service
        service.act_as("alice")
        job_id: str = service.submit()["id"]
        del self.client.headers["Authorization"]
        claim = service.start(job_id)
        saved = service.new_checkpoint(step=1, files={"state.pt": b"state"}, val_loss=0.5)
        left = service.app.state.services.store.blobs.add(BytesIO(b"left"))
        service.record(claim, checkpoints=[saved], artifacts=[NewArtifact("a b/é&?.txt", left.size, left.sha256)])
        service.end(claim, reason=EndReason.COMPLETED)
        return job_id

    @property
    def cookie_name(self) -> str:
        return self.service.app.state.services.access.cookie_name(secure=False)

    def log_in(self, token: str | None = None) -> str:
        answer = self.client.post("/v1/session", json={"token": token or self.token})
        assert answer.status_code == 200
        return answer.json()["csrf"]

    def link(self, path: str) -> str:
        made = self.client.post("/v1/links", json={"path": path}, headers=self.own)
        assert made.status_code == 201, made.text
        return made.json()["path"]

    def as_another_client(self, path: str, **headers: str) -> Any:
        """Asks without a cookie and without headers, as what follows a link does."""
        return self.another_client.get(path, headers=headers)

    @property
    def another_client(self) -> TestClient:
        """In the same event loop, as the service watches for changes of access there."""
        client = TestClient(self.service.app)
        client.portal = self.service.client.portal
        return client


@pytest.fixture
def browser(service: ApiFixture) -> Iterator[Browser]:
    yield Browser(service)
    service.client.cookies.clear()


def test_a_session_is_an_http_only_cookie_of_this_instance(browser: Browser) -> None:
    assert list(browser.client.cookies) == [browser.cookie_name]
    me = browser.client.get("/v1/me", headers=browser.own).json()
    assert (me["name"], me["role"]) == ("alice", "member")
    assert "csrf" not in me
    cookie = browser.client.post("/v1/session", json={"token": TOKEN}).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie


@quick_on_sqlite
def test_only_digests_of_a_sessions_secrets_are_stored(browser: Browser) -> None:
    cookie = browser.client.cookies[browser.cookie_name]
    with browser.service.database.read() as session:
        (row,) = session.scalars(select(BrowserSession)).all()
    assert (row.digest, row.csrf_digest) == (digest_of(cookie), digest_of(browser.csrf))


@each_row(
    ("headers", "secure"),
    [({}, False), ({"Origin": "https://testserver"}, True), ({"X-Forwarded-Proto": "https"}, False)],
)
def test_a_cookie_of_a_page_over_https_is_secure(service: ApiFixture, headers: dict[str, str], secure: bool) -> None:
    answer = service.client.post("/v1/session", json={"token": TOKEN}, headers=headers)
    cookie = answer.headers["set-cookie"]
    assert ("; secure" in cookie.lower()) == secure
    assert cookie.startswith("__Host-torchyard_" if secure else "torchyard_")


def test_a_session_over_https_is_known_behind_a_proxy_that_says_nothing_of_it(browser: Browser) -> None:
    browser.client.cookies.clear()
    page = {"Origin": "https://testserver"}
    opened = browser.client.post("/v1/session", json={"token": browser.token}, headers=page)
    name, value = re.match("(__Host-[^=]+)=([^;]+)", opened.headers["set-cookie"]).groups()  # type: ignore[union-attr]
    own = page | {"Cookie": f"{name}={value}", "X-CSRF-Token": opened.json()["csrf"]}
    assert browser.client.get("/v1/me", headers=own).json()["name"] == "alice"
    ended = browser.client.delete("/v1/session", headers=own)
    assert f'{name}=""' in ended.headers["set-cookie"]
    assert browser.client.get("/v1/me", headers=own).status_code == 401


def test_of_two_cookies_the_second_secret_says_which_is_meant(browser: Browser) -> None:
    secure = browser.service.app.state.services.access.cookie_name(secure=True)
    headers = browser.own | {"Cookie": f"{secure}=other; {browser.cookie_name}={browser.client.cookies.popitem()[1]}"}
    assert browser.client.get("/v1/me", headers=headers).status_code == 200


def test_wrong_cookies_are_limited_as_wrong_tokens_are(service: ApiFixture) -> None:
    limited = service.app.state.services.settings.max_wrong_tokens_per_minute
    name = service.app.state.services.access.cookie_name(secure=False)
    headers = {"Cookie": f"{name}=wrong", "Authorization": "", "X-CSRF-Token": "wrong"}
    codes = [service.client.get("/v1/me", headers=headers).status_code for _ in range(limited + 2)]
    assert codes == [401] * limited + [429] * 2


def test_bodies_that_are_no_login_are_limited_as_wrong_tokens_are(service: ApiFixture) -> None:
    limited = service.app.state.services.settings.max_wrong_tokens_per_minute
    codes = [service.client.post("/v1/session", json=[]).status_code for _ in range(limited + 2)]
    assert codes == [422] * limited + [429] * 2


def test_a_cookie_alone_reads_nothing(browser: Browser) -> None:
    for headers in ({}, {"Origin": "http://testserver"}, {"X-CSRF-Token": browser.csrf[:-1]}, {"X-CSRF-Token": ""}):
        for path in ("/v1/me", "/v1/jobs", f"/v1/jobs/{browser.job}/stream", f"/v1/stream?job={browser.job}"):
            refused = browser.client.get(path, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (401, "session_ended"), path
    assert browser.client.get("/v1/me", headers={"X-CSRF-Token": browser.csrf}).status_code == 200


def test_a_session_changes_things_only_for_this_services_own_pages(browser: Browser) -> None:
    body = {"trainer": "image-classification"}
    for headers in (
        {"X-CSRF-Token": browser.csrf},
        browser.own | {"Origin": "http://evil.example"},
        browser.own | {"Origin": "http://testserver:81"},
        browser.own | {"Origin": "null"},
    ):
        refused = browser.client.post("/v1/jobs", json=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), headers
    for headers in ({}, {"Origin": "http://testserver"}, browser.own | {"X-CSRF-Token": browser.csrf[:-1]}):
        refused = browser.client.post("/v1/jobs", json=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "session_ended"), headers
    assert browser.client.post("/v1/jobs", json=body, headers=browser.own).status_code == 201
    assert "access-control-allow-origin" not in browser.client.get("/v1/me", headers=browser.own).headers


def test_a_session_ends_with_logout_and_with_its_token(browser: Browser) -> None:
    token_id = browser.client.get("/v1/me", headers=browser.own).json()["token_id"]
    browser.client.delete(f"/v1/tokens/{token_id}", headers=browser.own)
    assert browser.client.get("/v1/me", headers=browser.own).status_code == 401
    own = browser.own | {"X-CSRF-Token": browser.log_in(TOKEN)}
    cookie = browser.client.cookies[browser.cookie_name]
    assert browser.client.delete("/v1/session", headers=own).status_code == 204
    old = own | {"Cookie": f"{browser.cookie_name}={cookie}"}
    assert browser.client.get("/v1/me", headers=old).status_code == 401


def test_a_login_from_another_site_or_with_a_wrong_token_opens_no_session(service: ApiFixture) -> None:
    evil = {"Origin": "http://evil.example"}
    assert service.client.post("/v1/session", json={"token": TOKEN}, headers=evil).status_code == 403
    assert service.client.post("/v1/session", json={"token": "wrong"}).status_code == 401
    assert service.client.post("/v1/session", json={}).status_code == 422
    assert not list(service.client.cookies)


def test_a_link_downloads_one_file_and_parts_of_it(browser: Browser) -> None:
    link = browser.link(f"/v1/jobs/{browser.job}/checkpoints/best/download")
    assert browser.as_another_client(link).content == b"state"
    part = browser.as_another_client(link, Range="bytes=1-2")
    assert (part.status_code, part.content) == (206, b"ta")
    assert browser.another_client.head(link).headers["content-length"] == "5"
    odd = f"/v1/jobs/{browser.job}/artifacts/a%20b/%C3%A9%26%3F.txt"
    assert browser.as_another_client(browser.link(odd)).content == b"left"
    log = browser.link(f"/v1/jobs/{browser.job}/logs/download?timestamps=true&rank=0")
    assert browser.as_another_client(log).status_code == 200


def test_a_link_opens_nothing_else(browser: Browser) -> None:
    path = f"/v1/jobs/{browser.job}/checkpoints/best/download"
    link = browser.link(path).partition("?link=")[2]
    for other in (
        f"/v1/jobs/{browser.job}/checkpoints/latest/download?link={link}",
        f"/v1/jobs/{browser.job}/logs/download?link={link}",
        f"{path}?x=1&link={link}",
        f"{path}?link={link[:-1]}{'0' if link[-1] != '0' else '1'}",
        f"{path}?link={link.replace('.', '1.', 1)}",
        f"{path}?link=",
        f"{path}?link=%00",
        f"{path}?link=%C3%A9.{SESSION}.é",
    ):
        refused = browser.as_another_client(other)
        assert (refused.status_code, refused.json()["code"]) == (401, "not_authorized"), other
    for call in (f"/v1/jobs/{browser.job}", "/v1/me"):
        made = browser.client.post("/v1/links", json={"path": call}, headers=browser.own)
        useless = made.json().get("path", call)
        assert browser.as_another_client(useless).status_code == 401


def test_a_link_ends_with_its_session_and_opens_what_its_user_may_read(browser: Browser) -> None:
    link = browser.link(f"/v1/jobs/{browser.job}/checkpoints/best/download")
    browser.service.act_as("bob")
    others = browser.service.submit()["id"]
    del browser.client.headers["Authorization"]
    foreign = browser.link(f"/v1/jobs/{others}/logs/download")
    assert browser.as_another_client(foreign).status_code == 404
    assert browser.as_another_client(link).status_code == 200
    assert browser.client.delete("/v1/session", headers=browser.own).status_code == 204
    assert browser.as_another_client(link).status_code == 401


def test_a_link_opens_a_file_of_a_model(browser: Browser) -> None:
    kept = {"name": "digits", "from": f"{browser.job}/best"}
    made = browser.client.post("/v1/models", json=kept, headers=browser.own)
    path = f"{made.headers['location']}/download"
    assert browser.as_another_client(path).status_code == 401
    for file in ("", "?file=state.pt"):
        opened = browser.as_another_client(browser.link(path + file))
        assert (opened.status_code, opened.headers["etag"]) == (200, f'"{made.json()["sha256"]}"')


def test_a_link_opens_the_use_of_the_devices_as_a_file(browser: Browser) -> None:
    path = "/v1/usage?by=label&days=30&format=csv"
    assert browser.as_another_client(path).status_code == 401
    opened = browser.as_another_client(browser.link(path))
    assert (opened.status_code, opened.headers["content-disposition"]) == (200, 'attachment; filename="usage.csv"')


def test_links_are_for_sessions_and_for_files_of_jobs(browser: Browser) -> None:
    body = {"path": f"/v1/jobs/{browser.job}/logs/download"}
    bearer = {"Authorization": f"Bearer {browser.token}"}
    assert browser.client.post("/v1/links", json=body, headers=bearer).status_code == 403
    for path in ("", "/v1/me", "/v1/usages", "https://evil.example/v1/jobs/x", "//evil.example", 5):
        assert browser.client.post("/v1/links", json={"path": path}, headers=browser.own).status_code == 422


def test_a_token_comes_before_a_link(browser: Browser) -> None:
    path = f"/v1/jobs/{browser.job}/logs/download?link=wrong"
    assert browser.as_another_client(path, Authorization=f"Bearer {browser.token}").status_code == 200


def test_a_link_is_good_for_a_minute_and_made_with_the_services_own_key() -> None:
    now = 1_000.5
    links = FileLinks("secret", clock=lambda: now)
    target, ends = links.make(SESSION, "/v1/jobs/j/files/a%20b?x=%26&link=old")
    assert datetime.fromtimestamp(ends, UTC) == datetime.fromtimestamp(1_000, UTC) + timedelta(seconds=LIFETIME_S)
    path, _, query = target.partition("?")
    link = query.rpartition("link=")[2]
    assert (path, query) == ("/v1/jobs/j/files/a%20b", f"x=%26&link={link}")

    def session_of(key: str) -> str | None:
        return FileLinks(key, clock=lambda: now).session_of(link, path="/v1/jobs/j/files/a b", query=query)

    assert (session_of("secret"), session_of("other")) == (SESSION, None)
    now = ends - 0.001
    assert session_of("secret") == SESSION
    now = ends
    assert session_of("secret") is None


def sessions_of(browser: Browser) -> list[dict[str, Any]]:
    return browser.client.get("/v1/sessions", headers=browser.own).json()["data"]


@both_databases
def test_a_user_sees_the_own_sessions_and_ends_another_of_them(browser: Browser) -> None:
    first = browser.client.cookies[browser.cookie_name]
    old = browser.own | {"Cookie": f"{browser.cookie_name}={first}"}
    browser.own = browser.own | {"X-CSRF-Token": browser.log_in()}
    newer, older = sorted(sessions_of(browser), key=lambda each: each["created_at"], reverse=True)
    assert [newer["current"], older["current"]] == [True, False]
    assert {each["address"] for each in (newer, older)} == {"testclient"}
    assert newer["token_id"] == browser.client.get("/v1/me", headers=browser.own).json()["token_id"]
    browser.client.cookies.clear()
    assert browser.client.get("/v1/me", headers=old).status_code == 200
    ended = browser.client.delete(f"/v1/sessions/{newer['id']}", headers=old)
    assert (ended.status_code, ended.content) == (204, b"")
    listed = browser.client.get("/v1/sessions", headers=old).json()["data"]
    assert [(each["id"], each["current"]) for each in listed] == [(older["id"], True)]


def test_what_names_a_session_opens_nothing_and_ends_none_of_another_user(browser: Browser) -> None:
    (own,) = sessions_of(browser)
    cookie = browser.client.cookies[browser.cookie_name]
    assert digest_of(cookie)[:32] not in own["id"]
    browser.service.act_as("bob")
    authorization = {"Authorization": browser.client.headers["Authorization"]}
    browser.service.act_as("admin")
    bootstrap = {"Authorization": browser.client.headers.pop("Authorization")}
    for others in (authorization, bootstrap):
        assert browser.another_client.get("/v1/sessions", headers=others).json()["data"] == []
        refused = browser.another_client.delete(f"/v1/sessions/{own['id']}", headers=others)
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    for wrong in (own["id"], f"ses_{'0' * 32}", "a%00b", digest_of(cookie)):
        opened = browser.another_client.get("/v1/me", headers={"Cookie": f"{browser.cookie_name}={wrong}"})
        assert opened.status_code == 401
    assert browser.client.get("/v1/me", headers=browser.own).status_code == 200


def test_the_administrators_sessions_are_listed_too(service: ApiFixture) -> None:
    csrf = service.client.post("/v1/session", json={"token": TOKEN}).json()["csrf"]
    (listed,) = service.get("/v1/sessions")["data"]
    assert (listed["token_id"], listed["current"]) == (None, False), "the request was made with the token itself"
    del service.client.headers["Authorization"]
    own = {"Origin": "http://testserver", "X-CSRF-Token": csrf}
    assert service.client.delete(f"/v1/sessions/{listed['id']}", headers=own).status_code == 204
    assert service.client.get("/v1/me", headers=own).status_code == 401


@both_databases
def test_a_session_that_is_used_says_when_to_the_minute(browser: Browser) -> None:
    def last_use() -> Any:
        with browser.service.database.read() as session:
            return session.execute(select(BrowserSession.used_at, BrowserSession.address)).one()

    before = last_use()
    assert browser.client.get("/v1/me", headers=browser.own).status_code == 200
    assert last_use() == before, "it was used within the minute"
    with browser.service.database.write() as session:
        session.execute(update(BrowserSession).values(used_at=before.used_at - 120_000_000, address="elsewhere"))
    assert browser.client.get("/v1/me", headers=browser.own).status_code == 200
    assert last_use().used_at >= before.used_at
    assert last_use().address == "testclient"
