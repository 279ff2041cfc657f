"""The stream of several jobs: every item once, over any number of connections, and hints about lists."""

import asyncio
from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, contextmanager
import json
from pathlib import Path
import random
import threading
from typing import Any

import httpx2
import pytest

from api.streams import multiplexed as jobs_stream
from api.streams.feed import Feed
from api.streams.live import Live
from api.streams.multiplexed import MultiplexedStream, WatchRequest
from api.streams.stored import SharedItems
from store.announcement import Announcement, row
from store.attempts.facts import Claim
from store.cluster import workers
from store.db.database import Database
from store.jobs import edits, timeline
from store.jobs import events as job_events
from store.jobs.facts import Head, VisibleJobs
from store.output.facts import MetricPoint, NewEvent, NewLines
from store.store import Store
from store.team.callers import SERVICE
from store.worker.records import HostOffer
from store.worker.verbs import WorkerStore
from tests.api.jobs_watcher import Heard, Items, JobsWatcher
from tests.api.service import TOKEN, ApiFixture, both_databases
from tests.api.serving import api_process, api_thread
from tests.api.showing import shown
from tests.rows import each_row
from tests.store.fixture import store_on
from torchyard.contract.cluster.devices import StartsReport
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.jobs.views import JobSummary
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role
from torchyard.contract.telemetry.views import ChangedView, ItemsView, ListedView, LiveLine

KEYS = [f"train/k{number}" for number in range(3)]


@pytest.fixture
def url(tmp_path: Path, service: ApiFixture, redis_url: str) -> Iterator[str]:
    """An API on the service's database that takes real connections."""
    with api_thread(tmp_path, service.settings.database, redis_url) as url:
        yield url


def announce(service: ApiFixture, *names: str) -> None:
    service.queue.announce(Announcement(changed={*names}))


def store_batch(service: ApiFixture, claim: Claim, number: int) -> None:
    """Stores some of everything, and announces it as a worker does."""
    value = float("nan") if number % 5 == 0 else number / 7
    service.record(
        claim,
        points=[MetricPoint(key, number, value, 1_700_000_000_123_456 + number) for key in KEYS],
        lines=[NewLines(rank, "stdout", [f"{number} ü\r", "\x1b[31m"]) for rank in (0, None)],
        events=[NewEvent("progress", {"step": number}, number)],
    )
    announce(service, claim.job_id)


@contextmanager
def known_to_all(service: ApiFixture) -> Generator[str]:
    """A job for everybody, whose row is announced again and again: the API may not have subscribed yet."""
    job_id, over = service.submit(visibility="team")["id"], threading.Event()

    def announce_again() -> None:
        while not over.wait(0.1):
            announce(service, row(job_id))

    thread = threading.Thread(target=announce_again)
    thread.start()
    try:
        yield job_id
    finally:
        over.set()
        thread.join()


def until_subscribed(service: ApiFixture, *watchers: JobsWatcher) -> None:
    """Returns when the streams name what changes in lists."""
    with known_to_all(service) as job_id:
        for watcher in watchers:
            while (event := next(watcher)).event != "jobs" or event.data["job_id"] != job_id:
                pass


def start_two(service: ApiFixture) -> list[Claim]:
    return [service.start(service.submit()["id"], device=f"cpu-{place}") for place in range(2)]


def stored(service: ApiFixture, job_id: str) -> Items:
    """Returns all that the job has stored."""
    found = Items()
    with service.database.read() as session:
        for item in timeline.after(session, job_id, 0):
            content: Any = item.content
            if item.kind == "metric":
                value = "NaN" if content.value != content.value else content.value
                found.points.append((content.key, content.step, value, item.attempt or 0))
            elif item.kind == "log":
                found.lines.append((content.line, content.text))
            else:
                found.events.append(item.position)
            found.position = item.position
    return found


def same(heard: Items, wanted: Items) -> bool:
    """Returns whether the same was heard of each key, in order: a batch is grouped by key."""
    order = sorted(wanted.points, key=lambda point: point[0])
    return (sorted(heard.points, key=lambda point: point[0]), heard.lines, heard.events) == (
        order,
        wanted.lines,
        wanted.events,
    )


