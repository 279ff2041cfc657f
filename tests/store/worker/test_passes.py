"""Passes over the line that several workers share."""

from collections.abc import Sequence
import threading
from typing import Any

import pytest

from store.attempts import lease
from store.cluster import workers
from store.db.database import Database
from store.queue import placement
from store.store import Store
from store.worker.passes import SharedPasses
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import Unavailable

SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")


def ask_all(passes: SharedPasses, worker_ids: Sequence[str]) -> list[Unavailable | None]:
    """Has all workers ask at once. Returns the error of each."""
    errors: list[Unavailable | None] = [None] * len(worker_ids)

    def ask(number: int) -> None:
        try:
            passes.claim(worker_ids[number], [SLOT])
        except Unavailable as error:
            errors[number] = error

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(worker_ids))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def a_worker(db: StoreFixture, name: str) -> str:
    worker_id = db.worker(name)
    db.write(lambda session: workers.heartbeat(session, worker_id, devices=[SLOT.to_dict()]))
    return worker_id


def test_workers_that_ask_while_a_pass_is_made_share_the_next_plan(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, store = StoreFixture(database), store_on(database)
    ids = [a_worker(db, f"box-{number}") for number in range(5)]
    for _ in ids:
        db.submit()
    passes, begun, plans = SharedPasses(store), threading.Event(), list[list[str]]()
    others_ask = threading.Event()

    def read_plan(session: Any, observed: dict[str, Any], **others: Any) -> Any:
        plans.append(sorted(observed))
        if len(plans) == 1:
            begun.set()
            assert others_ask.wait(30)
        return made(session, observed, **others)

    made = placement.read_plan
    monkeypatch.setattr(placement, "read_plan", read_plan)
    first = threading.Thread(target=passes.claim, args=(ids[0], [SLOT]))
    first.start()
    assert begun.wait(30)
    asking = [threading.Thread(target=passes.claim, args=(worker_id, [SLOT])) for worker_id in ids[1:]]
    for thread in asking:
        thread.start()
    while len(passes._asks) < len(asking):  # pyright: ignore[reportPrivateUsage]
        pass
    others_ask.set()
    for thread in (first, *asking):
        thread.join()
    assert plans == [[ids[0]], sorted(ids[1:])]
    for worker_id in ids:
        assert len(db.read(lambda session, own=worker_id: lease.list_open(session, own))) == 1


def test_no_job_is_claimed_twice_and_a_lost_answer_is_found_again(database: Database) -> None:
    db, store = StoreFixture(database), store_on(database)
    ids = [a_worker(db, f"box-{number}") for number in range(4)]
    job_id = db.submit()
    passes = SharedPasses(store)
    assert ask_all(passes, ids * 2) == [None] * 8
    held = [claim for one in ids for claim in db.read(lambda session, own=one: lease.list_open(session, own))]
    assert [claim.job_id for claim in held] == [job_id]


def test_all_that_share_a_pass_learn_that_the_database_is_away(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(store: Store) -> bool:
        raise Unavailable("the database does not answer")

    db = StoreFixture(database)
    ids = [a_worker(db, name) for name in ("box-a", "box-b")]
    passes = SharedPasses(store_on(database))
    with monkeypatch.context() as patch:
        patch.setattr(placement, "anything_waits", away)
        assert [type(error) for error in ask_all(passes, ids)] == [Unavailable] * 2
    assert ask_all(passes, ids) == [None, None]
