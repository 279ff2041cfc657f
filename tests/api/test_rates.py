"""The limits of one caller: requests, streams, and wrong tokens."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
import select
from typing import Any

import httpx2
import pytest

from api.auth.access import Access
from api.limits.rates import Rates, SharedRates
from api.limits.streams import OpenStreams
from api.settings import Settings
from store.shared_counts import SharedCounts
from store.store import Store
from tests.api.raw import Served, get, read_answer, wait_until
from tests.api.service import SPEC, TOKEN, ApiFixture
from tests.api.serving import api_process, api_thread
from tests.approved import Approved
from tests.databases import SQLiteDatabases
from torchyard.client import Client
from torchyard.contract.errors import TooManyRequests
from torchyard.contract.states import JobState

STREAMS = 2


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases, redis_url: str) -> Iterator[Served]:
    """An API that allows a token two streams, and trusts the tests as its proxy."""
    folder = tmp_path_factory.mktemp("limited")
    settings: dict[str, Any] = {"max_streams": STREAMS, "trusted_proxies": "127.0.0.1"}
    with sqlite.migrated() as url, api_process(folder, url, redis_url, **settings) as (process, base):
        yield Served(process, base, folder)


def test_a_burst_is_allowed_and_then_the_rate(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    clock = Clock()
    rates = Rates(per_second=0.5, burst=3, clock=clock)
    for _ in range(3):
        rates.take("a", advice="slow down")
    with pytest.raises(TooManyRequests) as caught:
        rates.take("a", advice="slow down")
    assert str(caught.value) == approved("message")
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


def test_the_first_call_of_a_user_needs_no_wait_though_it_costs_a_whole_burst() -> None:
    moments = count()
    rates = Rates(per_second=0.001, burst=0.1, clock=lambda: next(moments) / 1e6)
    rates.take("ada", advice="wait")
    with pytest.raises(TooManyRequests):
        rates.take("ada", advice="wait")


def test_the_keys_that_were_not_used_longest_are_forgotten() -> None:
    rates = Rates(per_second=1, burst=1, clock=Clock())
    rates.take("first", advice="")
    for number in range(10_000):
        rates.take(str(number), advice="")
    rates.take("first", advice="")
    with pytest.raises(TooManyRequests):
        rates.take("9999", advice="")


def test_a_call_may_stand_for_many() -> None:
    clock = Clock()
    rates = Rates(per_second=1, burst=10, clock=clock)
    rates.take("a", advice="", cost=4)
    with pytest.raises(TooManyRequests) as caught:
        rates.take("a", advice="", cost=8)
    assert caught.value.retry_after == 2
    clock.now += 4
    rates.take("a", advice="", cost=25)  # more than a burst needs a full bucket, and the rest is owed
    with pytest.raises(TooManyRequests) as caught:
        rates.take("a", advice="")
    assert caught.value.retry_after == 16


class Processes:
    """The limits of two processes. Without `service` they do not know where to count together, as without Redis."""

    def __init__(self, redis_url: str, *, service: str | None) -> None:
        self.counts = [SharedCounts(redis_url, service=lambda: service) for _ in range(2)]

    def rates(self, *, per_second: float, burst: float) -> list[SharedRates]:
        return [SharedRates(counts, per_second=per_second, burst=burst) for counts in self.counts]

    def streams(self, most: int) -> list[OpenStreams]:
        return [OpenStreams(most, counts) for counts in self.counts]


async def admitted(rates: list[SharedRates], count: int, **cost: float) -> int:
    """Returns how many of `count` calls of a user are admitted, all at once and at each process in turn."""
    calls = (rates[number % len(rates)].take("a", advice="slow down", **cost) for number in range(count))
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in done} <= {type(None), TooManyRequests}
    return done.count(None)


async def is_refused(streams: OpenStreams) -> bool:
    try:
        async with streams.open("a"):
            return False
    except TooManyRequests:
        return True


@pytest.mark.parametrize("burst", [20, 2000])
def test_a_rate_is_counted_once_in_two_processes(redis_url: str, burst: int) -> None:
    rates = Processes(redis_url, service=f"svc_rates_{burst}").rates(per_second=1e-6, burst=burst)
    with asyncio.Runner() as runner:
        # What a process has drawn in advance is kept for the next calls there: a hundredth of the burst.
        first = runner.run(admitted(rates, burst))
        assert burst * 0.99 <= first <= burst
        assert first + runner.run(admitted(rates, burst)) == burst


def test_a_batch_counts_as_its_jobs_in_two_processes(redis_url: str) -> None:
    rates = Processes(redis_url, service="svc_batches").rates(per_second=1e-6, burst=1000)
    with asyncio.Runner() as runner:
        assert runner.run(admitted(rates, 4, cost=300)) == 3
        assert runner.run(admitted(rates, 200)) == 100


def test_a_user_who_is_over_the_limit_asks_redis_once(redis_url: str) -> None:
    known = ["svc_over"]
    clock = Clock()
    counts = SharedCounts(redis_url, service=lambda: known[0] if known else None)
    rates = SharedRates(counts, per_second=1e-6, burst=1, clock=clock)
    with asyncio.Runner() as runner:
        assert runner.run(admitted([rates], 3)) == 1
        known.clear()  # if it asked now, it would count by itself
        assert runner.run(admitted([rates], 3)) == 0
        clock.now += 1e7
        assert runner.run(admitted([rates], 3)) == 1


def test_without_redis_each_process_counts_by_itself(redis_url: str) -> None:
    one, two = Processes(redis_url, service=None).rates(per_second=1e-6, burst=20)
    with asyncio.Runner() as runner:
        assert runner.run(admitted([one], 40)) == 20
        assert runner.run(admitted([two], 40)) == 20


def test_by_default_a_script_sends_10000_requests_at_once_and_1000_a_second(
    tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str
) -> None:
    with sqlite.migrated() as url:
        settings = Settings(data_dir=tmp_path, database_url=url, redis_url=redis_url)
        store = Store.of(settings, program="test")
        with closing(store), asyncio.Runner() as runner:
            store.service()
            access = Access.of(settings, store, token=TOKEN)
            assert settings.max_requests_per_second == 1000
            assert runner.run(admitted([access.requests], 10_000)) == 10_000


def test_however_low_the_rate_one_request_is_admitted_and_the_end_of_access_ends_its_thread(
    tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str
) -> None:
    async def end(access: Access) -> None:
        access.close()

    with sqlite.migrated() as url:
        settings = Settings(data_dir=tmp_path, database_url=url, redis_url=redis_url, max_requests_per_second=0.001)
        store = Store.of(settings, program="test")
        with closing(store), asyncio.Runner() as runner:
            store.service()
            access = Access.of(settings, store, token=TOKEN)
            assert runner.run(admitted([access.requests], 3)) == 1
            runner.run(end(access))
            with pytest.raises(RuntimeError, match="shutdown"):
                access.counts.thread.submit(int)


def test_each_user_has_a_rate_of_their_own(service: ApiFixture) -> None:
    callers: list[str] = []
    for name in ("ada", "eve"):
        service.act_as(name)
        callers.append(str(service.client.headers["Authorization"]))
    settings = service.settings
    with api_thread(settings.data_dir, settings.database, settings.redis, max_requests_per_second=0.001) as url:
        asked = [
            httpx2.get(f"{url}/v1/me", headers={"Authorization": caller}, trust_env=False)
            for caller in (callers[0], callers[0], callers[1])
        ]
    assert [answer.status_code for answer in asked] == [200, 429, 200]


def test_an_ended_stream_makes_room(redis_url: str) -> None:
    one, two = Processes(redis_url, service="svc_streams").streams(1)

    async def watch() -> None:
        for _ in range(2):
            async with one.open("a"), one.open("b"):
                assert await is_refused(one)
                assert await is_refused(two)
        async with asyncio.timeout(60):
            while await is_refused(two):
                pass
        async with asyncio.timeout(60):
            while await is_refused(one):
                pass
        for streams in (one, two):
            streams.close()

    asyncio.run(watch())


def test_what_is_open_at_a_process_that_ends_makes_room_at_once(redis_url: str) -> None:
    one, two = Processes(redis_url, service="svc_ending").streams(1)

    async def end() -> None:
        async with one.open("a"):
            assert await is_refused(two)
            one.close()
            assert not await is_refused(two)
        two.close()

    asyncio.run(end())


def test_who_leaves_while_redis_is_asked_holds_nothing(redis_url: str) -> None:
    (streams, _) = Processes(redis_url, service="svc_leaving").streams(1)

    async def leave() -> None:
        for _ in range(20):
            opening = asyncio.ensure_future(streams.open("a").__aenter__())
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        async with asyncio.timeout(60):
            while await is_refused(streams):
                pass
        streams.close()

    asyncio.run(leave())


def test_requests_above_the_rate_get_429(tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str) -> None:
    slow: dict[str, Any] = {"max_requests_per_second": 0.01}
    with sqlite.migrated() as url, api_process(tmp_path, url, redis_url, **slow) as (process, base):
        served = Served(process, base, tmp_path)
        answers = [served.ask(get("/v1/jobs"))]
        # A process that does not know the service's id yet counts by itself, at a tenth of the rate.
        wait_until(lambda: answers.append(served.ask(get("/v1/jobs"))) or answers[-1].status == 429)
        assert {answer.status for answer in answers[:-1]} == {200}
        assert answers[-1].problem().code == "too_many_requests"
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 1000
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
        client.jobs.cancel(job.id)
        for _ in range(2 * STREAMS):  # the streams ended with the job, and each of these ends at once
            assert client.wait(job.id).state == JobState.CANCELLED
            assert [*client.jobs.stream(job.id)]


def test_a_waiting_request_counts_as_a_stream(served: Served) -> None:
    with Client(served.url, TOKEN) as client, ExitStack() as stack:
        job = client.submit(SPEC)
        waiters = [stack.enter_context(served.connect()) for _ in range(STREAMS + 1)]
        for waiter in waiters:
            waiter.sendall(get(f"/v1/jobs/{job.id}?wait=60"))
        (refused,), _, _ = select.select(waiters, [], [], 60)
        assert read_answer(refused).status == 429
        waiters.remove(refused)
        client.jobs.cancel(job.id)
        assert [read_answer(waiter).status for waiter in waiters] == [200] * STREAMS


def test_wrong_tokens_are_limited_by_address_and_valid_ones_are_not(served: Served) -> None:
    def ask(token: str, client: str) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": f"203.0.113.1, {client}"}
        return httpx2.get(f"{served.url}/v1/jobs", headers=headers, trust_env=False)

    answers = [ask("wrong", "192.0.2.7") for _ in range(10)]
    wait_until(lambda: answers.append(ask("wrong", "192.0.2.7")) or answers[-1].status_code == 429)  # one more each 6 s
    assert {answer.status_code for answer in answers[:-1]} == {401}
    assert answers[-1].json()["code"] == "too_many_requests"
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 6
    assert ask(TOKEN, "192.0.2.7").status_code == 200
    assert ask("wrong", "192.0.2.8").status_code == 401