def test_a_stream_begins_with_its_cursor_and_the_rows_of_its_jobs(service: ApiFixture, url: str) -> None:
    claims = start_two(service)
    asked = [claim.job_id for claim in claims]
    with JobsWatcher(url, asked) as watcher:
        ready = next(watcher)
        assert (ready.event, ready.id) == ("ready", ",".join(f"{job_id}:3" for job_id in asked))
        assert ready.data == {"cursor": ready.id}
        rows = [watcher.until("job").data for _ in asked]
    listed = {job["id"]: job for job in service.get("/v1/jobs")["data"]}
    assert {row["id"]: row for row in rows} == listed
    JobSummary.model_validate(rows[0])


@both_databases
def test_items_come_in_columns_behind_the_cursor(service: ApiFixture, url: str) -> None:
    first, second = start_two(service)
    store_batch(service, first, 1)
    after = f"{first.job_id}:0"
    with JobsWatcher(url, [first.job_id, second.job_id], after=after) as watcher:
        assert next(watcher).id == f"{after},{second.job_id}:3"
        heard = watcher.until("items")
        view = ItemsView.model_validate(heard.data)
        assert (view.job_id, view.position) == (first.job_id, stored(service, first.job_id).position)
        assert heard.id == f"{first.job_id}:{view.position},{second.job_id}:3"
        assert heard.data["metrics"][KEYS[0]] == {
            "step": [1],
            "value": [1 / 7],
            "time": [1_700_000_000.123],
            "attempt": [1],
        }
        assert [line.text for line in view.logs] == ["1 ü\r", "\x1b[31m"] * 2
        assert [event.type for event in view.events] == ["state", "state", "state", "progress"]
        store_batch(service, second, 5)
        heard = watcher.until("items")
        assert heard.data["job_id"] == second.job_id
        assert heard.data["metrics"][KEYS[0]]["value"] == ["NaN"]


def test_lines_without_an_end_come_without_an_id_of_watched_jobs_alone(service: ApiFixture, url: str) -> None:
    first, second = start_two(service)
    lines = [
        LiveLine(job_id=claim.job_id, attempt=1, rank=None, stream="stdout", text="9%") for claim in (second, first)
    ]
    with JobsWatcher(url, [first.job_id]) as watcher, JobsWatcher(url, [first.job_id], kinds=["metric"]) as other:
        watcher.until("job")
        other.until("job")
        with shown(service, lines):
            assert watcher.until("live") == Heard("", "live", lines[1].model_dump())
        store_batch(service, first, 1)
        assert {heard.event for heard in until_items(other)} <= {"job", "items"}


def until_items(watcher: JobsWatcher) -> Iterator[Heard]:
    for heard in watcher:
        yield heard
        if heard.event == "items":
            return


def test_kind_selects_items(service: ApiFixture, url: str) -> None:
    first, _ = start_two(service)
    store_batch(service, first, 1)
    after = f"{first.job_id}:0"
    for kinds in (["metric"], ["log", "state"], ["checkpoint"]):
        with JobsWatcher(url, [first.job_id], after=after, kinds=[*kinds, "message"]) as watcher:
            with service.database.write() as session:
                job_events.append(session, first.job_id, type="message", attempt=None, data={"text": "x"})
            announce(service, first.job_id)
            data = watcher.until("items").data
            assert set(data["metrics"]) == (set(KEYS) if "metric" in kinds else set())
            assert bool(data["logs"]) == ("log" in kinds)
            types = {event["type"] for event in data["events"]}
            assert types <= {*kinds, "message"}
            assert ("state" in types) == ("state" in kinds)


