"""The origins of ports: what passes to a job's server and back, and what does not."""

from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
from pathlib import Path
import socket
from threading import Thread
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.server import ServerConnection, serve

from store.attempts.facts import Claim
from store.db.database import Database
from tests.api.browsing import Opened, Page
from tests.api.ports_worker import working
from tests.api.reach_ends import DEADLINE_S
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_thread
from torchyard.contract.states import EndReason


class JobServer(BaseHTTPRequestHandler):
    """A server of a job, which answers what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/slow":
            self._stream()
            return
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", f"http://127.0.0.1:{self.connection.getsockname()[1]}/there")
        self.send_header("Set-Cookie", "own=1; Domain=jobs.example.com; Path=/")
        self.send_header("Set-Cookie", "torchyard-origin=x")
        self.send_header("Alt-Svc", 'h2=":1"')
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (b"first", b"second"):
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def url(service: ApiFixture, tmp_path: Path, database: Database, redis_url: str) -> Iterator[str]:
    address = database.engine.url.render_as_string(hide_password=False)
    with api_thread(tmp_path, address, redis_url, max_wrong_tokens_per_minute=1000) as found:
        yield found


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    return service.start(service.submit()["id"])


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), JobServer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def tab(service: ApiFixture, url: str, claim: Claim, port: int) -> Iterator[Opened]:
    with working(service, url, claim):
        yield Page(url).open(claim.job_id, port=port)


def test_a_request_reaches_the_job_without_what_is_the_services(tab: Opened, port: int) -> None:
    tab.cookies |= {"torchyard_0123456789ab": "session", "__Host-torchyard_0123456789ab": "session", "own": "1"}
    answer = tab.send(
        "/a%2Fb?c=d%20e",
        Authorization=f"Bearer {TOKEN}",
        **{"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example", "X-Custom": "kept", "X-Hop": "1"},
        Connection="X-Hop",
    )
    assert answer.status_code == 200, answer.text
    asked = answer.json()
    assert asked["path"] == "/a%2Fb?c=d%20e"
    headers = asked["headers"]
    assert headers["cookie"] == "own=1"
    assert (headers["host"], headers["origin"]) == (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}")
    assert headers["x-custom"] == "kept"
    assert not {"authorization", "x-forwarded-host", "forwarded", "referer", "x-hop"} & headers.keys()
    assert answer.headers.get_list("set-cookie") == ["own=1; Path=/"]
    assert "alt-svc" not in answer.headers
    assert "content-security-policy" not in answer.headers
    assert tab.send("/away").headers["location"] == "/there"


def test_bodies_and_streams_pass_both_ways(tab: Opened) -> None:
    body = "x" * 3_000_000 + "y"
    assert tab.send("/", method="POST", body=body).text == json.dumps(body)[::-1]
    assert tab.send("/slow").text == "firstsecond"
    assert tab.send("/", method="HEAD").status_code == 501


def test_a_path_of_the_service_is_the_jobs_own_here(tab: Opened) -> None:
    assert tab.send("/v1/me", Authorization=f"Bearer {TOKEN}").json()["path"] == "/v1/me"
    tab.cookies = {}
    assert tab.send("/v1/me", Authorization=f"Bearer {TOKEN}").status_code == 401


def test_a_page_of_another_origin_asks_the_job_nothing(tab: Opened) -> None:
    other = "https://other.jobs.example.com"
    rows: list[tuple[str, dict[str, str]]] = [
        ("POST", {"Origin": other}),
        ("POST", {"Origin": ""}),
        ("POST", {"Origin": "null"}),
        ("GET", {"Origin": other}),
        ("GET", {"Origin": "", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
    ]
    for method, headers in rows:
        assert tab.send("/", method=method, body="x", **headers).status_code == 403, headers
    assert tab.send("/").status_code == 200
    opened = {"Origin": "", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}
    assert tab.send("/", **opened).status_code == 200, "a link to it may be followed"


def test_where_nothing_listens_the_answer_says_so(service: ApiFixture, url: str, claim: Claim) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        free = taken.getsockname()[1]
    with working(service, url, claim):
        answer = Page(url).open(claim.job_id, port=free).send("/", Accept="text/html")
    assert answer.status_code == 409
    assert f"port {free} of the job cannot be opened" in answer.text


def test_what_does_not_speak_http_is_told(service: ApiFixture, url: str, claim: Claim) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def greet() -> None:
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-x\r\n")

        thread = Thread(target=greet)
        thread.start()
        with working(service, url, claim):
            answer = Page(url).open(claim.job_id, port=server.getsockname()[1]).send("/")
        thread.join()
    assert answer.status_code == 409
    assert "does not speak HTTP" in answer.text


def test_a_websocket_passes_for_the_origins_own_page(service: ApiFixture, url: str, claim: Claim) -> None:
    def echo(connection: ServerConnection) -> None:
        assert connection.request is not None
        connection.send(connection.request.headers["Host"])
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        there = server.socket.getsockname()[1]
        with working(service, url, claim):
            opened = Page(url).open(claim.job_id, port=there)
            with pytest.raises(InvalidStatus), opened.connect("/", origin="https://other.jobs.example.com"):
                pass
            with opened.connect("/") as client:
                assert client.recv(timeout=DEADLINE_S) == f"127.0.0.1:{there}"
                for message in ("text", b"\x00bytes"):
                    client.send(message)
                    assert client.recv(timeout=DEADLINE_S) == message
        server.shutdown()
        thread.join()


def test_a_port_ends_with_its_session_and_its_attempt(service: ApiFixture, url: str, claim: Claim, port: int) -> None:
    page = Page(url)
    with working(service, url, claim):
        opened = page.open(claim.job_id, port=port)
        assert opened.send("/").status_code == 200
        (reach,) = service.get(f"/v1/jobs/{claim.job_id}/reaches")["data"]
        assert reach["kind"] == "ports"
        assert opened.send("/").status_code == 200
        assert len(service.get(f"/v1/jobs/{claim.job_id}/reaches")["data"]) == 1, "one for all requests"
        other = Page(url).open(claim.job_id, port=port)
        page.sign_out()
        assert opened.send("/").status_code == 401
    service.client.post(f"/v1/jobs/{claim.job_id}/cancel")
    service.end(claim, reason=EndReason.CANCELLED)
    assert other.send("/").status_code == 409
