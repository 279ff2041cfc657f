"""The HTTP server below the application: refused requests, deadlines, and sent files."""

from collections.abc import Generator, Iterator
import contextlib
from http.client import HTTPConnection
import json
from pathlib import Path
import select
import signal
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.middleware.browsers import SECURITY_HEADERS
from store.db.database import Database
from store.output.facts import NewCheckpoint
from tests.api.raw import Served, get, read_answer, wait_until
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_process
from tests.databases import SQLiteDatabases
from tests.rows import each_row
from torchyard.contract.attempts.records import Manifest, ManifestFile

BIG = 64 << 20
SHA256 = "ab" * 32
PATIENT = {"max_connections": 40}
IMPATIENT = {"head_timeout_s": 1, "body_timeout_s": 1, "stall_timeout_s": 2}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases, redis_url: str) -> Iterator[Served]:
    with service_served(tmp_path_factory.mktemp("served"), sqlite, redis_url, **PATIENT) as found:
        yield found


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases, redis_url: str) -> Iterator[Served]:
    """An API with short deadlines."""
    with service_served(tmp_path_factory.mktemp("impatient"), sqlite, redis_url, **IMPATIENT) as found:
        yield found


@contextlib.contextmanager
def service_served(folder: Path, sqlite: SQLiteDatabases, redis_url: str, **settings: object) -> Generator[Served]:
    """An API with a checkpoint to download."""
    with sqlite.migrated() as database_url:
        publish(folder, database_url, redis_url)
        with api_process(folder, database_url, redis_url, **settings) as (process, url):
            yield Served(process, url, folder)


def publish(folder: Path, database_url: str, redis_url: str) -> None:
    """Stores a job with one checkpoint, larger than any socket's buffers."""
    database = Database(database_url)
    service = ApiFixture(folder, database, redis_url)
    blob = service.app.state.services.store.blobs.path(SHA256)
    blob.parent.mkdir(parents=True)
    with blob.open("wb") as file:
        file.truncate(BIG)
        file.write(b"first")
        file.seek(-4, 2)
        file.write(b"last")
    files = [ManifestFile(path="state.pt", size=BIG, sha256=SHA256)]
    manifest = Manifest(step=1, epoch=1, end_of_epoch=True, metrics={}, files=files)
    service.record(service.start(service.submit()["id"]), checkpoints=[NewCheckpoint("epoch-1", manifest, files)])
    service.queue.close()
    database.close()


def job_of(served: Served) -> dict[str, Any]:
    return json.loads(served.ask(get("/v1/jobs")).body)["data"][0]


def download_of(served: Served) -> str:
    """Returns the path of the checkpoint's bytes."""
    return f"/v1/jobs/{job_of(served)['id']}/checkpoints/latest/download"


