"""A job's stream: every stored item once, over any number of connections."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
import http.client
import json
from pathlib import Path
import random
import re
import signal
from typing import Any, Self
from urllib.parse import urlsplit

import psutil
import pytest

from api.streams import single as streams
from api.streams import stored as pages
from api.streams.live import Live
from api.streams.single import SingleStream
from api.streams.stored import SharedItems
from store.announcement import Announcement
from store.attempts.facts import Claim
from store.db.database import Database
from store.jobs import timeline
from store.output.facts import MetricPoint, NewEvent, NewLines
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_process, api_thread
from tests.api.showing import shown
from tests.rows import each_row
from tests.servers import administered, redis_server
from tests.store.fixture import store_on
from torchyard.contract.states import EndReason
from torchyard.contract.telemetry.views import LiveLine

# A test of connections does not depend on the kind of database, except for PostgreSQL's own connections.
on_sqlite = pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("databases", ["postgresql"], indirect=True)

_EVENT = re.compile("id: (.*)\nevent: (.*)\ndata: (.*)")


NO_ID = -1
"""In place of the id of an event without one."""


@dataclass(frozen=True)
class SentEvent:
    id: int
    event: str
    data: dict[str, Any]


class Watcher:
    """One connection to a job's stream, as an iterator of its events."""

    def __init__(self, url: str, job_id: str, *, after: int | None = None, query: str = "") -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        self._connection.request("GET", f"/v1/jobs/{job_id}/stream{query}", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SentEvent:
        fields: dict[str, str] = {}
        while raw := self._answer.readline():
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif fields:
                return SentEvent(int(fields.get("id", NO_ID)), fields["event"], json.loads(fields["data"]))
        raise StopIteration


@contextmanager
def watching(count: int, url: str, job_id: str) -> Generator[list[Watcher]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Watcher(url, job_id)) for _ in range(count)]


AS_ADMIN: dict[str, Any] = {"user": "admin", "check": lambda: asyncio.sleep(0)}


def parsed(raw: bytes) -> list[SentEvent]:
    """Parses the events of a stream."""
    blocks = [block for block in raw.decode().split("\n\n") if block and not block.startswith(":")]
    return [
        SentEvent(int(found[1]), found[2], json.loads(found[3]))
        for block in blocks
        if (found := _EVENT.fullmatch(block))
    ]


def batch(number: int, *, lines: int = 3) -> dict[str, Any]:
    """Returns a batch of the relay with items of each kind."""
    return {
        "points": [MetricPoint(key, number, float("nan") if number % 5 == 0 else number / 7, number) for key in "ab"],
        "lines": [NewLines(rank, "stdout", [f"{number} ü\r{line}" for line in range(lines)]) for rank in (0, None)],
        "events": [NewEvent("progress", {"step": number}, number)],
    }


def run(service: ApiFixture, claim: Claim, batches: int) -> None:
    """Stores the batches of an attempt and its end, and announces them as a worker does."""
    for number in range(batches):
        service.record(claim, **batch(number))
        service.queue.announce(Announcement(changed={claim.job_id}))
    service.end(claim, reason=EndReason.COMPLETED)
    service.queue.announce(Announcement(changed={claim.job_id}))


def stored(service: ApiFixture, job_id: str) -> list[tuple[int, str]]:
    with service.database.read() as session:
        return [(item.position, item.kind) for item in timeline.after(session, job_id, 0)]


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    return service.start(service.submit()["id"])


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[str]:
    """A Redis that no other test uses."""
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as url:
        yield url


@pytest.fixture
def url(tmp_path: Path, service: ApiFixture, redis_url: str) -> Iterator[str]:
    """An API on the service's database that takes real connections."""
    with api_thread(tmp_path, service.settings.database, redis_url) as url:
        yield url


