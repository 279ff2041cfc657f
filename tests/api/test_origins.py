"""The origins of terminals: what opens one, and what nothing and nobody else opens."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
import json
from pathlib import Path
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import update
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from api.server import loopback
from api.server.origins import OriginNames
from api.settings import Settings
from store.attempts.facts import Claim
from store.db.database import Database, in_us
from store.tables import Origin
from tests.api.browsing import Opened, Page
from tests.api.raw import wait_until
from tests.api.reach_ends import DEADLINE_S, await_other, open_socket, send_proof
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_thread
from torchyard.contract.states import EndReason

TERMINAL = {"rows": 24, "columns": 80}


@pytest.fixture
def url(service: ApiFixture, tmp_path: Path, database: Database, redis_url: str) -> Iterator[str]:
    page = tmp_path / "page/terminal"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text('<script src="./assets/x.js"></script>')
    (page / "assets/x.js").write_text("run()")
    address = database.engine.url.render_as_string(hide_password=False)
    more: dict[str, Any] = {"max_wrong_tokens_per_minute": 1000, "allowed_hosts": "*"}
    with api_thread(tmp_path, address, redis_url, page_folder=page.parent, **more) as found:
        yield found


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    return service.start(service.submit()["id"])


@pytest.fixture
def page(url: str) -> Page:
    return Page(url)


def test_a_ticket_becomes_a_cookie_of_its_origin_which_opens_the_page_and_a_shell(
    service: ApiFixture, page: Page, claim: Claim
) -> None:
    terminal = page.open(claim.job_id)
    assert re.fullmatch(r"http://[a-z2-7]{26}\.localhost:[0-9]+", terminal.origin)
    cookie = terminal.entered.headers["set-cookie"]
    assert re.fullmatch(r"torchyard-origin=[\w-]{43}; HttpOnly; Path=/; SameSite=strict", cookie)
    shown = terminal.send("/")
    assert shown.text == '<script src="./assets/x.js"></script>'
    assert "script-src 'self'; " in shown.headers["content-security-policy"]
    assert shown.headers["x-frame-options"] == "DENY"
    assert terminal.send("/assets/x.js").text == "run()"
    opened = terminal.send("/shell", method="POST", body=TERMINAL).json()
    assert (opened["meeting"], opened["job_name"]) == (1, "digits")
    with terminal.connect("/stream?meeting=1") as client, worker_of(page.url, opened) as worker:
        nonces = send_proof(client, opened, "client")
        theirs = send_proof(worker, opened, "worker")
        await_other(client, opened, nonces)
        await_other(worker, opened, theirs)
        client.send(b"ls\r")
        assert worker.recv(timeout=DEADLINE_S) == b"ls\r"
        again = terminal.send("/meetings", method="POST", body=TERMINAL).json()
        assert (again["id"], again["meeting"]) == (opened["id"], 2)
    expected = {"origin.open", "reach.open", "reach.meet", "reach.leave"}
    wait_until(lambda: expected <= {entry["action"] for entry in service.get("/v1/audit")["data"]})


def worker_of(url: str, opened: dict[str, Any]) -> ClientConnection:
    return open_socket(url, {**opened, "url": f"/v1/reaches/{opened['id']}/stream?meeting=1"}, "worker")


def test_a_ticket_is_good_once_for_its_origin_and_for_thirty_seconds(
    service: ApiFixture, page: Page, claim: Claim
) -> None:
    address = page.address(claim.job_id)
    other = page.address(claim.job_id)
    mixed = urlsplit(address)._replace(query=urlsplit(other).query).geturl()
    assert Opened(mixed).entered.status_code == 401
    assert Opened(address).entered.status_code == 200
    assert Opened(address).entered.status_code == 401
    with service.database.write() as session:
        session.execute(update(Origin).values(ticket_until=Origin.ticket_until - in_us(timedelta(seconds=31))))
    assert Opened(other).entered.status_code == 401


def test_nothing_of_the_service_is_at_an_origin_whatever_names_the_request_has(page: Page, claim: Claim) -> None:
    terminal = page.open(claim.job_id)
    token = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("/v1/me", "/v1/jobs", "/healthz", "/metrics", "/docs", "/jobs", "/assets/index.js"):
        for host in ("127.0.0.1", urlsplit(page.url).netloc):
            answer = terminal.send(path, **token, **{"X-Forwarded-Host": host, "Forwarded": f"host={host}"})
            assert answer.status_code == 404, path
    for name in ("x", "a.b", "127.0.0.1"):
        answer = terminal.send("/v1/me", **token, Host=f"{name}.localhost:{terminal.port}")
        assert answer.status_code == 401, name
    forwarded = terminal.send("/", Host=f"127.0.0.1:{terminal.port}", **{"X-Forwarded-Host": terminal.host})
    assert "run()" not in forwarded.text
    assert "assets/x.js" not in forwarded.text


def test_a_cookie_opens_its_own_origin_and_no_other(page: Page, claim: Claim) -> None:
    first, second = page.open(claim.job_id), page.open(claim.job_id)
    assert second.host != first.host
    assert first.send("/").status_code == 200
    first.cookies = second.cookies
    assert first.send("/").status_code == 401
    first.cookies = page.cookies
    assert first.send("/").status_code == 401, "the service's own cookie is no key here"


def test_a_request_of_another_origin_opens_no_shell_and_no_websocket(page: Page, claim: Claim) -> None:
    terminal, other = page.open(claim.job_id), page.open(claim.job_id)
    assert terminal.send("/shell", method="POST", body=TERMINAL).status_code == 200
    for origin in (other.origin, page.url, "null", "https" + terminal.origin.removeprefix("http")[:-1]):
        for path in ("/shell", "/meetings"):
            assert terminal.send(path, method="POST", body=TERMINAL, Origin=origin).status_code == 403
        with pytest.raises(InvalidStatus) as refused, terminal.connect("/stream?meeting=1", origin=origin):
            pass
        assert refused.value.response.status_code == 403
    assert terminal.send("/shell", method="POST", body=TERMINAL, Origin="").status_code == 403
    with pytest.raises(InvalidStatus) as absent, terminal.connect("/v1/me"):
        pass
    assert absent.value.response.status_code == 404


def test_who_may_not_reach_into_the_job_gets_no_address(service: ApiFixture, url: str, claim: Claim) -> None:
    plain = Page(url, exec=False)
    assert plain.ask(claim.job_id).status_code == 403, "its session was not opened for that"
    by_token = service.client.post(f"/v1/jobs/{claim.job_id}/origins", json={})
    assert by_token.status_code == 403
    assert service.client.post("/v1/users", json={"name": "bob", "role": "member"}).status_code == 201
    scopes = ["account", "jobs:read", "jobs:exec"]
    bob = Page(url, token=service.client.post("/v1/tokens", json={"user": "bob", "scopes": scopes}).json()["token"])
    assert bob.ask(claim.job_id).status_code == 404
    assert bob.ask(service.submit(visibility="team")["id"]).status_code == 403
    assert Page(url).ask(service.submit()["id"]).status_code == 409, "it does not run"


def test_an_origin_ends_with_its_session_and_its_attempt(service: ApiFixture, url: str, claim: Claim) -> None:
    page = Page(url)
    terminal, unopened = page.open(claim.job_id), page.address(claim.job_id)
    page.sign_out()
    assert terminal.send("/").status_code == 401
    assert Opened(unopened).entered.status_code == 401
    terminal = Page(url).open(claim.job_id)
    service.client.post(f"/v1/jobs/{claim.job_id}/cancel")
    service.end(claim, reason=EndReason.CANCELLED)
    assert terminal.send("/job").json() == {"is_running": False}
    refused = terminal.send("/shell", method="POST", body=TERMINAL)
    assert refused.status_code == 409
    assert json.loads(refused.text)["detail"].startswith("the job has ended")


def test_a_port_keeps_its_name_as_long_as_the_session(url: str, page: Page, claim: Claim) -> None:
    first, again = (urlsplit(page.address(claim.job_id, port=6006)).netloc for _ in range(2))
    assert first == again
    assert urlsplit(page.address(claim.job_id, port=6007)).netloc != first
    assert urlsplit(Page(url).address(claim.job_id, port=6006)).netloc != first


def test_a_user_has_at_most_a_hundred_origins(page: Page, claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.reaches.origins.MOST_OF_USER", 2)
    page.address(claim.job_id, port=1)
    page.address(claim.job_id)
    assert page.ask(claim.job_id).status_code == 409
    assert page.ask(claim.job_id, port=1).status_code == 201, "it is there already"


WILDCARD = "https://*.jobs.example.com:8443"


@pytest.mark.parametrize(
    ("host", "wildcard", "held", "address"),
    [
        ("127.0.0.1:8000", "", True, "http://x.localhost:8000"),
        ("localhost", "", True, "http://x.localhost"),
        ("[::1]:8000", "", True, "http://x.localhost:8000"),
        ("127.0.0.1:8000", "", False, None),
        ("yard.example.com", "", True, None),
        ("192.0.2.1:8000", "", True, None),
        ("127.0.0.1:8000", WILDCARD, False, "https://x.jobs.example.com:8443"),
        ("yard.example.com", WILDCARD, False, "https://x.jobs.example.com:8443"),
    ],
)
def test_the_address_is_below_localhost_or_the_operators_wildcard(
    host: str, wildcard: str, held: bool, address: str | None
) -> None:
    names = OriginNames(Settings(job_origins=wildcard))
    names.has_loopback = held
    scope = {"scheme": "http", "client": ("127.0.0.1", 1), "headers": [(b"host", host.encode())]}
    assert names.address_of("x", scope) == address


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"abc.jobs.example.com", "abc"),
        (b"ABC.Jobs.Example.com.:8443", "abc"),
        (b"abc.localhost:8000", "abc"),
        (b"jobs.example.com", None),
        (b"abcjobs.example.com", None),
        (b"localhost", None),
        (b"127.0.0.1", None),
    ],
)
def test_a_name_is_that_of_an_origin_by_its_end(host: bytes, name: str | None) -> None:
    names = OriginNames(Settings(job_origins=WILDCARD))
    assert names.name_in([(b"host", host), (b"x-forwarded-host", b"abc.localhost")]) == name
    assert names.name_in([(b"host", host), (b"host", b"abc.localhost")]) is None


@pytest.mark.parametrize("value", ["jobs.example.com", "https://jobs.example.com", "https://*.a/b", "ftp://*.a"])
def test_a_setting_that_is_no_wildcard_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"one `\*`"):
        Settings(job_origins=value)


def test_no_other_program_gets_the_port_on_another_address_of_loopback() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening, socket.socket(socket.AF_INET6) as other:
        held = loopback.hold([listening])
        assert held is not None
        with pytest.raises(OSError, match=r"in use|Cannot assign"):
            other.bind(("::1", listening.getsockname()[1]))
        for each in held:
            each.close()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, closing(socket.socket()) as own:
        own.bind(("127.0.0.2", taken.getsockname()[1]))
        assert loopback.hold([own]) is None
