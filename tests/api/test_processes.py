"""Several processes of the API, on one port or on several hosts: what they share, and how one parent keeps them."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
import signal
import socket
import subprocess
import sys
from typing import Any

import httpx2
import psutil
import pytest

from tests.api.bundles import Packed, packed
from tests.api.raw import wait_until
from tests.api.service import SPEC, TOKEN
from tests.api.serving import api_environment, api_process
from tests.databases import SQLiteDatabases
from tests.forked import ForkedProgram
from tests.servers import redis_server

ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True)
class Host:
    """A process of the API with a port of its own."""

    process: ForkedProgram
    url: str

    def ask(self, method: str, path: str, *, token: str = TOKEN, **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
        return httpx2.request(method, f"{self.url}{path}", headers=headers, trust_env=False, timeout=60, **more)

    def refuses(self, token: str) -> bool:
        return self.ask("GET", "/v1/me", token=token).status_code == 401


@contextmanager
def hosts(folder: Path, database_url: str, redis_url: str, **settings: Any) -> Generator[tuple[Host, Host]]:
    """Two processes that share the database, the blobs and Redis, and nothing else."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:

        def start(name: str) -> Host:
            begun = api_process(folder, database_url, redis_url, f"{name}.log", **settings)
            return Host(*stack.enter_context(begun))

        one, two = pool.map(start, ("one", "two"))
        yield one, two


@contextmanager
def together(folder: Path, database_url: str, redis_url: str, **settings: Any) -> Generator[Host]:
    """A parent with two processes on one port."""
    with api_process(folder, database_url, redis_url, api_processes=2, **settings) as started:
        host = Host(*started)
        wait_until(lambda: len(children(host)) == 2)
        yield host


def children(host: Host) -> list[psutil.Process]:
    running = (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP)
    return [child for child in psutil.Process(host.process.pid).children() if child.status() in running]


@pytest.fixture
def sqlite_url(sqlite: SQLiteDatabases) -> Iterator[str]:
    with sqlite.migrated() as url:
        yield url


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.thorough), "postgresql"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[tuple[Host, Host]]:
    """Two processes for the tests that end neither."""
    with (
        request.getfixturevalue(request.param).migrated() as url,
        hosts(tmp_path_factory.mktemp("pair"), url, redis_url) as both,
    ):
        yield both


def user_with_token(host: Host, name: str) -> dict[str, Any]:
    assert host.ask("POST", "/v1/users", json={"name": name}).status_code == 201
    return host.ask("POST", "/v1/tokens", json={"user": name}).json()


@pytest.mark.thorough
def test_a_rate_is_counted_once_and_429_says_when(tmp_path: Path, sqlite_url: str, redis_url: str) -> None:
    with hosts(tmp_path, sqlite_url, redis_url, max_requests_per_second=0.01) as (one, two):
        assert one.ask("GET", "/v1/me").status_code == 200
        refused = two.ask("GET", "/v1/me")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        seconds = int(refused.headers["Retry-After"])
        assert 0 < seconds <= 100
        assert refused.json()["detail"] == f"admin has sent too many requests; try again in {seconds} s"


@pytest.mark.thorough
def test_of_16_who_use_a_login_code_at_once_one_opens_a_session(pair: tuple[Host, Host]) -> None:
    sent = {"code": pair[0].ask("POST", "/v1/session/codes").json()["code"]}

    def log_in(number: int) -> int:
        with client("127.0.0.3") as one_of_16:
            return one_of_16.post(f"{pair[number % 2].url}/v1/session", json=sent).status_code

    with ThreadPoolExecutor(16) as pool:
        answered = [*pool.map(log_in, range(16))]
    assert answered.count(200) == 1
    assert {*answered} <= {200, 401, 429}


def test_a_code_of_one_process_is_good_at_the_other_and_so_is_its_session(pair: tuple[Host, Host]) -> None:
    one, two = pair
    sent = {"code": one.ask("POST", "/v1/session/codes").json()["code"]}
    with client() as browser:
        checked = browser.post(f"{two.url}/v1/session/codes/check", json=sent)
        assert (checked.status_code, checked.json()["name"]) == (200, "admin")
        csrf = browser.post(f"{two.url}/v1/session", json=sent).json()["csrf"]
        assert browser.get(f"{one.url}/v1/me", headers={"X-CSRF-Token": csrf}).json()["name"] == "admin"