def test_the_stream_of_a_job_that_has_ended_replays_everything_and_ends(
    service: ApiFixture, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_ITEMS", 50)
    run(service, claim, 10)
    answer = service.client.get(f"/v1/jobs/{claim.job_id}/stream")
    sent = parsed(answer.content)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [(item.id, item.event) for item in sent[:-1]] == stored(service, claim.job_id)
    assert (sent[-1].id, sent[-1].event, sent[-1].data) == (sent[-2].id, "end", {"state": "succeeded"})
    of_kind = {item.event: item.data for item in sent}
    assert set(of_kind["metric"]) == {"key", "step", "value", "time", "attempt"}
    assert set(of_kind["log"]) == {"line", "time", "attempt", "rank", "stream", "text"}
    assert of_kind["state"]["data"]["to"] == "succeeded"
    assert of_kind["progress"]["data"] == {"step": 9}
    assert "NaN" in [item.data["value"] for item in sent if item.event == "metric"]
    again = service.client.get(f"/v1/jobs/{claim.job_id}/stream", headers={"Last-Event-ID": str(sent[-1].id)})
    assert [item.event for item in parsed(again.content)] == ["end"]


def test_a_stream_resumes_after_any_event(service: ApiFixture, claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_ITEMS", 50)
    run(service, claim, 10)
    path = f"/v1/jobs/{claim.job_id}/stream"
    whole = parsed(service.client.get(path).content)
    for place in range(0, len(whole) - 1, 9):
        rest = parsed(service.client.get(path, headers={"Last-Event-ID": str(whole[place].id)}).content)
        assert rest == whole[place + 1 :]
    assert parsed(service.client.get(path, params={"after": whole[4].id}).content) == whole[5:]


def test_a_line_without_an_end_comes_without_an_id_to_who_wants_logs_and_is_not_replayed(
    service: ApiFixture, claim: Claim, url: str
) -> None:
    line = LiveLine(job_id=claim.job_id, attempt=1, rank=0, stream="stderr", text="9%")
    other = line.model_copy(update={"job_id": "job_other"})
    with ExitStack() as stack:
        first, logs, metrics = (
            stack.enter_context(Watcher(url, claim.job_id, query=query))
            for query in ("", "?only=log&only=state", "?only=metric&only=state")
        )
        begun = [[next(watcher) for _ in range(count)] for watcher, count in ((first, 3), (logs, 3), (metrics, 3))]
        assert {item.event for sent in begun for item in sent} == {"state"}
        with shown(service, [other, line]):
            assert next(first) == next(logs) == SentEvent(NO_ID, "live", line.model_dump())
        run(service, claim, 1)
        for watcher in (first, logs):
            heard = [*watcher]
            stored = next(place for place, item in enumerate(heard) if item.event == "log")
            assert all(item.data == line.model_dump() for item in heard[:stored] if item.event == "live")
            assert "live" not in {item.event for item in heard[stored:]}
        assert "live" not in {item.event for item in metrics}
    again = service.client.get(f"/v1/jobs/{claim.job_id}/stream").text
    assert "event: log" in again
    assert "event: live" not in again


def test_only_selects_kinds_of_events(service: ApiFixture, claim: Claim) -> None:
    run(service, claim, 5)
    path = f"/v1/jobs/{claim.job_id}/stream"
    whole = parsed(service.client.get(path).content)
    for kinds in (["log"], ["state", "metric"]):
        chosen = parsed(service.client.get(path, params={"only": kinds}).content)
        assert chosen == [item for item in whole if item.event in {*kinds, "end"}]


@each_row(
    ("headers", "params"),
    [({"Last-Event-ID": "x"}, {}), ({"Last-Event-ID": "-1"}, {}), ({}, {"after": "1e3"}), ({}, {"only": "weather"})],
)
def test_an_invalid_cursor_or_kind_is_refused(
    service: ApiFixture, claim: Claim, headers: dict[str, str], params: dict[str, str]
) -> None:
    answer = service.client.get(f"/v1/jobs/{claim.job_id}/stream", headers=headers, params=params)
    assert answer.status_code == 422
    assert answer.json()["code"] in {"invalid_cursor", "invalid_request"}


def test_streams_of_other_users_and_of_unknown_jobs_are_not_found(service: ApiFixture, claim: Claim) -> None:
    service.act_as("eve")
    for job_id in (claim.job_id, "job_" + "0" * 32, "nonsense"):
        assert service.client.get(f"/v1/jobs/{job_id}/stream").status_code == 404


@pytest.mark.thorough
def test_a_stream_interrupted_fifty_times_equals_an_uninterrupted_one(
    service: ApiFixture, claim: Claim, url: str
) -> None:
    def watch() -> list[SentEvent]:
        with Watcher(url, claim.job_id) as watcher:
            return list(watcher)

    chance = random.Random(7)
    sent: list[SentEvent] = []
    cuts = 0
    with ThreadPoolExecutor() as pool:
        uncut = pool.submit(watch)
        pool.submit(run, service, claim, 120)
        while not sent or sent[-1].event != "end":
            with Watcher(url, claim.job_id, after=sent[-1].id if sent else None) as watcher:
                for item in watcher:
                    sent.append(item)
                    if cuts < 50 and chance.random() < 0.15:
                        cuts += 1
                        break  # the rest of this connection is discarded
    assert cuts == 50
    assert sent == uncut.result() == watch()
    assert [(item.id, item.event) for item in sent[:-1]] == stored(service, claim.job_id)


@on_sqlite
def test_a_stream_polls_without_redis(tmp_path: Path, service: ApiFixture, claim: Claim) -> None:
    nobody = f"unix://{tmp_path}/nobody.sock"
    with api_thread(tmp_path, service.settings.database, nobody) as url, Watcher(url, claim.job_id) as watcher:
        assert [next(watcher).event for _ in range(3)] == ["state"] * 3
        run(service, claim, 5)
        assert [item.event for item in watcher][-1] == "end"


@on_sqlite
def test_a_lost_redis_subscription_does_not_interrupt_a_stream(
    tmp_path: Path, service: ApiFixture, claim: Claim, own_redis: str
) -> None:
    with api_thread(tmp_path, service.settings.database, own_redis) as url, Watcher(url, claim.job_id) as watcher:
        assert [next(watcher).event for _ in range(3)] == ["state"] * 3
        with administered(own_redis) as client:
            client.client_kill_filter(_type="pubsub")
        run(service, claim, 5)
        assert [item.event for item in watcher][-1] == "end"


@on_postgresql
def test_many_watchers_share_a_subscription_and_hold_no_thread(
    tmp_path: Path, service: ApiFixture, claim: Claim, own_redis: str
) -> None:
    with (
        api_process(tmp_path, service.settings.database, own_redis, max_streams=100) as (process, url),
        watching(70, url, claim.job_id) as watchers,
    ):
        for watcher in watchers:
            assert [next(watcher).event for _ in range(3)] == ["state"] * 3
        with administered(own_redis) as client:
            assert len(client.client_list(_type="pubsub")) == 1
        assert psutil.Process(process.pid).num_threads() < 60
        run(service, claim, 3)
        endings = [list(watcher) for watcher in watchers]
        assert all(ending == endings[0] for ending in endings)
        assert endings[0][-1].event == "end"


@on_sqlite
def test_a_watcher_that_reads_nothing_costs_little_memory(tmp_path: Path, service: ApiFixture, claim: Claim) -> None:
    for _ in range(8):
        service.record(claim, lines=[NewLines(0, "stdout", ["x" * 16_000] * 100)])
    service.end(claim, reason=EndReason.COMPLETED)
    with api_process(tmp_path, service.settings.database, service.settings.redis) as (process, url):
        with Watcher(url, claim.job_id, query="?only=state") as watcher:
            assert len(list(watcher)) == 5
        before = psutil.Process(process.pid).memory_info().rss
        with watching(10, url, claim.job_id), Watcher(url, claim.job_id) as watcher:
            assert sum(item.event == "log" for item in watcher) == 800
            assert psutil.Process(process.pid).memory_info().rss - before < 64 << 20


@pytest.mark.thorough
@on_sqlite
def test_watchers_do_not_delay_a_shutdown(tmp_path: Path, service: ApiFixture, claim: Claim, redis_url: str) -> None:
    with (
        api_process(tmp_path, service.settings.database, redis_url) as (process, url),
        watching(20, url, claim.job_id) as watchers,
    ):
        for watcher in watchers:
            next(watcher)
        process.send_signal(signal.SIGTERM)
        # Each answer is complete: an interrupted one would raise IncompleteRead.
        assert [[item.event for item in watcher] for watcher in watchers] == [["state"] * 2] * 20
        assert process.wait(120) == 0
    assert "Traceback" not in (tmp_path / "api.log").read_text()


async def collect(stream: AsyncGenerator[bytes], until: Callable[[bytes], bool]) -> bytes:
    raw = b""
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            raw += chunk
            if until(raw):
                break
    return raw


def test_a_stream_without_events_sends_heartbeats(
    monkeypatch: pytest.MonkeyPatch, database: Database, service: ApiFixture, claim: Claim
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)

    async def watch() -> bytes:
        live = Live(service.settings.redis, service=service.app.state.services.store.service)
        stream = SingleStream(store_on(database), live, SharedItems()).events(
            claim.job_id, after=3, kinds=frozenset(), **AS_ADMIN
        )
        raw = await collect(stream, lambda raw: raw.count(b": heartbeat\n\n") == 2)
        live.close()
        return raw

    assert asyncio.run(watch()) == b": heartbeat\n\n" * 2


@pytest.mark.thorough
def test_the_watchers_of_a_job_share_each_page(
    monkeypatch: pytest.MonkeyPatch, database: Database, service: ApiFixture, claim: Claim
) -> None:
    run(service, claim, 100)
    read = counted_reads(monkeypatch)

    async def watch() -> list[bytes]:
        live = Live(service.settings.redis, service=service.app.state.services.store.service)
        stream = SingleStream(store_on(database), live, SharedItems())
        sent = await asyncio.gather(
            *(
                collect(stream.events(claim.job_id, after=0, kinds=frozenset(), **AS_ADMIN), lambda _: False)
                for _ in range(50)
            )
        )
        live.close()
        return sent

    first, *others = asyncio.run(watch())
    assert all(other == first for other in others)
    assert parsed(first)[-1].event == "end"
    assert len(read) == len(set(read)) < 10


def test_pages_that_are_read_several_times_at_once_are_cached(
    monkeypatch: pytest.MonkeyPatch, database: Database, service: ApiFixture, claim: Claim
) -> None:
    run(service, claim, 20)
    monkeypatch.setattr(pages, "CACHE_BYTES", 40_000)
    monkeypatch.setattr(streams, "MOST_ITEMS", 100)
    read = counted_reads(monkeypatch)

    async def watch() -> int:
        live = Live(service.settings.redis, service=service.app.state.services.store.service)
        stream = SingleStream(store_on(database), live, SharedItems())

        def watcher() -> asyncio.Task[bytes]:
            events = stream.events(claim.job_id, after=0, kinds=frozenset(), **AS_ADMIN)
            return asyncio.create_task(collect(events, lambda _: False))

        watchers: list[asyncio.Task[bytes]] = []
        for _ in range(5):
            live.announcements += 1  # later watchers do not share a read that began before it
            watchers.append(watcher())
            await asyncio.sleep(0)
        await asyncio.gather(*watchers)
        before = len(read)
        await watcher()
        live.close()
        return len(read) - before

    assert asyncio.run(watch()) == 0


def test_pages_without_events_count_against_the_cache_size(
    monkeypatch: pytest.MonkeyPatch, database: Database, service: ApiFixture, claim: Claim
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(pages, "CACHE_BYTES", 0)
    read = counted_reads(monkeypatch)

    async def watch() -> None:
        live = Live(service.settings.redis, service=service.app.state.services.store.service)
        stream = SingleStream(store_on(database), live, SharedItems())
        for _ in range(2):
            await collect(stream.events(claim.job_id, after=0, kinds=frozenset({"checkpoint"}), **AS_ADMIN), bool)
        live.close()

    asyncio.run(watch())
    assert read.count(0) == 2


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which each read of the store adds the position that it starts after."""
    read: list[int] = []
    original = timeline.after

    def counted(*args: Any, **kwargs: Any) -> Any:
        read.append(args[2])
        return original(*args, **kwargs)

    monkeypatch.setattr(timeline, "after", counted)
    return read
