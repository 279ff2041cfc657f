"""Where the line in Redis differs from the rows, SQL answers, or a sweep makes it equal."""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import signal
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import update

from store.db.database import Database
from store.jobs import deletion, edits, jobs, queued
from store.jobs import submit as submission
from store.jobs.submission import Submission
from store.queue.announcing import Queue
from store.queue.groups import Groups
from store.queue.line.from_redis import written
from store.queue.line.line import line_of
from store.queue.line_facts import Bucket, LineEntry
from store.redis import client as redis_client
from store.redis import names as redis_names
from store.store import Store
from store.tables import Job, Service
from store.team.callers import SERVICE
from tests import line, servers
from tests.conftest import QUICK_S
from tests.databases import quick_on_postgresql, quick_on_sqlite
from tests.sessions import read
from tests.store.fixture import StoreFixture, recorded_statements, run_together, service_of, store_on
from torchyard.contract.errors import Unavailable
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.states import EndReason

KEYS = ("stamp", "jobs", "buckets", "groups", "rebuild", "bucket:0:auto:ada", "group")
"""Of the line of one job, `group` standing for its group."""


@dataclass
class Lined:
    """A store whose line is in Redis, and a client that may use every command there."""

    db: StoreFixture
    store: Store
    url: str
    redis: Redis

    @property
    def base(self) -> str:
        return redis_names.line(service_of(self.db.database)())

    def submit(self, **spec: Any) -> str:
        return submission.submit_alone(self.store, Submission(self.db.spec(**spec), SERVICE, "private")).job.id

    def queued(self) -> list[str]:
        """Returns the queue as the API shows it."""
        return [job.id for job in read(self.store, queued.list_queue, limit=10_000, after=None).items]

    def heads(self) -> list[str]:
        with self.store.read() as session:
            return sorted(job.id for job in Groups(session).heads())

    def asks_redis(self) -> bool:
        with self.store.read() as session:
            found = line_of(session)
            found.heads()
            return found.asks_redis

    def age(self, *, seconds: int = 3600) -> None:
        """Lets all changes so far be older than what a sweep looks for."""
        old = update(Job).values(lined_at=Job.lined_at - seconds * 1_000_000)
        self.db.write(lambda session: session.execute(old))

    def check(self) -> None:
        """Checks that Redis has what the rows say, and that it answers."""
        assert line.waiting(self.store.queue) == [job_id for job_id, _ in self.db.read(jobs.queued)]
        assert self.asks_redis()
        assert sorted(self.queued()) == sorted(line.waiting(self.store.queue))
        assert self.heads() == self.db.heads()