def test_failed_logins_are_counted_once(pair: tuple[Host, Host]) -> None:
    with client("127.0.0.2") as stranger:
        wrong = {"Authorization": "Bearer wrong"}
        answers = [stranger.get(f"{pair[number % 2].url}/v1/me", headers=wrong) for number in range(18)]
        assert 10 <= [answer.status_code for answer in answers].count(401) < 18, "each for itself would allow all"
        refused = next(answer for answer in answers if answer.status_code != 401)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert 0 < int(refused.headers["Retry-After"]) <= 6
        assert {stranger.get(f"{host.url}/v1/me", headers=ADMIN).status_code for host in pair} == {200}


def test_a_revoked_token_is_refused_by_the_other_and_a_redis_that_is_away_stops_nobody(
    tmp_path: Path, sqlite_url: str
) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    with ExitStack() as stack:
        with redis_server(folder) as url:
            one, two = stack.enter_context(hosts(tmp_path, sqlite_url, url, max_streams=1))
            first, later = user_with_token(one, "ada"), one.ask("POST", "/v1/tokens", json={"user": "ada"}).json()
            assert not two.refuses(first["token"])
            assert not two.refuses(later["token"])
            assert one.ask("DELETE", f"/v1/tokens/{first['id']}").status_code == 204
            wait_until(lambda: two.refuses(first["token"]))
            job = one.ask("POST", "/v1/jobs", json=SPEC).json()["id"]
            mine = stack.enter_context(stream(one, job))
            assert status_of_stream(two, job) == 429
        # It was killed: nothing is remembered, and each process counts what is its own.
        wait_until(lambda: "each request with a personal token" in (tmp_path / "two.log").read_text())
        assert not two.refuses(later["token"])
        assert one.ask("DELETE", f"/v1/tokens/{later['id']}").status_code == 204
        assert two.refuses(later["token"])
        with stream(two, job):
            assert one.ask("GET", "/v1/me").status_code == 200
            assert status_of_stream(one, job) == 429
        with redis_server(folder):
            wait_until(lambda: status_of_stream(two, job) == 429)
            mine.close()
            wait_until(lambda: status_of_stream(two, job) == 200)


def client(address: str = "127.0.0.1") -> httpx2.Client:
    """Returns a client that connects from this address."""
    return httpx2.Client(transport=httpx2.HTTPTransport(local_address=address), trust_env=False, timeout=60)


@contextmanager
def stream(host: Host, job: str) -> Generator[httpx2.Response]:
    """Opens a stream of the job, which has begun."""
    headers = ADMIN | {"Accept": "text/event-stream"}
    url = f"{host.url}/v1/jobs/{job}/stream"
    with httpx2.stream("GET", url, headers=headers, trust_env=False, timeout=60) as answer:
        assert answer.status_code == 200
        yield answer


def status_of_stream(host: Host, job: str) -> int:
    headers = ADMIN | {"Accept": "text/event-stream"}
    url = f"{host.url}/v1/jobs/{job}/stream"
    with httpx2.stream("GET", url, headers=headers, trust_env=False, timeout=60) as answer:
        return answer.status_code


@pytest.mark.thorough
def test_streams_and_uploads_are_limited_together_and_those_of_a_killed_process_end(
    tmp_path: Path, sqlite_url: str, redis_url: str
) -> None:
    with hosts(tmp_path, sqlite_url, redis_url, max_streams=2) as (one, two), ExitStack() as stack:
        job = one.ask("POST", "/v1/jobs", json=SPEC).json()["id"]
        stack.enter_context(stream(one, job))
        with stream(two, job):
            for host in (one, two):
                refused = host.ask("GET", f"/v1/jobs/{job}?wait=60")
                assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        wait_until(lambda: status_of_stream(one, job) == 200)
        stack.enter_context(stream(two, job))
        assert status_of_stream(two, job) == 429
        first, further = begin_ten_uploads(one, two)
        stack.enter_context(upload_in_progress(one, first.url, first.params(offset=100), first.tar[100:]))
        wait_until(lambda: two.ask("GET", first.url).json()["received"] > 100)
        one.process.kill()
        received = two.ask("GET", first.url).json()["received"]
        rest = first.tar[received:]
        assert two.ask("PUT", first.url, params=first.params(offset=received), content=rest).status_code == 201
        assert two.ask("PUT", further.url, params=further.params(), content=further.tar).status_code == 201
        wait_until(lambda: status_of_stream(two, job) == 200)


