"""Reads that may take long leave others their turns, and end when their caller leaves or may not read any more."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from api.limits import turns
from api.streams import live
from store.attempts.facts import Claim
from store.db.database import Database
from store.output import log_search, logs
from store.output.facts import NewLines
from tests.api.raw import read_answer, wait_until
from tests.api.service import ApiFixture
from tests.api.serving import api_thread
from tests.approved import Approved
from torchyard.client import Client

_HELD, _WAITING = turns.READS_PER_USER, turns.MOST_WAITING
_STORM = 40


@dataclass
class Slices:
    """The chunks that searches of one job read. Each waits until it is let go."""

    job_id: str
    begun: int = 0
    running: int = 0
    most: int = 0
    reads: Counter[str] = field(default_factory=Counter[str])
    """Reads of each job's log."""
    let_go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> None:
        with self._lock:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
        self.let_go.acquire()
        with self._lock:
            self.running -= 1


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    """A running job of ada with 200 lines in as many chunks."""
    service.act_as("bob")
    service.act_as("ada")
    claim = service.start(service.submit()["id"])
    service.record(claim, lines=[NewLines(0, "stdout", [f"line {number}"]) for number in range(200)])
    return claim


@pytest.fixture
def slices(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slices]:
    """Holds each slice of a search of ada's job. Each is a part of its own."""
    held = Slices(claim.job_id)
    original = logs.read_chunks

    def read_chunks(session: Any, job_id: str, *arguments: Any, **more: Any) -> Any:
        held.reads[job_id] += 1
        for chunk in original(session, job_id, *arguments, **more):
            if job_id == held.job_id:
                held.take()
            yield chunk

    monkeypatch.setattr(log_search.logs, "read_chunks", read_chunks)
    monkeypatch.setattr(log_search, "PART_S", 0)
    yield held
    held.let_go.release(1_000_000)


@pytest.fixture
def url(tmp_path: Path, database: Database, service: ApiFixture, claim: Claim) -> Iterator[str]:
    """The service of `service` over real connections."""
    with api_thread(
        tmp_path,
        service.settings.database_url,
        service.settings.redis_url,
        max_requests_per_second=100_000,
    ) as url:
        yield url


def token_of(service: ApiFixture, name: str) -> dict[str, str]:
    service.act_as(name)
    return {"Authorization": str(service.client.headers["Authorization"])}


@pytest.mark.thorough
def test_forty_heavy_reads_of_one_user_leave_others_their_answers(
    service: ApiFixture, url: str, claim: Claim, slices: Slices, approved: Approved
) -> None:
    ada, bob = token_of(service, "ada"), token_of(service, "bob")
    theirs = service.submit()["id"]
    path = f"{url}/v1/jobs/{claim.job_id}/logs/search?q=line&before=2"

    def search(_: int) -> httpx2.Response:
        return httpx2.get(path, headers=ada, trust_env=False, timeout=60)

    refused: list[httpx2.Response] = []
    with ThreadPoolExecutor(_STORM) as callers:
        storm = [callers.submit(search, number) for number in range(_STORM)]
        for each in storm:
            each.add_done_callback(lambda done: refused.append(done.result()))
        try:
            wait_until(lambda: len(refused) == _STORM - _HELD - _WAITING)
            assert slices.running == _HELD
            for asked in ("/v1/me", f"/v1/jobs/{theirs}/logs/search?q=x", "/v1/jobs", f"/v1/jobs/{theirs}"):
                answer = httpx2.get(url + asked, headers=bob, trust_env=False, timeout=60)
                assert answer.status_code == 200, asked
            answer = httpx2.get(f"{url}/v1/me", headers=ada, trust_env=False, timeout=60)
            assert answer.json()["name"] == "ada"
            assert len(refused) == _STORM - _HELD - _WAITING
        finally:
            slices.let_go.release(_STORM)
        answers = [each.result() for each in storm]
    assert sorted(answer.status_code for answer in answers) == [200] * (_HELD + _WAITING) + [429] * len(
        [answer for answer in answers if answer.status_code == 429]
    )
    problem = next(answer for answer in answers if answer.status_code == 429)
    assert (problem.json()["code"], problem.headers["Retry-After"]) == ("too_many_requests", "2")
    assert problem.json()["detail"] == approved("detail")
    assert slices.most == _HELD
    assert all(len(answer.json()["data"]) == 1 for answer in answers if answer.status_code == 200)


def test_a_search_ends_when_its_client_leaves(service: ApiFixture, url: str, claim: Claim, slices: Slices) -> None:
    with ask(url, f"/v1/jobs/{claim.job_id}/logs/search?q=line", token_of(service, "ada")):
        wait_until(lambda: slices.begun == 1)
    # Nobody waits for the answer any more. The slices go on one by one, until the service has noticed it.
    ended = httpx2.Client(base_url=url, headers=token_of(service, "bob"), trust_env=False)
    with ended:
        while slices.running:
            before = slices.begun
            slices.let_go.release()
            wait_until(lambda before=before: slices.running == 0 or slices.begun > before)
            assert ended.get("/v1/me").status_code == 200
    assert slices.begun < 100