@pytest.mark.parametrize(
    "kill", [pytest.param(False, id="cuts"), pytest.param(True, id="killed-servers", marks=pytest.mark.thorough)]
)
def test_nothing_is_lost_or_repeated_over_cuts_and_restarts(
    service: ApiFixture, tmp_path: Path, redis_url: str, kill: bool
) -> None:
    claims = start_two(service)
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set() or number < 15:
            number += 1
            for claim in claims:
                store_batch(service, claim, number)
            over.wait(0.03)
        for claim in claims:
            service.end(claim, reason=EndReason.COMPLETED)
            announce(service, claim.job_id)

    chance = random.Random(11)
    heard = {claim.job_id: Items() for claim in claims}
    cursor = ",".join(f"{job_id}:0" for job_id in heard)

    def listen(url: str, *, cuts: int | None) -> None:
        """Reads until that many connections were cut; without a number, until both jobs have ended."""
        nonlocal cursor
        ended = dict.fromkeys(heard, False)
        while cuts is None or cuts > 0:
            with JobsWatcher(url, [*heard], after=cursor) as watcher:
                for event in watcher:
                    cursor = event.id or cursor
                    if event.event == "items":
                        heard[event.data["job_id"]].take(event.data)
                        states = [item["data"].get("to") for item in event.data["events"]]
                        ended[event.data["job_id"]] |= "succeeded" in states
                    if all(ended.values()):
                        return
                    if cuts is not None and chance.random() < 0.3:
                        break  # the rest of this connection is discarded
            cuts = None if cuts is None else cuts - 1

    def serve_and_listen(*, cuts: int | None) -> None:
        if not kill:
            with api_thread(tmp_path, service.settings.database, redis_url) as url:
                return listen(url, cuts=cuts)
        with api_process(tmp_path, service.settings.database, redis_url) as (process, url):
            listen(url, cuts=cuts)
            process.kill()
        return None

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        try:
            for _ in range(2):
                serve_and_listen(cuts=5)
        finally:
            over.set()
        writing.result()
        serve_and_listen(cuts=None)
    for job_id, items in heard.items():
        assert same(items, stored(service, job_id))


@pytest.mark.thorough
def test_a_killed_server_cuts_a_stream_where_its_cursor_says(
    service: ApiFixture, tmp_path: Path, redis_url: str
) -> None:
    first, second = start_two(service)
    heard = Items(position=3)
    with (
        api_process(tmp_path, service.settings.database, redis_url) as (process, url),
        JobsWatcher(url, [first.job_id, second.job_id]) as watcher,
    ):
        next(watcher)
        store_batch(service, first, 1)
        event = watcher.until("items")
        heard.take(event.data)
        cursor = event.id
        process.kill()
        assert [item.event for item in watcher if item.event == "items"] == []
    store_batch(service, first, 2)
    with (
        api_thread(tmp_path, service.settings.database, redis_url) as url,
        JobsWatcher(url, [first.job_id, second.job_id], after=cursor) as watcher,
    ):
        heard.take(watcher.until("items").data)
    wanted = stored(service, first.job_id)
    assert (heard.lines, heard.events) == (wanted.lines, wanted.events[3:])


def test_topics_tell_what_lists_have_changed(service: ApiFixture, url: str) -> None:
    with JobsWatcher(url, topics=["jobs", "queue", "workers"]) as watcher:
        assert next(watcher).data == {"cursor": ""}
        until_subscribed(service, watcher)
        job_id = service.submit()["id"]
        seen: dict[str, dict[str, Any]] = {}
        while not {"job", "jobs", "queue"} <= set(seen):
            event = next(watcher)
            if event.event == "queue" or job_id in event.data.values():
                seen[event.event] = event.data
        assert seen["jobs"] == {"job_id": job_id, "deleted": False}
        assert seen["queue"] == {"changed": True}
        with service.database.write() as session:
            workers.register(session, service.worker_id, name="box-a", devices=[])
        WorkerStore(service.app.state.services.store, service.worker_id).heartbeat(
            HostOffer([]), starts=StartsReport(mode="cold")
        )
        assert watcher.until("workers").data == {"changed": True}
        service.client.post(f"/v1/jobs/{job_id}/cancel")
        assert next(event for event in watcher if event.event == "job").data["state"] == "cancelled"
        service.client.delete(f"/v1/jobs/{job_id}")
        assert next(event for event in watcher if event.data == {"job_id": job_id, "deleted": True}).event == "jobs"
    assert ListedView.model_validate({"job_id": None, "deleted": False}).job_id is None
    assert ChangedView().changed


