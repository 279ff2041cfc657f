"""What the async client does differently from the other one: it waits without a thread. The calls are the same."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
import inspect
from pathlib import Path
from typing import TypeVar

import pytest

from tests.torchyard.client.answers import DATA, JOB, SHA256, event, job, line, page, point, serve_checkpoint, sse
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem, serving
from torchyard.client import AsyncClient, Client
from torchyard.contract.errors import NotFound, ServerError, ServerUnreachable
from torchyard.contract.job import JobState

T = TypeVar("T")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        yield server


def test_it_has_the_methods_of_the_other_client() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        public = inspect.getmembers(kind, lambda member: inspect.isfunction(member) and member.__name__[0] != "_")
        return {name: [*inspect.signature(member).parameters] for name, member in public}

    missing = {"follow_logs", "lines_before"}
    assert methods(AsyncClient) == {name: taken for name, taken in methods(Client).items() if name not in missing}


def test_a_submission_is_sent_again_with_its_key_after_a_cut(server: FakeServer) -> None:
    server.on("/v1/jobs", Answer(status=0), Answer(job(), 201))
    server.on(JOB, job())
    assert _with(server, _submitted) == "job_1"
    assert len({asked.headers["Idempotency-Key"] for asked in server.asked if asked.method == "POST"}) == 1


async def _submitted(client: AsyncClient) -> str:
    await client.get("job_1")
    return (await client.submit({"trainer": "image-classification"})).id


def test_pages_are_fetched_as_they_are_needed(server: FakeServer) -> None:
    async def listed(client: AsyncClient) -> list[str]:
        return [item.id async for item in client.list(limit=3)]

    server.on("/v1/jobs", page([job(id="job_0"), job(id="job_1")], more=True, next="c"), page([job(), job()]))
    assert _with(server, listed) == ["job_0", "job_1", "job_1"]


def test_a_stream_that_is_cut_goes_on_where_it_was(server: FakeServer) -> None:
    async def positions(client: AsyncClient) -> list[tuple[int, str]]:
        return [(item.position, item.kind) async for item in client.stream("job_1")]

    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "queued")), ("metric", 2, point("loss", 1))),
        Answer(status=0),
        problem("unavailable", 503),
        sse(("log", 4, line(1)), ("end", 4, {"state": "failed"})),
    )
    assert _with(server, positions) == [(1, "state"), (2, "metric"), (4, "log"), (4, "end")]
    assert [asked.headers.get("Last-Event-ID") for asked in server.asked] == [None, "2", "2", "2"]


def test_follow_ends_with_the_job_and_wait_asks_the_server_to_hold_its_answer(server: FakeServer) -> None:
    async def followed(client: AsyncClient) -> list[str]:
        return [type(update).__name__ async for update in client.follow("job_1", metrics=False)]

    server.on(JOB, job(state="running"), job(state="succeeded"))
    server.on(f"{JOB}/stream", sse(("log", 1, line(1)), ("end", 1, {"state": "succeeded"})))
    assert _with(server, followed) == ["JobView", "LogLine", "JobView"]
    server.on(JOB, job(state="running", version=3), job(state="failed"))
    assert _with(server, lambda client: client.wait("job_1")).state == JobState.FAILED
    assert server.asked[-1].query == {"wait": ["20"], "after_version": ["3"]}
    server.on(JOB, job(state="running"))
    with pytest.raises(TimeoutError, match="still running"):
        _with(server, lambda client: client.wait("job_1", timeout=0))


def test_a_download_that_was_cut_goes_on_where_it_was(server: FakeServer) -> None:
    serve_checkpoint(server, DATA[:10], {"Content-Length": str(len(DATA)), "Connection": "close"})
    with pytest.raises(ServerUnreachable):
        _with(server, lambda client: client.download("job_1", to="mine.pt"), patience=0.3)
    rest = {"Content-Range": f"bytes 10-{len(DATA) - 1}/{len(DATA)}"}
    serve_checkpoint(server, DATA[10:], rest, status=206)
    assert _with(server, lambda client: client.download("job_1", to="mine.pt")).read_bytes() == DATA
    assert (server.asked[-1].headers["Range"], server.asked[-1].headers["If-Range"]) == ("bytes=10-", f'"{SHA256}"')


def test_a_problem_raises_the_class_of_its_code(server: FakeServer) -> None:
    with pytest.raises(NotFound):
        _with(server, lambda client: client.get("job_1"))
    with pytest.raises(NotFound):
        _with(server, lambda client: anext(client.stream("job_1")))
    server.on(f"{JOB}/stream", sse(("log", 1, {"text": "x"})))
    with pytest.raises(ServerError):
        _with(server, lambda client: anext(client.stream("job_1")))


def _with(server: FakeServer, use: Callable[[AsyncClient], Awaitable[T]], *, patience: float = 10.0) -> T:
    async def run() -> T:
        async with AsyncClient(server.url, TOKEN, patience=patience) as client:
            return await use(client)

    return asyncio.run(run())
