"""What a web server of a job can do with a visitor's cookie, which browsers send to every port of the host."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import threading
from typing import Any

import httpx2
import pytest

from tests.api.service import TOKEN
from tests.api.serving import api_thread
from tests.databases import SQLiteDatabases
from tests.servers import redis_server

JOB = "job_0197f3c2a9b47c1e8d20f6b1c4e5a703"
VALUES = {
    "job_id": JOB,
    "name": "alice",
    "owner": "alice",
    "version": "1",
    "role": "member",
    "token_id": "tok_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "session_id": "ses_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "worker_id": "wrk_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "sweep_id": "swp_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "number": "0",
    "reach_id": "rch_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "schedule_id": "sch_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "target_id": "ntf_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "media_id": "med_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "part": "image",
    "sha256": "7" * 64,
    "ref": "best",
    "path": "a.png",
}
TIMEOUT_S = 60.0
LOGINS = {("post", "/v1/session"), ("post", "/v1/session/codes/check"), ("post", "/v1/join")}
"""What needs no credential but the one in the body."""


class JobServer:
    """The web server of a job. It keeps the cookies that its visitors send."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.stolen = ""
        self.planted = ""
        """A cookie that it sets, `name=value`."""


@pytest.fixture(scope="module")
def service(sqlite: SQLiteDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    with (
        sqlite.migrated() as database_url,
        redis_server(folder) as redis_url,
        api_thread(folder, database_url, redis_url, max_wrong_tokens_per_minute=1_000_000) as url,
    ):
        yield url


@pytest.fixture
def job() -> Iterator[JobServer]:
    with job_server() as server:
        yield server


@pytest.fixture
def visitor() -> Iterator[httpx2.Client]:
    """A browser: its cookies know no port."""
    with httpx2.Client(trust_env=False, timeout=TIMEOUT_S) as browser:
        yield browser


@pytest.fixture
def thief() -> Iterator[httpx2.Client]:
    """A program of the job: it keeps no cookies of its own."""
    with httpx2.Client(trust_env=False, timeout=TIMEOUT_S) as client:
        yield client


def test_the_cookie_of_a_visitor_opens_no_call(
    service: str, job: JobServer, visitor: httpx2.Client, thief: httpx2.Client
) -> None:
    own = log_in(visitor, service)
    cookie = stolen_cookie(job, visitor)
    every = list(calls())
    assert len(every) > 50
    for secret, some in ((None, every[::7]), (cookie, every)):
        for method, path in some:
            refused = thief.request(method, service + path, headers=forged(service, job, secret), json={})
            assert refused.status_code == 401, (method, path, secret)
            assert "admin" not in refused.text
    for secret in ("", "0" * 64, *derived(cookie)):
        assert thief.get(f"{service}/v1/me", headers=forged(service, job, secret)).status_code == 401, secret
    assert visitor.get(f"{service}/v1/me", headers=own).json()["name"] == "admin"


def test_no_answer_shows_the_second_secret_again(service: str, visitor: httpx2.Client) -> None:
    own = log_in(visitor, service)
    for method, path in calls():
        if method == "get" and "stream" not in path:
            assert own["X-CSRF-Token"] not in visitor.get(service + path, headers=own).text, path


def test_a_job_gets_no_session_and_no_link_from_a_cookie(
    service: str, job: JobServer, visitor: httpx2.Client, thief: httpx2.Client
) -> None:
    log_in(visitor, service)
    headers = forged(service, job, None) if stolen_cookie(job, visitor) else {}
    for path, body in (
        ("/v1/session/codes", {}),
        ("/v1/links", {"path": f"/v1/jobs/{JOB}/logs/download"}),
        ("/v1/session", {"token": ""}),
        ("/v1/session", {"token": job.stolen.partition("=")[2]}),
        ("/v1/session", {"code": job.stolen.partition("=")[2]}),
    ):
        refused = thief.post(service + path, headers=headers, json=body)
        assert refused.status_code in {401, 422}, path
        assert "set-cookie" not in refused.headers


def test_the_cookie_of_another_account_that_a_job_plants_is_not_taken_for_the_visitors(
    service: str, job: JobServer, visitor: httpx2.Client, thief: httpx2.Client
) -> None:
    own = log_in(visitor, service)
    admin = {"Authorization": f"Bearer {TOKEN}"}
    thief.post(f"{service}/v1/users", json={"name": "mallory"}, headers=admin)
    made = thief.post(f"{service}/v1/tokens", json={"user": "mallory"}, headers=admin).json()["token"]
    log_in(thief, service, made)
    job.planted = "; ".join(f"{name}={value}" for name, value in thief.cookies.items())
    visitor.get(job.url)
    assert visitor.get(f"{service}/v1/me", headers=own).status_code == 401
    assert visitor.post(f"{service}/v1/jobs", json={}, headers=own).status_code == 401


def log_in(browser: httpx2.Client, service: str, token: str = TOKEN) -> dict[str, str]:
    """Logs in as the page does, and returns the headers that it sends with each request."""
    opened = browser.post(f"{service}/v1/session", json={"token": token}, headers={"Origin": service})
    assert opened.status_code == 200
    return {"Origin": service, "X-CSRF-Token": opened.json()["csrf"]}


def stolen_cookie(job: JobServer, visitor: httpx2.Client) -> str:
    """Returns the value of the service's cookie, which the visitor has sent to the job's server."""
    visitor.get(job.url)
    value = job.stolen.partition("=")[2]
    assert len(value) > 30
    return value


def derived(cookie: str) -> tuple[str, ...]:
    """Returns what somebody who has the cookie can compute from it."""
    texts = (cookie, f"csrf:{cookie}", f"csrf {cookie}")
    return tuple(hashlib.sha256(text.encode()).hexdigest() for text in texts)


def forged(service: str, job: JobServer, secret: str | None) -> dict[str, str]:
    headers = {"Cookie": job.stolen, "Origin": service, "Sec-Fetch-Site": "same-origin"}
    return headers if secret is None else headers | {"X-CSRF-Token": secret}


def calls() -> Generator[tuple[str, str]]:
    """Yields method and path of every call of the interface, from its own description."""
    from tests.torchyard.client.openapi import DOCUMENT  # it is made once, before the tests' processes are forked

    paths: Mapping[str, Mapping[str, Any]] = DOCUMENT["paths"]
    for path, methods in paths.items():
        for method in methods:
            if path.startswith("/v1/") and (method, path) not in LOGINS:
                yield method, path.format_map(VALUES)
    yield "get", "/metrics"
    yield "get", f"/v1/stream?job={JOB}"
    yield "get", f"/v1/jobs/{JOB}/logs/download?link=0.{'0' * 64}.{'0' * 64}"


@contextmanager
def job_server() -> Generator[JobServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            job.stolen = self.headers.get("Cookie", "")
            self.send_response(204)
            if job.planted:
                self.send_header("Set-Cookie", f"{job.planted}; Path=/")
            self.end_headers()

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Keeps the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        job = JobServer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield job
        finally:
            server.shutdown()
            thread.join()