@each_row(
    "raw",
    [
        b"NONSENSE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    ],
)
def test_input_that_is_not_http_is_refused(served: Served, raw: bytes) -> None:
    answer = served.ask(raw)
    assert (answer.status, answer.problem().code) == (400, "malformed_http")
    assert "Traceback" not in served.log()


@each_row(
    ("raw", "status", "code"),
    [
        (get("/healthz?" + "x" * 8_200), 414, "url_too_long"),
        (get("/healthz", *(f"X-{number}: 1" for number in range(99))), 431, "headers_too_large"),
        (get("/healthz", "X-Large: " + "x" * 32_768), 431, "headers_too_large"),
        (b"GET /" + b"x" * 200_000, 414, "url_too_long"),
        (b"GET /healthz HTTP/1.1\r\nX-Endless: " + b"x" * 200_000, 431, "headers_too_large"),
    ],
)
def test_a_head_that_is_too_large_is_refused(served: Served, raw: bytes, status: int, code: str) -> None:
    answer = served.ask(raw)
    assert (answer.status, answer.problem().code) == (status, code)
    assert answer.headers["Connection"] == "close"


def test_a_head_within_the_limits_is_served(served: Served) -> None:
    many = (f"X-{number}: {'x' * 300}" for number in range(98))
    assert served.ask(get("/healthz?" + "x" * 8_000, *many)).status == 200


def test_trailers_are_not_kept(served: Served) -> None:
    chunked = get("/v1/jobs", "Transfer-Encoding: chunked", method="POST") + b"2\r\n{}\r\n0\r\n"
    assert served.ask(chunked + b"X-Trailer: x\r\n\r\n").problem().code == "invalid_spec"
    assert served.ask(chunked + b"X-Trailer: " + b"x" * 1_000_000).problem().code == "headers_too_large"


@each_row(
    ("raw", "status"),
    [
        (get("/healthz"), 200),
        (get("/nothing"), 404),
        (b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (get("/healthz", host="evil.example"), 421),
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET /" + b"x" * 200_000, 414),
    ],
)
def test_every_answer_has_the_security_headers(served: Served, raw: bytes, status: int) -> None:
    answer = served.ask(raw)
    assert answer.status == status
    for name, value in SECURITY_HEADERS:
        assert answer.headers.get_all(name.decode()) == [value.decode()]
    assert answer.headers["Date"]


def test_pipelined_requests_are_answered_in_order_up_to_a_malformed_one(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(get("/healthz") + get("/nothing") + b"NONSENSE\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert received.count(b"HTTP/1.1 ") == 2
    assert received.index(b"HTTP/1.1 200") < received.index(b"HTTP/1.1 404")


def test_a_protocol_upgrade_is_ignored(served: Served) -> None:
    for protocol in ("h2c", "websocket"):
        answer = served.ask(get("/healthz", "Connection: Upgrade", f"Upgrade: {protocol}"))
        assert answer.status == 200


def test_requests_above_the_limit_of_connections_get_503(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        hold_open(served, stack, count=PATIENT["max_connections"])
        wait_until(lambda: served.ask(get("/healthz")).status == 503)
        answer = served.ask(get("/healthz"))
        assert (answer.status, answer.problem().code) == (503, "unavailable")
        assert answer.headers["Retry-After"] == "1"
    wait_until(lambda: served.ask(get("/healthz")).status == 200)


def test_a_request_is_served_however_many_connections_send_none(served: Served) -> None:
    count = PATIENT["max_connections"] + 1
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(served.connect()) for _ in range(count)]
        assert served.ask(get("/v1/jobs")).status == 200
        assert silent[0].recv(1) == b""  # the oldest was ended
        silent[-1].sendall(get("/v1/jobs"))
        assert read_answer(silent[-1]).status == 200


def test_connections_that_wait_for_a_next_request_are_ended_oldest_first(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        kept: list[socket.socket] = []
        for _ in range(PATIENT["max_connections"] + 1):
            kept.append(stack.enter_context(served.connect()))
            kept[-1].sendall(get("/healthz"))
            assert read_answer(kept[-1]).status == 200
        assert kept[0].recv(1) == b""
        kept[-1].sendall(get("/healthz"))
        assert read_answer(kept[-1]).status == 200


def test_silent_connections_end_no_busy_one(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(served.connect())
        reader.sendall(get(download_of(served), "Connection: close"))
        assert reader.recv(1)
        for _ in range(PATIENT["max_connections"] + 1):
            stack.enter_context(served.connect())
        assert served.ask(get("/healthz")).status == 200
        assert count_rest(reader) > BIG


def test_one_address_has_a_limit_of_its_own_and_a_trusted_proxy_has_none(
    tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str
) -> None:
    for name, proxies, status in (("direct", "", 429), ("proxied", "127.0.0.0/8", 200)):
        folder = tmp_path / name
        folder.mkdir()
        limits = {"max_connections_per_address": 2, "trusted_proxies": proxies}
        with service_served(folder, sqlite, redis_url, **limits) as served, contextlib.ExitStack() as stack:
            hold_open(served, stack, count=2)
            answer = served.ask(get("/healthz"))
            assert answer.status == status
            if status == 429:
                assert answer.problem().code == "too_many_requests"
                assert answer.headers["Retry-After"] == "1"


def test_a_slow_head_gets_408_and_a_silent_connection_is_closed(impatient: Served) -> None:
    answer = impatient.ask(b"GET /healthz HTTP/1.1\r\nHost: localh")
    assert (answer.status, answer.problem().code) == (408, "request_timeout")
    assert "1 s" in answer.problem().detail
    with impatient.connect() as connection:
        assert connection.recv(1) == b""


def test_a_slow_body_is_read_and_a_stalled_one_gets_408(impatient: Served) -> None:
    post = get("/v1/jobs", "Content-Length: 20", method="POST")
    answer = impatient.ask(post + b"{")
    assert (answer.status, answer.problem().code) == (408, "request_timeout")
    with impatient.connect() as connection:
        connection.sendall(post)
        for _ in range(20):  # much longer than the deadline for one byte
            threading.Event().wait(0.2)
            connection.sendall(b"x")
        assert read_answer(connection).problem().code == "invalid_request"


def test_a_body_without_a_credential_must_be_complete_soon(impatient: Served) -> None:
    with impatient.connect() as connection:
        connection.sendall(get("/v1/session", "Content-Length: 4000", method="POST"))
        with contextlib.suppress(ConnectionError):
            for _ in range(60):  # each byte within the deadline for one
                connection.sendall(b"x")
                if select.select([connection], [], [], 0.2)[0]:
                    break
        assert read_answer(connection).problem().code == "request_timeout"


@pytest.mark.thorough
def test_an_endless_body_is_not_read_forever(impatient: Served) -> None:
    with impatient.connect() as connection:
        connection.sendall(get("/nothing", "Transfer-Encoding: chunked", method="POST"))
        assert read_answer(connection).status == 404
        with pytest.raises(ConnectionError):
            while True:
                connection.sendall(b"a\r\n0123456789\r\n")
                threading.Event().wait(0.1)


def test_an_answer_before_the_end_of_the_body_closes_the_connection(served: Served) -> None:
    host, port = urlsplit(served.url).netloc.split(":")
    with contextlib.closing(HTTPConnection(host, int(port), timeout=60)) as client:
        client.putrequest("POST", "/v1/jobs")
        client.putheader("Authorization", f"Bearer {TOKEN}")
        client.putheader("Content-Length", str(2 << 20))
        client.endheaders(b"{")
        answer = client.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (413, "close")
        answer.read()
        client.request("GET", "/healthz")  # on a new connection, as the first one ends
        assert client.getresponse().status == 200


def test_a_client_that_sends_its_whole_body_still_gets_the_answer(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(get("/v1/jobs", f"Content-Length: {16 << 20}", method="POST"))
        connection.sendall(b" " * (16 << 20))
        connection.sendall(get("/healthz"))  # not answered: the connection ends
        answer = read_answer(connection)
        assert (answer.status, answer.problem().code) == (413, "too_large")
        assert connection.recv(1) == b""


def test_a_complete_body_that_is_not_read_keeps_the_connection_open(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(get("/nothing", "Content-Length: 2", method="POST") + b"{}" + get("/healthz"))
        answer = read_answer(connection)
        assert (answer.status, answer.headers["Connection"]) == (404, None)


def test_a_download_is_sent_whole_and_in_parts(served: Served) -> None:
    whole = served.ask(get(download_of(served)))
    assert (whole.status, len(whole.body), whole.body[:5], whole.body[-4:]) == (200, BIG, b"first", b"last")
    assert whole.headers["Cache-Control"] == "private, no-cache"
    part = served.ask(get(download_of(served), f"Range: bytes={BIG - 6}-"))
    assert (part.status, part.body) == (206, b"\0\0last")
    several = served.ask(get(download_of(served), "Range: bytes=0-4, -4"))
    assert several.status == 206
    assert int(several.headers["Content-Length"]) == len(several.body)
    assert b"\r\n\r\nfirst\r\n--" in several.body
    with served.connect() as connection:
        connection.sendall(get(download_of(served), method="HEAD") + get(download_of(served), "Range: bytes=0-4"))
        head = read_answer(connection, method="HEAD")
        assert (head.status, head.headers["Content-Length"]) == (200, str(BIG))


def test_a_download_is_not_compressed_although_the_client_accepts_gzip(served: Served) -> None:
    part = served.ask(get(download_of(served), "Accept-Encoding: gzip", f"Range: bytes={BIG - 6}-"))
    assert (part.status, part.body, part.headers["Content-Encoding"]) == (206, b"\0\0last", None)
    whole = served.ask(get(download_of(served), "Accept-Encoding: gzip"))
    assert (whole.status, len(whole.body), whole.headers["Content-Encoding"]) == (200, BIG, None)


def test_aborted_downloads_leave_no_descriptor_open(served: Served) -> None:
    cut_downloads(served, 10)  # fills the pools of threads and connections
    descriptors, threads = served.descriptors(), served.threads()
    cut_downloads(served, 50)
    wait_until(lambda: served.descriptors() <= descriptors)
    assert served.threads() <= threads + 5
    assert "Traceback" not in served.log()


@pytest.mark.thorough
def test_a_stalled_reader_is_disconnected_and_a_slow_one_is_not(impatient: Served) -> None:
    request = get(download_of(impatient), "Connection: close")
    with impatient.connect(receive_buffer=65_536) as slow, impatient.connect() as still:
        slow.sendall(request)
        still.sendall(request)
        received = 0
        while "read nothing of its answer" not in impatient.log():
            received += len(slow.recv(16_384))
            threading.Event().wait(0.1)
        assert received + count_rest(slow) > BIG
        assert count_rest(still) < BIG
    assert "Traceback" not in impatient.log()
    assert impatient.log().count("read nothing of its answer") == 1


def test_others_are_served_during_a_slow_download_and_a_signal_ends_everything(
    tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str
) -> None:
    with service_served(tmp_path, sqlite, redis_url) as served, contextlib.ExitStack() as stack:
        slow, watcher, waiter, unfinished = (stack.enter_context(served.connect()) for _ in range(4))
        job = job_of(served)
        slow.sendall(get(download_of(served)))
        assert slow.recv(1)
        watcher.sendall(get(f"/v1/jobs/{job['id']}/stream?only=checkpoint"))
        assert b"event: checkpoint" in b"".join(iter(lambda: watcher.recv(1), b"}"))
        waiter.sendall(get(f"/v1/jobs/{job['id']}?wait=50&after_version={job['version']}"))
        unfinished.sendall(b"GET /healthz HTT")
        assert served.ask(get("/healthz")).status == 200
        served.process.send_signal(signal.SIGTERM)
        assert read_answer(waiter).status == 200
        assert b"event: end" not in b"".join(iter(lambda: watcher.recv(1 << 16), b""))
        assert served.process.wait(120) == 0
        assert count_rest(slow) < BIG
    assert "Traceback" not in served.log()


def hold_open(served: Served, stack: contextlib.ExitStack, *, count: int) -> list[socket.socket]:
    """Opens connections that each watch the job, and returns them once the service serves them."""
    path = f"/v1/jobs/{job_of(served)['id']}/stream"
    held = [stack.enter_context(served.connect()) for _ in range(count)]
    for connection in held:
        connection.sendall(get(path))
        assert connection.recv(1)
    return held


def cut_downloads(served: Served, count: int) -> None:
    """Aborts downloads, every second one halfway. Returns when the server has closed them all."""
    request = get(download_of(served))
    for number in range(count):
        with served.connect() as connection:
            connection.sendall(request)
            assert connection.recv(1_000)
            if number % 2:
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 22)
    wait_until(lambda: not served.holds(SHA256))


def count_rest(connection: socket.socket) -> int:
    """Returns the number of bytes until the connection ends."""
    buffer, received = bytearray(1 << 20), 0
    with contextlib.suppress(ConnectionResetError):
        while count := connection.recv_into(buffer):
            received += count
    return received