def test_a_job_that_changes_is_told_without_topics(service: ApiFixture, url: str) -> None:
    job_id, other = service.submit()["id"], service.submit()["id"]
    with JobsWatcher(url, [job_id]) as watcher:
        assert watcher.until("job").data["priority"] == 0
        service.client.patch(f"/v1/jobs/{other}", json={"priority": 3})
        service.client.patch(f"/v1/jobs/{job_id}", json={"priority": 7})
        told = watcher.until("job").data
        assert (told["id"], told["priority"]) == (job_id, 7)


def test_a_deleted_job_is_told_and_falls_silent(service: ApiFixture, url: str) -> None:
    claims = start_two(service)
    first, second = (claim.job_id for claim in claims)
    service.end(claims[0], reason=EndReason.COMPLETED)
    with JobsWatcher(url, [first, second]) as watcher:
        next(watcher)
        assert service.client.delete(f"/v1/jobs/{first}").status_code == 204
        assert watcher.until("jobs").data == {"job_id": first, "deleted": True}
        store_batch(service, claims[1], 1)
        assert watcher.until("items").data["job_id"] == second


@pytest.mark.parametrize("known", [0, 1])
def test_an_unknown_or_hidden_job_is_not_found(service: ApiFixture, known: int) -> None:
    hidden = service.submit(visibility="private")["id"]
    service.act_as("eve")
    own = [service.submit()["id"]] * known
    for job_id in (hidden, "job_" + "0" * 32, "nonsense"):
        assert service.client.get("/v1/stream", params={"job": [*own, job_id]}).status_code == 404


@each_row(
    "params",
    [
        {"after": "x"},
        {"after": "job_" + "0" * 32},
        {"after": "job_" + "0" * 32 + ":-1"},
        {"topic": "weather"},
        {"kind": "end"},
        {"job": ["job_" + "0" * 32] * 51},
    ],
)
def test_what_is_no_stream_is_refused(service: ApiFixture, params: dict[str, Any]) -> None:
    assert service.client.get("/v1/stream", params=params).status_code == 422


