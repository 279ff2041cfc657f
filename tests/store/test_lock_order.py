"""Transactions lock rows in one order: worker, attempt, job, user. Otherwise two of them could wait for each other."""

from collections.abc import Generator
from contextlib import contextmanager
import re
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from store.attempts import stacks
from store.attempts import state as attempts
from store.attempts.facts import Begun
from store.db.database import Database
from store.jobs import batches, deletion, edits, jobs, requests, shared_commits
from store.jobs import submit as submission
from store.jobs.facts import AT_ONCE
from store.jobs.submission import Retry, Submission, Submitted
from store.models import models
from store.models.facts import NewVersion
from store.queue import waiting
from store.queue.reservations import Change
from store.reaches import reaches
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from store.worker.verbs import WorkerStore
from tests.sessions import write
from tests.store import pools
from tests.store.fixture import StoreFixture, checkpoint, store_on
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.reach.orders import Order
from torchyard.contract.states import EndReason, Reason
from torchyard.contract.team.roles import Resource, Role

PORTS = Order(kind="ports")
ORDER = ("workers", "attempts", "jobs", "users")
_TABLES = "|".join(ORDER)
_LOCKED = re.compile(
    rf"(?:UPDATE|DELETE FROM) ({_TABLES})\b|SELECT .*?\sFROM ({_TABLES})\b.* FOR (?:(?:NO KEY )?UPDATE|SHARE)",
    re.DOTALL,
)


@contextmanager
def recorded_locks(database: Database) -> Generator[list[list[str]]]:
    """Records the tables of the rows that each transaction in the block locks, in the order of their first locks."""
    found: list[list[str]] = []

    def begin(_: Any) -> None:
        found.append([])

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        locked = _LOCKED.match(statement)
        table = locked and (locked[1] or locked[2])
        if table and table not in found[-1]:
            found[-1].append(table)

    event.listen(database.engine, "begin", begin)
    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(database.engine, "begin", begin)
        event.remove(database.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_every_transaction_locks_in_one_order(db: StoreFixture) -> None:
    with recorded_locks(db.database) as found:
        _live(db)
    several = {tuple(tables) for tables in found if len(tables) > 1}
    assert {("workers", "jobs", "users"), ("workers", "jobs"), ("attempts", "jobs"), ("jobs", "users")} <= several
    assert [tables for tables in several if sorted(tables, key=ORDER.index) != list(tables)] == []


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_no_checkpoint_is_removed_while_a_submission_keeps_its_job(db: StoreFixture) -> None:
    claim = db.running(db.submit(checkpoint={"keep_last": 1}), db.worker())
    saved = checkpoint("c", step=1)
    db.record(claim, seq=0, checkpoints=[saved])
    with recorded_locks(db.database) as found:
        db.record(claim, seq=1, checkpoints=[saved])  # listed already: nothing else of it locks the job
    assert found == [["attempts", "jobs"]]


def _live(db: StoreFixture) -> None:
    """Does what locks rows: a user with quotas, the life of some jobs, and what people ask of them."""
    db.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    limits = {Resource.DEVICES: 9, Resource.RUNNING: 9, Resource.QUEUED: 9}
    db.write(lambda session: quotas.set_limits(session, "user", "ada", limits, caller=SERVICE))
    worker = db.worker()
    runs, other = _submit(db, preemptible=True), _submit(db)
    assert db.reserve(Change(worker, "cpu", None, runs), Change(db.worker(), "cpu", None, other))
    passes = db.claim(_submit(db), worker, "z", reservation=1, guest=True)
    assert passes is not None
    db.end(passes, EndReason.PREEMPTED)
    db.cancel(passes.job_id)
    assert db.reserve(Change(worker, "cpu", 1, None))
    claim = db.running(runs, worker, "a")
    db.write(lambda session: stacks.request(session, runs))
    opened = db.write(lambda session: reaches.open_reach(session, runs, PORTS, caller=Caller("ada", Role.MEMBER)))
    db.write(lambda session: reaches.end(session, opened.id, caller=Caller("ada", Role.MEMBER)))
    db.record(claim, seq=0, checkpoints=[checkpoint("c", step=1)], card={"a": 1}, progress={"step": 1})
    assert db.preempt(runs, preemptor=_submit(db, priority=5))
    assert db.end(claim, EndReason.PREEMPTED)
    late = db.starting(other, worker, "b")
    db.write(lambda session: attempts.set_reason(session, late, Reason("installing", "installs")))
    db.expire(late)
    assert db.rescue(late)
    db.hold_back(other, seconds=-1)
    db.write(waiting.group_jobs)
    db.write(lambda session: jobs.set_waiting_reasons(session, {Reason("waiting", "x"): [runs, other]}))
    db.write(lambda session: edits.change(session, other, JobPatch(priority=3)))
    db.pause(other)
    db.resume(other)
    db.drain(worker)
    assert db.claim(other, worker, "c") is None
    db.cancel(other)
    db.retry(other)
    ada = Caller("ada", Role.MEMBER)
    wanted = NewVersion("kept", runs, "latest", None, "private", ada)
    write(store_on(db.database), models.add_version, wanted)
    db.cancel(db.write(lambda session: submission.submit(session, _starting("model:kept", ada))).job.id)
    starts = _starting(f"{runs}/latest", ada)
    both = [Submission(db.spec(), ada, "private"), Retry(other, ada), starts]
    stored = db.write(lambda session: shared_commits.submit_free(session, both))
    assert all(isinstance(each, Submitted) for each in stored)
    db.write(lambda session: batches.submit(session, {0: starts}, whole=None))
    begun = db.write(lambda session: submission.submit(session, starts)).job.id
    db.cancel(begun)
    db.retry(begun)
    db.write(lambda session: deletion.delete_job(session, other))
    _live_in_pool(db)


def _starting(init_from: str, caller: Caller) -> Submission:
    return Submission(StoreFixture.spec(init_from=init_from), caller, "private")


def _live_in_pool(db: StoreFixture) -> None:
    pool, store = pools.serve(db), store_on(db.database)
    claim = pools.given(db, pool)
    WorkerStore(store, claim.worker_id).change(
        claim, Begun(running=Reason("running", "runs"), nodes=pools.nodes("n1", "n2"))
    )
    assert pools.beat(db, pool)
    db.expire(claim)
    write(store, requests.act, "cancel", claim.job_id, caller=SERVICE, grace=AT_ONCE)
    assert pools.serve(db, worker_id=pool) == pool


def _submit(db: StoreFixture, **spec: Any) -> str:
    parsed = db.spec(**spec)

    def submit(session: Session) -> str:
        return submission.submit(session, Submission(parsed, Caller("ada", Role.MEMBER), "private")).job.id

    return db.write(submit)