@contextmanager
def lined(database: Database, folder: Path) -> Generator[Lined]:
    service = service_of(database)
    service()
    with (
        servers.redis_server(folder, writes=True) as url,
        servers.administered(url) as redis,
        closing(Queue(url, service=service)) as queue,
    ):
        yield Lined(StoreFixture(database), store_on(database, queue=queue), url, redis)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has programs wait for Redis as long as they do outside of tests."""
    monkeypatch.setattr(redis_client, "QUICK_S", QUICK_S)


@pytest.fixture
def at(database: Database, tmp_path: Path) -> Generator[Lined]:
    with lined(database, tmp_path) as at:
        yield at


@quick_on_sqlite
def test_the_line_is_read_from_the_rows_until_redis_is_filled(at: Lined) -> None:
    first, urgent = at.submit(), at.submit(priority=1)
    assert (at.asks_redis(), at.queued(), at.heads()) == (False, [urgent, first], sorted([first, urgent]))
    assert at.store.sweep_line()
    at.check()
    assert not at.store.sweep_line()
    at.submit(priority=2)
    at.check()
    assert not at.store.sweep_line()


@quick_on_sqlite
def test_a_wiped_redis_is_filled_anew(at: Lined) -> None:
    for priority in (0, 3):
        at.submit(priority=priority)
    at.store.sweep_line()
    at.redis.flushall()
    new = at.submit()
    assert (at.asks_redis(), len(at.queued()), new in at.queued()) == (False, 3, True)
    assert at.store.sweep_line()
    at.check()


def test_a_restarted_redis_is_filled_anew(database: Database, tmp_path: Path) -> None:
    with lined(database, tmp_path) as at:
        first = at.submit()
        at.store.sweep_line()
    away = at.submit()
    at.db.cancel(first)
    at.age()
    with lined(database, tmp_path) as at:
        assert at.store.sweep_line()
        at.check()
        assert at.queued() == [away]


@quick_on_sqlite
def test_a_redis_restored_from_an_hour_ago_is_filled_anew(database: Database, tmp_path: Path) -> None:
    with lined(database, tmp_path) as at:
        first = at.submit()
        at.store.sweep_line()
    shutil.copy(tmp_path / "appendonly.aof", tmp_path / "old")
    with lined(database, tmp_path) as at:
        at.store.sweep_line()
        second = at.submit()
        at.db.cancel(first)
        at.db.write(lambda session: deletion.delete_job(session, first))
        at.age()
        at.store.sweep_line()
    shutil.move(tmp_path / "old", tmp_path / "appendonly.aof")
    with lined(database, tmp_path) as at:
        assert line.waiting(at.store.queue) == [first], "as it was"
        assert at.store.sweep_line()
        at.check()
        assert at.queued() == [second]


@quick_on_sqlite
def test_keys_restored_in_a_running_redis_are_compared_since_their_time(at: Lined) -> None:
    first, second = at.submit(), at.submit()
    at.store.sweep_line()
    old = {key: at.redis.dump(key) for key in at.redis.keys(f"{at.base}*")}  # pyright: ignore
    at.db.cancel(first)
    third = at.submit()
    at.store.sweep_line()
    at.redis.flushall()
    for key, content in old.items():
        at.redis.restore(key, 60_000 if key.endswith(b"stamp") else 0, content)  # pyright: ignore
    assert line.waiting(at.store.queue) == [first, second]
    assert at.store.sweep_line()
    at.check()
    assert at.queued() == [second, third]


def test_a_database_restored_from_an_hour_ago_has_the_line_filled_anew(at: Lined) -> None:
    first = at.submit()
    at.store.sweep_line()
    at.store.queue.announce(line.left(first))
    at.age()
    hour_ago = update(Service).values(line_swept_at=Service.line_swept_at - 3_600_000_000)
    at.db.write(lambda session: session.execute(hour_ago))
    assert at.store.sweep_line()
    at.check()


def unannounced(at: Lined, job_id: str, other: str) -> dict[str, Callable[[], object]]:
    """Returns commits whose process is killed before Redis is told."""
    db = at.db
    worker = db.worker()
    claim = db.running(other, worker)
    db.hold_back(job_id, seconds=3600)
    at.store.sweep_line()
    return {
        "submit": db.submit,
        "claim": lambda: db.claim(job_id, worker, "slot-1"),
        "requeue": lambda: db.end(claim, EndReason.PREEMPTED),
        "pause": lambda: db.pause(job_id),
        "cancel": lambda: db.cancel(job_id),
        "patch": lambda: db.write(lambda session: edits.change(session, job_id, parse_patch({"priority": 9}))),
        "delete": lambda: (db.cancel(job_id), db.write(lambda session: deletion.delete_job(session, job_id))),
    }


@pytest.mark.parametrize("what", ["submit", "claim", "requeue", "pause", "cancel", "patch", "delete"])
def test_what_a_killed_process_did_not_tell_is_found_by_the_next_sweep(at: Lined, what: str) -> None:
    job_id, other = at.submit(), at.submit()
    commit = unannounced(at, job_id, other)[what]
    at.store.queue.upkeep.scan(0, count=1)
    commit()
    assert at.store.sweep_line()
    at.check()
    assert not at.store.sweep_line()


@quick_on_sqlite
def test_a_sweep_costs_the_same_however_many_jobs_wait(at: Lined) -> None:
    def statements() -> int:
        with recorded_statements(at.db.database) as found:
            assert not at.store.sweep_line()
        return len(found)

    at.submit()
    at.store.sweep_line()
    few = statements()
    at.db.submit_many(1500)
    at.age()
    line.clear(at.store.queue)
    at.redis.delete(f"{at.base}stamp")
    at.store.sweep_line()
    assert statements() <= few
    at.check()


@quick_on_sqlite
def test_what_only_an_audit_finds_is_found_in_turn(at: Lined) -> None:
    at.db.submit_many(1200)
    at.age()
    at.store.sweep_line()
    lost = at.db.read(jobs.queued)[1100][0]
    at.store.queue.announce(line.left(lost))
    of_nobody = LineEntry(Bucket("ada", "auto", -3), 1, "a-shape", changed=0)
    at.store.queue.upkeep.change([("job_of_nobody", written(of_nobody), "")])
    found = [at.store.sweep_line() for _ in range(6)]
    assert any(found)
    at.check()


def test_entries_that_the_sets_do_not_have_are_put_there(at: Lined) -> None:
    job_id = at.submit()
    at.store.sweep_line()
    at.redis.zadd(f"{at.base}bucket:0:auto:admin", {job_id: 7})
    assert at.store.sweep_line()
    at.check()
    at.redis.zrem(f"{at.base}bucket:0:auto:admin", job_id)
    assert at.store.sweep_line()
    at.check()


def test_what_a_process_says_long_after_its_commit_is_not_heard(at: Lined) -> None:
    first, second = at.db.submit(), at.db.submit()
    at.age()
    late = [line.told(at.db.job(job_id)) for job_id in (first, second)]
    at.db.cancel(first)
    at.store.sweep_line()
    for one in late:
        at.store.queue.announce(one)
    at.check()
    assert at.queued() == [second]


@pytest.mark.parametrize(
    "lost",
    [
        *("groups", "bucket:0:auto:ada"),
        *(pytest.param(lost, marks=pytest.mark.thorough) for lost in ("buckets", "group", "held back")),
    ],
)
def test_keys_that_redis_evicted_are_missed_by_the_next_sweep(at: Lined, lost: str) -> None:
    waiting, held_back = at.db.submit(), at.db.submit()
    at.db.hold_back(held_back, seconds=3600)
    at.age()
    at.store.sweep_line()
    assert not at.store.sweep_line()
    named = {"group": f"group:0:{at.db.job(waiting).shape}", "held back": "group:"}
    assert at.redis.delete(f"{at.base}{named.get(lost, lost)}")
    assert at.store.sweep_line()
    at.check()


@pytest.mark.parametrize(
    "key",
    [*KEYS[:2], *(pytest.param(key, marks=pytest.mark.thorough) for key in KEYS[2:-2]), *KEYS[-2:]],
)
def test_a_key_of_another_type_is_replaced(at: Lined, key: str) -> None:
    job_id = at.submit()
    at.store.sweep_line()
    name = {"group": f"group:0:{at.db.job(job_id).shape}", "bucket:0:auto:ada": "bucket:0:auto:admin"}.get(key, key)
    at.redis.delete(f"{at.base}{name}")
    at.redis.rpush(f"{at.base}{name}", "mine")
    at.submit()
    assert at.queued()[0] == job_id
    if name == "rebuild":
        at.redis.delete(f"{at.base}stamp")
    assert at.store.sweep_line()
    at.check()


def test_keys_of_others_are_left_alone(at: Lined) -> None:
    at.redis.mset({"queue": "theirs", "torchyard:svc_other:line:stamp": "theirs", f"{at.base}": "theirs"})
    at.submit()
    at.store.sweep_line()
    at.redis.delete(f"{at.base}stamp")
    at.store.sweep_line()
    assert at.redis.mget("queue", "torchyard:svc_other:line:stamp") == [b"theirs"] * 2
    at.check()


def test_only_one_worker_fills_the_line_anew(at: Lined) -> None:
    job_id = at.submit()
    assert at.store.queue.upkeep.begin("another")
    assert not at.store.sweep_line()
    assert (at.asks_redis(), at.queued()) == (False, [job_id])
    assert at.store.queue.upkeep.go_on("another")
    at.redis.delete(f"{at.base}rebuild")  # as when it says nothing for long
    assert at.store.sweep_line()
    assert not at.store.queue.upkeep.go_on("another")
    at.check()


@quick_on_postgresql
def test_jobs_that_are_taken_and_submitted_while_the_line_is_filled_stand_as_they_are(at: Lined) -> None:
    ids = at.db.submit_many(1200)
    worker = at.db.worker()

    def work() -> bool:
        for number, job_id in enumerate(ids[::60]):
            at.db.claim(job_id, worker, f"slot-{number}")
            at.submit()
        return True

    assert run_together(at.store.sweep_line, work) == [True, True]
    at.store.sweep_line()
    at.check()


def test_a_head_that_waits_no_more_gives_way_to_the_next_and_is_removed(at: Lined) -> None:
    first, second = at.submit(), at.submit()
    at.store.sweep_line()
    at.db.cancel(first)
    assert at.heads() == [second]
    assert line.waiting(at.store.queue) == [second], "who reads it puts it right"
    at.db.cancel(second)
    assert at.queued() == []
    assert line.waiting(at.store.queue) == []


def test_jobs_that_the_transaction_cannot_see_yet_stay_in_redis(at: Lined) -> None:
    first = at.submit(priority=-1)
    at.store.sweep_line()
    with at.store.read() as session:
        jobs.require(session, first)
        new = at.submit()
        assert [job.id for job in Groups(session).heads()] == [first]
    assert line.waiting(at.store.queue) == [new, first]
    at.check()


@pytest.mark.usefixtures("impatient")
def test_a_frozen_redis_delays_one_submission(at: Lined) -> None:
    first = at.submit()
    at.store.sweep_line()
    pid = int(at.redis.info("server")["process_id"])  # pyright: ignore
    os.kill(pid, signal.SIGSTOP)
    try:
        second = at.submit()
        with pytest.raises(Unavailable, match="a moment ago"):
            at.store.queue.announce(line.left(first))
        with pytest.raises(Unavailable, match="a moment ago"):
            at.store.queue.line.heads()
        assert at.queued() == [first, second]
        assert not at.store.sweep_line()
    finally:
        os.kill(pid, signal.SIGCONT)
    at.store.sweep_line()  # it may differ no more: Redis reads what it was sent while it was frozen
    assert line.waiting(at.store.queue) == [first, second]


def test_a_clock_that_was_set_back_has_the_line_filled_anew(at: Lined) -> None:
    at.submit()
    at.store.sweep_line()
    later = f"1|{at.store.queue.upkeep.run_id()}|{2**52}"
    at.redis.set(f"{at.base}stamp", later)
    at.db.write(lambda session: session.execute(update(Service).values(line_swept_at=2**52)))
    assert at.store.sweep_line()
    at.check()