def test_the_topics_of_the_cluster_need_its_scope(service: ApiFixture) -> None:
    token = service.client.post("/v1/tokens", json={"scopes": ["jobs:read"]}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    for topic in ("queue", "workers"):
        assert service.client.get("/v1/stream", params={"topic": topic}, headers=headers).status_code == 403


def test_a_user_has_a_limited_number_of_streams(service: ApiFixture, url: str) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(JobsWatcher(url))
        answer = httpx2.get(f"{url}/v1/stream", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")


def token_of(service: ApiFixture, name: str, role: Role = Role.MEMBER) -> str:
    service.act_as(name, role)
    token = str(service.client.headers["Authorization"]).removeprefix("Bearer ")
    service.act_as("admin")
    return token


def test_a_stream_tells_nothing_of_other_users_private_jobs(service: ApiFixture, url: str) -> None:
    tokens = {name: token_of(service, name, role) for name, role in (("bob", Role.MEMBER), ("op", Role.OPERATOR))}
    heard: dict[str, list[Heard]] = {}
    with ExitStack() as stack:
        watchers = {
            name: stack.enter_context(JobsWatcher(url, topics=["jobs"], token=token)) for name, token in tokens.items()
        }
        for watcher in watchers.values():
            assert next(watcher).event == "ready"
        until_subscribed(service, *watchers.values())
        service.act_as("alice")
        hidden = service.submit(name="secret", labels={"for": "secret"}, visibility="private")["id"]
        service.client.post(f"/v1/jobs/{hidden}/cancel")
        service.client.delete(f"/v1/jobs/{hidden}")
        shown = service.submit(name="shown", visibility="team")["id"]
        for name, watcher in watchers.items():
            events: list[Heard] = []
            while not (events and events[-1].event == "jobs" and events[-1].data["job_id"] == shown):
                events.append(next(watcher))
            heard[name] = events
    assert hidden not in str(heard["bob"])
    assert "secret" not in str(heard["bob"])
    assert "'for': 'secret'" not in str(heard["op"])


def test_a_job_that_may_not_be_read_any_more_falls_silent(service: ApiFixture, url: str) -> None:
    token = token_of(service, "bob")
    claims = [service.start(service.submit(visibility="team")["id"], device=f"cpu-{place}") for place in range(2)]
    first, second = claims
    with JobsWatcher(url, [first.job_id, second.job_id], token=token) as watcher:
        next(watcher)
        store_batch(service, first, 1)
        assert watcher.until("items").data["job_id"] == first.job_id
        service.client.patch(f"/v1/jobs/{first.job_id}", json={"visibility": "private"})
        for number in range(2, 5):
            store_batch(service, first, number)
        store_batch(service, second, 1)
        heard = [watcher.until("items").data["job_id"]]
        while heard[-1] != second.job_id:
            heard.append(watcher.until("items").data["job_id"])
        assert heard == [second.job_id]


@pytest.mark.parametrize("how", ["token", "user"])
def test_a_stream_ends_with_its_credential(service: ApiFixture, url: str, how: str) -> None:
    token = token_of(service, "bob")
    listed = service.get("/v1/tokens", user="bob")["data"]
    with JobsWatcher(url, topics=["jobs"], token=token) as watcher:
        next(watcher)
        if how == "token":
            service.client.delete(f"/v1/tokens/{listed[0]['id']}")
        else:
            service.client.patch("/v1/users/bob", json={"disabled": True})
        assert all(event.event == "jobs" for event in watcher)  # until it ends


def test_a_stream_polls_without_redis(tmp_path: Path, service: ApiFixture) -> None:
    first, second = start_two(service)
    nobody = f"unix://{tmp_path}/nobody.sock"
    with (
        api_thread(tmp_path, service.settings.database, nobody) as url,
        JobsWatcher(url, [first.job_id, second.job_id], topics=["jobs", "queue"]) as watcher,
    ):
        next(watcher)
        store_batch(service, second, 1)
        seen: dict[str, dict[str, Any]] = {}
        while not {"items", "jobs", "queue"} <= set(seen):
            event = next(watcher)
            seen[event.event] = event.data
        assert seen["items"]["job_id"] == second.job_id
        assert seen["jobs"] == {"job_id": None, "deleted": False}


class InProcess:
    """A stream in this process's event loop."""

    def __init__(self, store: Store, redis_url: str) -> None:
        self.live = Live(redis_url, service=store.service)
        self.feed = Feed(store, self.live)
        self.store = store
        self.stream = MultiplexedStream(store, self.feed, SharedItems())

    def wanted(self, job_ids: list[str], *, after: int | None = None) -> WatchRequest:
        with self.store.read() as session:
            heads = timeline.heads_of(session, job_ids)
        every = frozenset(job_ids)
        places = {} if after is None else dict.fromkeys(job_ids, after)

        async def check(_: Collection[str]) -> VisibleJobs:
            return VisibleJobs(every, every)

        return WatchRequest(heads, places, frozenset(), frozenset({"jobs"}), SERVICE, check)

    async def collect(self, wanted: WatchRequest, until: Callable[[list[bytes]], bool]) -> list[bytes]:
        found: list[bytes] = []
        async with aclosing(self.stream.events(wanted)) as events:
            async for event in events:
                found.append(event)
                if until(found):
                    break
        return found


def test_fifty_watchers_of_ten_jobs_share_each_read(
    service: ApiFixture, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_ids = [service.submit()["id"] for _ in range(10)]
    pages: list[tuple[str, int]] = []
    heads: list[int] = []
    of_pages, of_heads = timeline.after, timeline.heads_of

    def counted_pages(session: Any, job_id: str, position: int, **kwargs: Any) -> Any:
        pages.append((job_id, position))
        return of_pages(session, job_id, position, **kwargs)

    def counted_heads(session: Any, ids: Any, **kwargs: Any) -> dict[str, Head]:
        heads.append(len(ids))
        return of_heads(session, ids, **kwargs)

    def add_events(number: int) -> None:
        with service.database.write() as session:
            for job_id in job_ids:
                job_events.append(session, job_id, type="message", attempt=None, data={"text": str(number)})
        announce(service, *job_ids)

    async def watch() -> list[list[bytes]]:
        here = InProcess(store_on(database), service.settings.redis)
        last = b'"text":"4"'
        wanted = here.wanted(job_ids)
        monkeypatch.setattr(timeline, "after", counted_pages)
        monkeypatch.setattr(timeline, "heads_of", counted_heads)
        tasks = [
            asyncio.create_task(here.collect(wanted, lambda found: sum(last in item for item in found) == 10))
            for _ in range(50)
        ]
        for number in range(5):
            await asyncio.to_thread(add_events, number)
            await asyncio.sleep(0)
        found = await asyncio.gather(*tasks)
        here.live.close()
        return found

    for events in asyncio.run(watch()):
        texts = [
            (data["job_id"], item["data"]["text"])
            for data in (json.loads(event.partition(b"data: ")[2]) for event in events if b"event: items" in event)
            for item in data["events"]
        ]
        assert sorted(texts) == sorted((job_id, str(number)) for job_id in job_ids for number in range(5))
    # Every watcher is at the same place: nothing is read twice.
    assert len(pages) == len(set(pages)) <= 50
    assert len(heads) <= 60


@pytest.mark.thorough
def test_a_busy_job_is_told_at_a_bounded_rate(
    service: ApiFixture, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = service.start(service.submit()["id"])

    async def watch() -> tuple[list[tuple[float, bytes]], float]:
        here = InProcess(store_on(database), service.settings.redis)
        loop, over = asyncio.get_running_loop(), threading.Event()
        heard: list[tuple[float, bytes]] = []

        def write() -> None:
            for number in range(1, 61):
                store_batch(service, claim, number)
                announce(service, row(claim.job_id))
                over.wait(0.02)
            over.set()

        def enough(found: list[bytes]) -> bool:
            heard.append((loop.time(), found[-1]))
            return b'"step":[60]' in found[-1] or b",60]" in found[-1]

        began = loop.time()
        writing = asyncio.create_task(asyncio.to_thread(write))
        await here.collect(here.wanted([claim.job_id]), enough)
        took = loop.time() - began
        await writing
        here.live.close()
        return heard, took

    heard, took = asyncio.run(watch())
    counts = {name: sum(b"event: %b\n" % name in event for _, event in heard) for name in (b"items", b"job", b"jobs")}
    assert 1 <= counts[b"items"] <= took * 4 + 2
    assert 1 <= counts[b"job"] <= took * 2 + 2
    assert counts[b"jobs"] <= took + 2


def test_a_backlog_comes_in_bounded_pages(
    service: ApiFixture, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_stream, "MOST_ITEMS", 7)
    claim = service.start(service.submit()["id"])
    for number in range(1, 6):
        store_batch(service, claim, number)
    wanted = stored(service, claim.job_id)

    async def watch() -> list[bytes]:
        here = InProcess(store_on(database), service.settings.redis)
        done = f'"position":{wanted.position}'.encode()
        wanted_stream = here.wanted([claim.job_id], after=0)
        found = await here.collect(wanted_stream, lambda found: b"event: items" in found[-1] and done in found[-1])
        here.live.close()
        return found

    heard = Items()
    for event in asyncio.run(watch()):
        if b"event: items" in event:
            data = json.loads(event.partition(b"data: ")[2])
            before = len(heard.points) + len(heard.lines) + len(heard.events)
            heard.take(data)
            assert len(heard.points) + len(heard.lines) + len(heard.events) - before <= 7
    assert same(heard, wanted)


def test_a_change_of_a_row_is_kept_once_for_a_slow_reader(service: ApiFixture, database: Database) -> None:
    job_id = service.submit()["id"]

    async def watch() -> int:
        here = InProcess(store_on(database), service.settings.redis)
        wanted = here.wanted([job_id])
        with here.feed.subscribe(wanted.heads, topics=wanted.topics, caller=SERVICE) as mine:
            for priority in range(1, 4):
                await asyncio.to_thread(change, priority)
                while json.loads(mine.rows.get(job_id, b'{"priority":0}'))["priority"] != priority:
                    await mine.watch.wait_for_change(within=5)
            kept = len(mine.rows)
        here.live.close()
        return kept

    def change(priority: int) -> None:
        with service.app.state.services.store.write("request") as session:
            edits.change(session, job_id, JobPatch(priority=priority))

    assert asyncio.run(watch()) == 1