def test_a_read_whose_client_leaves_the_line_is_never_begun(
    service: ApiFixture, url: str, claim: Claim, slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ended = Counter[str](), Counter[str]()
    begin = turns.Turns.begin

    async def noted(self: turns.Turns, user: str, part: Callable[[], Any]) -> Any:
        asked[user] += 1
        try:
            return await begin(self, user, part)
        finally:
            ended[user] += 1

    monkeypatch.setattr(turns.Turns, "begin", noted)
    ada = token_of(service, "ada")
    other = service.submit()["id"]
    path = f"/v1/jobs/{claim.job_id}/logs/search?q=line&before=2"
    with ask(url, path, ada) as first, ask(url, path, ada) as second:
        wait_until(lambda: (slices.running, asked["ada"]) == (_HELD, 2))
        with ask(url, f"/v1/jobs/{other}/logs", ada):
            wait_until(lambda: asked["ada"] == 3)
        wait_until(lambda: ended["ada"] == 1)
        slices.let_go.release(2)
        assert [read_answer(each).status for each in (first, second)] == [200, 200]
        last = service.submit()["id"]
        assert httpx2.get(f"{url}/v1/jobs/{last}/logs", headers=ada, trust_env=False).status_code == 200
    assert slices.reads == {claim.job_id: 2, last: 1}


def test_a_client_follows_a_search_that_was_cut_for_its_processor_time(
    service: ApiFixture, url: str, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MOST_SECONDS", 0)
    ada = token_of(service, "ada")
    path = f"{url}/v1/jobs/{claim.job_id}/logs/search?q=(line|x*)*%206&regex=true"
    part = httpx2.get(path, headers=ada, trust_env=False).json()
    assert (part["complete"], part["has_more"], part["next"], part["last_line"]) == (False, True, "1", 1)
    with Client(url, ada["Authorization"].removeprefix("Bearer ")) as client:
        found = [match.line for match in client.jobs.search_logs(claim.job_id, "line 1", before=130)]
    assert found == [2, *range(11, 21), *range(101, 130)]


@pytest.mark.parametrize("kind", ["log", pytest.param("checkpoint", marks=pytest.mark.thorough)])
def test_a_download_ends_with_the_token(
    service: ApiFixture, url: str, claim: Claim, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(live, "CHECK_S", 0)
    path = store_large(service, claim, kind)
    token = service.client.post("/v1/tokens", json={}).json()
    with ask(url, path, {"Authorization": f"Bearer {token['token']}"}, receive_buffer=4096) as connection:
        head = connection.recv(1000)
        assert b" 200 OK" in head
        assert service.client.delete(f"/v1/tokens/{token['id']}").status_code == 204
        received = received_of(connection)
    assert len(received) < _LARGE
    assert not received.endswith(b"\r\n0\r\n\r\n")
    assert httpx2.get(url + path, headers=token_of(service, "ada"), trust_env=False).content[-4:] == b"end\n"


def test_an_upload_ends_with_the_token(
    service: ApiFixture, url: str, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CHECK_S", 0)
    token = service.client.post("/v1/tokens", json={}).json()
    digest = "ab" * 32
    head = (
        f"PUT /v1/bundles/{digest}?size=100000 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token['token']}\r\nContent-Length: 100000\r\n\r\n"
    )
    with connect(url) as connection:
        connection.sendall(head.encode() + b"x" * 1000)
        wait_until(lambda: service.client.get(f"/v1/bundles/{digest}").json().get("received") == 1000)
        assert service.client.delete(f"/v1/tokens/{token['id']}").status_code == 204
        connection.sendall(b"x" * 1000)
        answer = read_answer(connection)
    assert (answer.status, answer.problem().code) == (401, "not_authorized")
    assert service.get(f"/v1/bundles/{digest}")["received"] == 1000


_LARGE = 3 * int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
"""More than a connection keeps of what was sent and not read."""


def store_large(service: ApiFixture, claim: Claim, kind: str) -> str:
    """Stores a log, or a checkpoint, larger than all buffers of a connection, and returns the path of its download."""
    if kind == "log":
        text = "x" * 16_000
        for _ in range(_LARGE // (1 << 20) + 1):
            service.record(claim, lines=[NewLines(0, "stdout", [text] * 66)])
        service.record(claim, lines=[NewLines(0, "stdout", ["end"])])
        return f"/v1/jobs/{claim.job_id}/logs/download"
    checkpoint = service.new_checkpoint(step=1, epoch=1, files={"state.pt": bytes(_LARGE - 4) + b"end\n"})
    service.record(claim, checkpoints=[checkpoint])
    return f"/v1/jobs/{claim.job_id}/checkpoints/latest/download"


def connect(url: str, *, receive_buffer: int | None = None) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(60)
    connection.connect((parts.hostname, parts.port))
    return connection


def ask(url: str, path: str, headers: dict[str, str], *, receive_buffer: int | None = None) -> socket.socket:
    """Returns a connection on which a request was sent."""
    connection = connect(url, receive_buffer=receive_buffer)
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: 127.0.0.1",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    connection.sendall("\r\n".join(lines).encode())
    return connection


def received_of(connection: socket.socket) -> bytes:
    """Returns what arrives until the server closes the connection."""
    parts: list[bytes] = []
    try:
        while data := connection.recv(1 << 20):
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)
