"""Lines without an end are shown to who watches, and stored once they have one."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
import threading

import pytest
from redis import Redis
from redis.client import PubSub

from store.announcement import live_line
from store.db.database import Database
from store.queue.announcing import Queue
from store.redis import names as redis_names
from store.worker.verbs import WorkerStore
from tests.approved import Approved
from tests.servers import redis_server
from tests.store.fixture import a_service, store_on
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.states import JobState
from torchyard.contract.telemetry.views import LiveLine
from worker.attempts.output import showing
from worker.attempts.output.showing import Showing
from worker.attempts.records import AttemptRecords
from worker.host.mask import Mask

OUT, ERR = (0, "stdout"), (0, "stderr")


@contextmanager
def shown(redis_url: str, job_id: str) -> Generator[Iterator[LiveLine]]:
    """Yields what is shown of the job from now on."""
    with Redis.from_url(redis_url, decode_responses=True) as redis, redis.pubsub() as subscription:
        subscription.subscribe(redis_names.changes(a_service()))
        assert subscription.get_message(timeout=20) is not None
        yield _lines(subscription, job_id)


def _lines(subscription: PubSub, job_id: str) -> Iterator[LiveLine]:
    while (message := subscription.get_message(ignore_subscribe_messages=True, timeout=20)) is not None:
        line = live_line(str(message["data"]))
        if line is not None and line.job_id == job_id:
            yield line


@pytest.fixture
def redis_url(tmp_path: Path) -> Generator[str]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as url:
        yield url


@pytest.fixture
def announcing(simulated: SimulatedRunnerFixture, database: Database, redis_url: str) -> SimulatedRunnerFixture:
    """A claimed job whose worker has a Redis."""
    store = store_on(database, queue=Queue(redis_url, service=a_service), blobs=simulated.blobs)
    simulated.context = replace(simulated.context, store=WorkerStore(store, simulated.claim.worker_id))
    return simulated


def test_a_bar_and_a_prompt_are_shown_until_their_line_ends_and_stored_once(
    announcing: SimulatedRunnerFixture, redis_url: str
) -> None:
    job_id = announcing.claim.job_id
    with shown(redis_url, job_id) as lines:
        attempt = announcing.start_ranks()
        announcing.write_log("\r  1% loss=2.5")
        whole = {"job_id": job_id, "attempt": 1, "rank": 0, "stream": "stdout"}
        assert next(lines) == LiveLine.model_validate(whole | {"text": "  1% loss=2.5"})
        announcing.write_log("\r 50% loss=0.5")
        assert next(lines).text == " 50% loss=0.5"
        announcing.detach()
        announcing.start_runner()  # a worker that comes back in the middle of the line
        announcing.write_log("\r100% loss=0.1\nname: ")
        assert next(line for line in lines if line.text != " 50% loss=0.5").text == "name: "
        wait_for(lambda: announcing.lines() == ["100% loss=0.1"], "the row of the bar")
        attempt.end()
        assert announcing.wait_for_end().state == JobState.SUCCEEDED
        assert next(line for line in lines if line.text != "name: ").text == ""
    assert announcing.lines() == ["100% loss=0.1", "name: "]


def test_what_is_shown_has_no_secret_and_no_beginning_of_one(
    announcing: SimulatedRunnerFixture, redis_url: str, approved: Approved
) -> None:
    records = AttemptRecords(announcing.context.store, announcing.claim, leaving=threading.Event())
    records.mask = Mask(["correct horse battery"])
    with shown(redis_url, announcing.claim.job_id) as lines:
        records.show({OUT: "it is correct horse battery, it is correct hor"})
        assert next(lines).text == approved("text")


def test_without_redis_a_line_is_lost_and_nothing_else_is(simulated: SimulatedRunnerFixture) -> None:
    AttemptRecords(simulated.context.store, simulated.claim, leaving=threading.Event()).show({OUT: "9%"})


def test_the_newest_text_is_shown_once_a_second_and_again_for_who_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(showing.time, "monotonic", lambda: now)
    lines = Showing()
    assert lines.due({OUT: "1%", ERR: ""}) == {OUT: "1%"}
    now += 0.5
    assert lines.due({OUT: "2%"}) == {}
    now += 0.5
    assert lines.due({OUT: "3%", ERR: "a"}) == {OUT: "3%", ERR: "a"}
    now += 1
    assert lines.due({OUT: "3%", ERR: ""}) == {ERR: ""}
    now += 9
    assert lines.due({OUT: "3%", ERR: ""}) == {OUT: "3%"}
    assert lines.due({OUT: "4%"}, final=True) == {OUT: ""}
