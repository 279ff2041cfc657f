"""Workers: registered, alive, lost."""

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from store.attempts.facts import LEASE
from store.cluster import workers
from store.db.database import now_us
from store.ids import new_id
from store.tables import Worker
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import NotFound


def unseen(db: StoreFixture, worker_id: str) -> None:
    """Sets the worker's last heartbeat to more than a lease ago."""
    earlier = now_us() - int(LEASE.total_seconds() + 1) * 1_000_000
    db.write(lambda session: session.execute(update(Worker).where(Worker.id == worker_id).values(seen_at=earlier)))


def test_a_worker_is_alive_while_it_is_seen(db: StoreFixture) -> None:
    worker_id = db.worker("box-a")
    worker, alive = db.read(lambda session: workers.require(session, worker_id))
    assert (worker.name, worker.devices, alive) == ("box-a", [], True)
    assert worker.started_at <= worker.seen_at

    unseen(db, worker_id)
    assert not db.read(lambda session: workers.require(session, worker_id))[1]
    db.write(lambda session: workers.heartbeat(session, worker_id, devices=[{"index": 0}]))
    worker, alive = db.read(lambda session: workers.require(session, worker_id))
    assert (worker.devices, alive) == ([{"index": 0}], True)


def test_a_restarted_daemon_is_the_same_worker(db: StoreFixture) -> None:
    worker_id = db.worker("box-a")
    unseen(db, worker_id)
    before, _ = db.read(lambda session: workers.require(session, worker_id))
    db.write(lambda session: workers.register(session, worker_id, name="box-b", devices=[{"index": 1}]))
    (worker, alive), *others = db.read(workers.list_all)
    assert others == []
    assert (worker.name, worker.devices, alive) == ("box-b", [{"index": 1}], True)
    assert worker.seen_at > before.seen_at


def test_live_workers_have_different_names(db: StoreFixture) -> None:
    first, second, third = (db.worker("box") for _ in range(3))
    assert _names(db) == {first: "box", second: "box-2", third: "box-3"}
    unseen(db, second)
    db.write(lambda session: workers.register(session, third, name="box", devices=[]))
    assert _names(db) == {first: "box", second: "box-2", third: "box-2"}
    assert db.write(lambda session: workers.register(session, second, name="box", devices=[])) == "box-3"


def test_live_workers_share_the_cpus_of_their_host_if_they_do_not_say_how_many(db: StoreFixture) -> None:
    hosts = ["boot-1", "boot-1", None, "boot-2", "boot-1"]
    ids = [new_id("wrk") for _ in hosts]
    for worker_id, host in zip(ids, hosts, strict=True):
        db.write(lambda session, own=worker_id, host=host: _register(session, own, host))
    assert db.read(lambda session: workers.cpu_sharers(session, ids[4])) == [ids[0], ids[1], ids[4]]
    assert db.read(lambda session: workers.cpu_sharers(session, ids[2])) == []
    assert db.read(lambda session: workers.cpu_sharers(session, ids[3])) == [ids[3]]
    unseen(db, ids[1])
    assert db.read(lambda session: workers.cpu_sharers(session, ids[0])) == [ids[0], ids[4]]


def _register(session: Session, worker_id: str, host: str | None) -> None:
    workers.register(session, worker_id, name="box", devices=[], shares_cpus_of=host)


def _names(db: StoreFixture) -> dict[str, str]:
    return {worker.id: worker.name for worker, _ in db.read(workers.list_all)}


def test_workers_are_listed_in_pages(db: StoreFixture) -> None:
    ids = [db.worker(name) for name in "abc"]
    unseen(db, ids[1])
    assert [(worker.id, alive) for worker, alive in db.read(workers.list_all)] == [
        (ids[0], True),
        (ids[1], False),
        (ids[2], True),
    ]
    page = db.read(lambda session: workers.list_all(session, limit=1, after=ids[0]))
    assert [worker.id for worker, _ in page] == [ids[1]]


def test_a_missing_worker_is_not_found(db: StoreFixture) -> None:
    with pytest.raises(NotFound):
        db.read(lambda session: workers.require(session, new_id("wrk")))