def begin_ten_uploads(one: Host, two: Host) -> tuple[Packed, Packed]:
    """Sends the first 100 bytes of ten bundles. Returns the first one, and a further one that is refused."""
    for number in range(10):
        bundle = packed(seed=number)
        answer = (one, two)[number % 2].ask("PUT", bundle.url, params=bundle.params(), content=bundle.tar[:100])
        assert answer.status_code == 202
    further = packed(seed=10)
    for host in (one, two):
        refused = host.ask("PUT", further.url, params=further.params(), content=further.tar)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    return packed(seed=0), further


@contextmanager
def upload_in_progress(host: Host, path: str, params: dict[str, int], body: bytes) -> Generator[None]:
    """Sends half of the body of an upload."""
    query = "&".join(f"{name}={value}" for name, value in params.items())
    head = (f"PUT {path}?{query} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}")
    lines = (*head, f"Content-Length: {len(body)}", "", "")
    address = httpx2.URL(host.url)
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + body[: len(body) // 2])
        yield


@pytest.mark.thorough
def test_of_16_submissions_with_one_key_at_both_one_is_stored(pair: tuple[Host, Host]) -> None:
    keyed = {"Idempotency-Key": "once"}

    def submit(number: int) -> tuple[int, str]:
        answer = pair[number % 2].ask("POST", "/v1/jobs", json={**SPEC, "name": "keyed"}, headers=keyed)
        return answer.status_code, answer.json()["id"]

    with ThreadPoolExecutor(16) as pool:
        answered = {*pool.map(submit, range(16))}
    assert [status for status, _ in answered] == [201]
    assert len(pair[0].ask("GET", "/v1/jobs?name=keyed").json()["data"]) == 1
    assert [host.ask("POST", "/v1/jobs", json=SPEC, headers=keyed).status_code for host in pair] == [422, 422]


@pytest.mark.thorough
def test_a_quota_is_one_at_both_however_many_submit_at_once(pair: tuple[Host, Host]) -> None:
    token = user_with_token(pair[0], "eve")["token"]
    assert pair[0].ask("PUT", "/v1/quotas/users/eve", json={"queued": 5}).status_code == 204

    def submit(number: int) -> int:
        return pair[number % 2].ask("POST", "/v1/jobs", json=SPEC, token=token).status_code

    with ThreadPoolExecutor(16) as pool:
        answered = sorted(pool.map(submit, range(16)))
    assert answered == [201] * 5 + [403] * 11


def test_a_bundle_that_is_uploaded_at_both_at_once_is_whole(pair: tuple[Host, Host]) -> None:
    bundle = packed(seed=77, size=300_000)

    def upload(number: int) -> int:
        return pair[number % 2].ask("PUT", bundle.url, params=bundle.params(), content=bundle.tar).status_code

    with ThreadPoolExecutor(8) as pool:
        answered = {*pool.map(upload, range(8))}
    assert answered <= {200, 201, 409, 429}
    for host in pair:
        whole = host.ask("GET", f"{bundle.url}/content")
        if whole.status_code == 404:  # each was in the way of another: what arrived is kept
            received = host.ask("GET", bundle.url).json()["received"]
            rest = bundle.tar[received:]
            sent = host.ask("PUT", bundle.url, params=bundle.params(offset=received), content=rest)
            assert sent.status_code == 201
            whole = host.ask("GET", f"{bundle.url}/content")
        assert (whole.status_code, whole.content) == (200, bundle.tar)


def test_a_stream_goes_on_at_the_other_process_where_it_was(pair: tuple[Host, Host]) -> None:
    one, two = pair
    job = one.ask("POST", "/v1/jobs", json=SPEC).json()["id"]
    with stream(one, job) as answer:
        seen = next(line.partition(": ")[2] for line in answer.iter_lines() if line.startswith("id: "))
    assert two.ask("POST", f"/v1/jobs/{job}/cancel").status_code == 202
    rest = two.ask("GET", f"/v1/jobs/{job}/stream", headers={"Last-Event-ID": seen}).text
    assert {line for line in rest.splitlines() if line.startswith("id: ")} == {f"id: {int(seen) + 1}"}


def test_two_processes_serve_one_port_and_sigterm_drains_both(tmp_path: Path, sqlite_url: str, redis_url: str) -> None:
    with together(tmp_path, sqlite_url, redis_url) as host, ExitStack() as stack:
        job = host.ask("POST", "/v1/jobs", json=SPEC).json()["id"]
        streams = [stack.enter_context(stream(host, job)) for _ in range(8)]
        processes = children(host)
        host.process.send_signal(signal.SIGTERM)
        assert [b"".join(answer.iter_bytes()) != b"" for answer in streams] == [True] * 8, "each has ended in order"
        assert host.process.wait(60) == 0
        assert not any(process.is_running() for process in processes)
        assert "Traceback" not in (tmp_path / "api.log").read_text()


def test_no_process_outlives_a_killed_parent(tmp_path: Path, sqlite_url: str, redis_url: str) -> None:
    with together(tmp_path, sqlite_url, redis_url) as host:
        processes = children(host)
        processes[0].suspend()
        host.process.kill()
        psutil.wait_procs(processes, timeout=60)
        assert not any(process.is_running() for process in processes)


@pytest.mark.thorough
def test_a_killed_process_is_replaced_and_the_figures_of_all_are_summed(
    tmp_path: Path, sqlite_url: str, redis_url: str
) -> None:
    with together(tmp_path, sqlite_url, redis_url) as host:
        assert asked(host, 40) == {200}
        shown = host.ask("GET", "/metrics").text
        assert served(shown) == 40
        killed, other = children(host)
        assert any(f'process_cpu_seconds_total{{process="{each.pid}"}}' in shown for each in (killed, other))
        killed.kill()
        assert asked(host, 8) == {200}, "the other one serves meanwhile"
        wait_until(lambda: len(children(host)) == 2)
        assert other in children(host)
        assert killed not in children(host)
        assert "was killed by SIGKILL; another one starts in 0.5 s" in (tmp_path / "api.log").read_text()
        assert served(host.ask("GET", "/metrics").text) == 48


def asked(host: Host, count: int) -> set[int]:
    def ask(_: int) -> int:
        return host.ask("GET", "/v1/me").status_code

    with ThreadPoolExecutor(8) as pool:
        return {*pool.map(ask, range(count))}


def served(shown: str) -> float:
    """Returns how many requests were answered, by the figures of the service."""
    name = 'torchyard_http_request_duration_seconds_count{method="GET",route="/v1/me",status="200"} '
    return sum(float(line.removeprefix(name)) for line in shown.splitlines() if line.startswith(name))


@pytest.mark.thorough
def test_a_start_that_is_refused_ends_with_its_exit_code(tmp_path: Path, sqlite_url: str, redis_url: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    env = api_environment(folder, sqlite_url, redis_url, port=0, api_processes=2)
    argv = [sys.executable, "-P", "-m", "api"]
    with api_process(folder, sqlite_url, redis_url) as (_, url):
        assert httpx2.get(f"{url}/v1/me", headers=ADMIN, trust_env=False).status_code == 200
        wait_until(lambda: httpx2.get(f"{url}/readyz", trust_env=False).json()["database"] == "ok")
        taken = env | {"TORCHYARD_PORT": url.rpartition(":")[2]}
        done = subprocess.run(argv, env=taken, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, "Address already in use" in done.stderr) == (1, True), done.stderr
    other = tmp_path / "other"
    other.mkdir()
    foreign = env | {"TORCHYARD_DATA_DIR": str(other)}
    done = subprocess.run(argv, env=foreign, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "is not the folder of this service's blobs" in done.stderr) == (1, True), done.stderr


@pytest.mark.thorough
def test_without_a_token_the_error_is_said_once(tmp_path: Path, sqlite_url: str, redis_url: str) -> None:
    env = api_environment(tmp_path, sqlite_url, redis_url, port=0, api_processes=2)
    unset = {name: value for name, value in env.items() if name != "TORCHYARD_TOKEN"}
    argv = [sys.executable, "-P", "-m", "api"]
    done = subprocess.run(argv, env=unset, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("TORCHYARD_TOKEN is not set")) == (1, 1), done.stderr
