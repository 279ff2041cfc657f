"""The limits of one caller: requests, streams, and wrong tokens."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
import select

import httpx2
import pytest

from api.limits.rates import OpenStreams, Rates
from tests.api.raw import Served, get, read_answer
from tests.api.service import SPEC, TOKEN
from tests.api.serving import api_process
from tests.databases import SQLiteDatabases
from torchyard.client import Client
from torchyard.contract.errors import TooManyRequests
from torchyard.contract.job import JobState

STREAMS = 2


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases, redis_url: str) -> Iterator[Served]:
    """An API that allows a token two streams, and trusts the tests as its proxy."""
    folder = tmp_path_factory.mktemp("limited")
    settings = {"max_streams": STREAMS, "trusted_proxies": "127.0.0.1"}
    with sqlite.migrated() as url, api_process(folder, url, redis_url, **settings) as (process, base):
        yield Served(process, base, folder)


def test_a_burst_is_allowed_and_then_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    rates = Rates(per_second=0.5, burst=3, clock=clock)
    for _ in range(3):
        rates.take("a", advice="slow down")
    with pytest.raises(TooManyRequests, match="slow down; try again in 2 s") as caught:
        rates.take("a", advice="slow down")
    assert caught.value.retry_after == 2
    rates.take("b", advice="")
    clock.now += 2
    rates.take("a", advice="")
    with pytest.raises(TooManyRequests):
        rates.take("a", advice="")
    clock.now += 1_000
    for _ in range(3):
        rates.take("a", advice="")
    with pytest.raises(TooManyRequests):
        rates.take("a", advice="")


def test_the_keys_that_were_not_used_longest_are_forgotten() -> None:
    rates = Rates(per_second=1, burst=1, clock=Clock())
    rates.take("first", advice="")
    for number in range(10_000):
        rates.take(str(number), advice="")
    rates.take("first", advice="")
    with pytest.raises(TooManyRequests):
        rates.take("9999", advice="")


def test_an_ended_stream_makes_room() -> None:
    streams = OpenStreams(1)
    for _ in range(2):
        with streams.open("a"), streams.open("b"), pytest.raises(TooManyRequests), streams.open("a"):
            pass


def test_requests_above_the_rate_get_429(tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str) -> None:
    slow = {"max_requests_per_second": 0.01}
    with sqlite.migrated() as url, api_process(tmp_path, url, redis_url, **slow) as (process, base):
        served = Served(process, base, tmp_path)
        assert served.ask(get("/v1/jobs")).status == 200
        answer = served.ask(get("/v1/jobs"))
        assert (answer.status, answer.problem().code) == (429, "too_many_requests")
        assert 0 < int(answer.headers["Retry-After"]) <= 100
        assert served.ask(get("/healthz")).status == 200


@pytest.mark.parametrize("path", ["/stream", "?wait=60"])
def test_streams_and_waiting_requests_above_the_limit_get_429(served: Served, path: str) -> None:
    with Client(served.url, TOKEN) as client, ExitStack() as stack:
        job = client.submit(SPEC)
        for _ in range(STREAMS):
            watcher = stack.enter_context(served.connect())
            watcher.sendall(get(f"/v1/jobs/{job.id}/stream"))
            assert watcher.recv(1)
        answer = served.ask(get(f"/v1/jobs/{job.id}{path}"))
        assert (answer.status, answer.problem().code) == (429, "too_many_requests")
        assert answer.headers["Retry-After"] == "1"
        client.cancel(job.id)
        for _ in range(2 * STREAMS):  # the streams ended with the job, and each of these ends at once
            assert client.wait(job.id).state == JobState.CANCELLED
            assert [*client.stream(job.id)]


def test_a_waiting_request_counts_as_a_stream(served: Served) -> None:
    with Client(served.url, TOKEN) as client, ExitStack() as stack:
        job = client.submit(SPEC)
        waiters = [stack.enter_context(served.connect()) for _ in range(STREAMS + 1)]
        for waiter in waiters:
            waiter.sendall(get(f"/v1/jobs/{job.id}?wait=60"))
        (refused,), _, _ = select.select(waiters, [], [], 60)
        assert read_answer(refused).status == 429
        waiters.remove(refused)
        client.cancel(job.id)
        assert [read_answer(waiter).status for waiter in waiters] == [200] * STREAMS


def test_wrong_tokens_are_limited_by_address_and_valid_ones_are_not(served: Served) -> None:
    def ask(token: str, client: str) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": f"203.0.113.1, {client}"}
        return httpx2.get(f"{served.url}/v1/jobs", headers=headers, trust_env=False)

    answers = [ask("wrong", "192.0.2.7") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert answers[-1].json()["code"] == "too_many_requests"
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 6
    assert ask(TOKEN, "192.0.2.7").status_code == 200
    assert ask("wrong", "192.0.2.8").status_code == 401
