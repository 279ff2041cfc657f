"""What the test suite of both clients cannot show: their methods, cancellation, and calls in a running event loop."""

import asyncio
from contextlib import aclosing
import inspect

import pytest

from tests.torchyard.client.answers import JOB, event, job, point, sse
from tests.torchyard.client.drivers import NOUNS
from tests.torchyard.client.fake_server import TOKEN, FakeServer
import torchyard
from torchyard.client import AsyncClient, Client
from torchyard.client.client import Jobs
from torchyard.contract.errors import ServerUnreachable


def test_both_clients_have_the_same_documented_methods() -> None:
    def methods(of: object) -> dict[str, tuple[list[str], str | None]]:
        found = inspect.getmembers(type(of), lambda member: inspect.isfunction(member) and member.__name__[0] != "_")
        return {name: ([*inspect.signature(method).parameters], inspect.getdoc(method)) for name, method in found}

    with Client("http://127.0.0.1:1", TOKEN) as client:
        other = AsyncClient("http://127.0.0.1:1", TOKEN)
        pairs = {noun: (getattr(client, noun), getattr(other, noun)) for noun in NOUNS} | {"": (client, other)}
        for noun, (blocking, asynchronous) in pairs.items():
            assert methods(blocking) == methods(asynchronous), noun
            assert all(doc for _, doc in methods(blocking).values()), noun
        assert {"jobs", "sweeps", "models", "tokens", "secrets", "users", "workers"} <= {*NOUNS}


def test_the_help_of_the_blocking_client_shows_what_it_returns() -> None:
    assert str(inspect.signature(Client.get)).endswith("-> torchyard.client.handles.Job")
    assert "-> collections.abc.Generator[" in str(inspect.signature(Jobs.list))
    assert not inspect.iscoroutinefunction(Client.get)


def test_the_top_package_offers_both_clients() -> None:
    assert (torchyard.Client, torchyard.AsyncClient) == (Client, AsyncClient)
    assert {"Client", "AsyncClient", "Run", "init"} <= {*dir(torchyard)}


def test_calls_of_one_async_client_run_at_the_same_time(server: FakeServer) -> None:
    async def both() -> list[str]:
        async with AsyncClient(server.url, TOKEN) as client:
            return [found.id for found in await asyncio.gather(client.get("job_1"), client.get("job_2"))]

    server.on(JOB, job())
    server.on("/v1/jobs/job_2", job(id="job_2"))
    assert asyncio.run(both()) == ["job_1", "job_2"]


def test_a_cancelled_task_stops_repeating_its_call(server: FakeServer) -> None:
    async def cancelled() -> None:
        async with AsyncClient("http://127.0.0.1:1", TOKEN, patience=60) as client:
            waiting = asyncio.create_task(client.get("job_1"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(cancelled())
    assert server.requests == []


def test_an_iterator_that_is_closed_early_leaves_the_client_usable(server: FakeServer) -> None:
    async def used() -> str:
        async with AsyncClient(server.url, TOKEN) as client:
            async with aclosing(client.jobs.stream("job_1")) as items:
                assert (await anext(items)).position == 1
            async with aclosing(client.jobs.follow("job_1")) as updates:
                await anext(updates)
                await anext(updates)
            return (await client.get("job_1")).id

    server.on(JOB, job(state="running"))
    server.on(f"{JOB}/stream", sse(("state", 1, event(1, "running")), ("metric", 2, point("loss", 1))))
    assert asyncio.run(used()) == "job_1"


def test_the_blocking_client_works_inside_a_running_event_loop(server: FakeServer) -> None:
    async def used() -> list[int]:
        with Client(server.url, TOKEN, patience=0) as client:
            items = client.jobs.stream("job_1")
            positions = [next(items).position]
            items.close()
            with pytest.raises(ServerUnreachable):
                positions += [item.position for item in client.jobs.stream("job_1")]
            return positions

    server.on(f"{JOB}/stream", sse(("state", 1, event(1, "running"))))
    assert asyncio.run(used()) == [1]
