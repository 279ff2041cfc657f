"""Points of many short chunks are joined, and neither a series nor a timeline shows any difference."""

from collections.abc import Iterator
from itertools import islice
import random
from typing import Any

import pytest
from sqlalchemy import select

from store import housekeeping as cleanup
from store.attempts import append
from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.jobs import deletion, timeline
from store.output import joining
from store.output.facts import Batch, MetricPoint, NewLines
from store.tables import PointChunk
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.states import EndReason

SMALL = 32
"""Positions of a block in these tests."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "BLOCK", SMALL)
    monkeypatch.setattr(joining, "LONG", 8)
    monkeypatch.setattr(joining, "CHUNKS_PER_TRANSACTION", 10)


def points(step: int, *keys: str) -> list[MetricPoint]:
    return [MetricPoint(key, step, step + len(key) / 10, step) for key in keys]


def record_some(db: StoreFixture, claim: Claim, seqs: range, *, seed: int = 0) -> None:
    """Stores batches of points of some keys, with lines and long chunks between them."""
    for seq, batch in some(seqs, seed=seed):
        db.write(lambda session, seq=seq, batch=batch: append.record(session, claim, batch, seq=seq))


def some(seqs: range, *, seed: int) -> Iterator[tuple[int, Batch]]:
    choose = random.Random(seed)
    for seq in seqs:
        batch = [point for key in ("a", "bb", "ccc") if choose.random() < 0.8 for point in points(seq, key)]
        if choose.random() < 0.05:
            batch += [MetricPoint("a", seq, float(step), step) for step in range(10)]
        lines = [NewLines(0, "stdout", ["x", "y"])] if choose.random() < 0.2 else []
        yield seq, Batch(offsets={}, points=batch, lines=lines)


def record_in_one_transaction(db: StoreFixture, claim: Claim, seqs: range, *, seed: int = 0) -> None:
    """Stores the same, but for nobody who looks meanwhile."""
    with db.database.write() as session:
        for seq, batch in some(seqs, seed=seed):
            append.record(session, claim, batch, seq=seq)


def join(db: StoreFixture, *, steps: int | None = None) -> None:
    """Joins all that is due, or makes only some of its steps."""
    for _ in islice(cleanup.join_points(store_on(db.database)), steps):
        pass


def chunks(db: StoreFixture, job_id: str) -> list[tuple[int, int, bool]]:
    """Returns of each chunk: its first position, its number of points, and whether it is joined."""
    query = select(PointChunk).where(PointChunk.job_id == job_id).order_by(PointChunk.first)
    rows = db.read(lambda session: session.scalars(query).all())
    return [(row.first, row.count, row.last is not None) for row in rows]


def told(db: StoreFixture, job_id: str, after: int = 0, limit: int | None = None) -> list[Any]:
    def look(session: Any) -> list[Any]:
        items = islice(timeline.after(session, job_id, after, kinds=frozenset({"metric", "log"})), limit)
        return [(item.position, item.kind, item.attempt, item.content) for item in items]

    return db.read(look)


def curves(db: StoreFixture, job_id: str) -> dict[str, Any]:
    found = db.series(job_id)
    return {
        key: [column.tolist() for column in (one.steps, one.values, one.times, one.attempts)]
        for key, one in found.items()
    }


def two_attempts(db: StoreFixture) -> str:
    """A finished job of two attempts, the second of which resumed before the end of the first."""
    job_id, worker = db.submit(), db.worker()
    first = db.running(job_id, worker)
    record_in_one_transaction(db, first, range(20))
    db.end(first, EndReason.WORKER_LOST)
    second = db.running(job_id, worker)
    db.write(lambda session: attempts.mark_prepared(session, second, start_step=16))
    record_in_one_transaction(db, second, range(20), seed=1)
    db.end(second, EndReason.COMPLETED)
    return job_id


def test_series_and_timelines_are_the_same_before_and_after(db: StoreFixture) -> None:
    job_id = two_attempts(db)
    before, shown, stored = told(db, job_id), curves(db, job_id), chunks(db, job_id)
    join(db)
    assert told(db, job_id) == before
    assert curves(db, job_id) == shown
    left = chunks(db, job_id)
    assert sum(count for _, count, _ in left) == sum(count for _, count, _ in stored)
    assert len(left) < len(stored) / 3
    assert {count for _, count, _ in stored if count >= 8} <= {count for _, count, joined in left if not joined}


@quick_on_sqlite
def test_a_reader_continues_after_any_position(db: StoreFixture) -> None:
    job_id = two_attempts(db)
    whole = told(db, job_id)
    join(db)
    for position in range(0, db.job(job_id).position + 2, 13):
        assert told(db, job_id, position, limit=5) == [item for item in whole if item[0] > position][:5]


@quick_on_sqlite
def test_only_complete_blocks_of_a_running_job_are_joined(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    record_in_one_transaction(db, claim, range(40))
    whole = told(db, claim.job_id)
    join(db)
    end = (db.job(claim.job_id).position + 1) // SMALL * SMALL
    assert db.job(claim.job_id).points_joined_to == end
    assert all(not joined for first, _, joined in chunks(db, claim.job_id) if first >= end)
    assert any(joined for _, _, joined in chunks(db, claim.job_id))
    record_in_one_transaction(db, claim, range(40, 80), seed=3)
    added = told(db, claim.job_id)
    assert added[: len(whole)] == whole
    join(db)
    assert told(db, claim.job_id) == added


@quick_on_sqlite
def test_a_pass_that_was_interrupted_anywhere_is_completed_by_the_next(db: StoreFixture) -> None:
    job_id = two_attempts(db)
    before, shown = told(db, job_id), curves(db, job_id)
    for steps in range(1, 12, 4):
        join(db, steps=steps)
        assert told(db, job_id) == before
    join(db)
    assert (told(db, job_id), curves(db, job_id)) == (before, shown)
    done = chunks(db, job_id)
    join(db)
    assert chunks(db, job_id) == done
    assert db.read(joining.list_jobs_to_join) == []


@quick_on_sqlite
def test_workers_may_join_at_the_same_time_while_the_job_writes(db: StoreFixture) -> None:
    job_id = two_attempts(db)
    claim = db.running(db.submit(), db.worker("box-b"), "slot-1")
    record_in_one_transaction(db, claim, range(40))
    before, running = told(db, job_id), told(db, claim.job_id)
    done = run_together(
        lambda: join(db),
        lambda: join(db),
        lambda: record_some(db, claim, range(40, 60), seed=4),
        lambda: [told(db, job_id) == before for _ in range(3)],
    )
    assert done == [None, None, None, [True] * 3]
    assert told(db, job_id) == before
    assert told(db, claim.job_id)[: len(running)] == running
    steps = [item[3].step for item in told(db, claim.job_id) if isinstance(item[3], MetricPoint)]
    assert steps == sorted(steps)


@quick_on_sqlite
def test_a_job_that_is_deleted_meanwhile_leaves_nothing(db: StoreFixture) -> None:
    job_id = two_attempts(db)
    passing = cleanup.join_points(store_on(db.database))
    for _ in islice(passing, 4):
        pass
    assert any(joined for _, _, joined in chunks(db, job_id))
    db.write(lambda session: deletion.delete_job(session, job_id))
    assert list(passing) is not None
    assert chunks(db, job_id) == []


@quick_on_sqlite
def test_an_equal_step_keeps_its_newest_value(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    for seq in range(30):
        db.record(
            claim, seq=seq, points=[MetricPoint("a", step, float(seq), 1) for step in range(9 if seq == 15 else 2)]
        )
    db.end(claim, EndReason.COMPLETED)
    shown = curves(db, claim.job_id)
    join(db)
    assert curves(db, claim.job_id) == shown
    assert shown["a"][1][:3] == [29.0, 29.0, 15.0]


def test_a_job_without_points_is_looked_at_once(db: StoreFixture) -> None:
    job_id = db.submit()
    db.end(db.running(job_id, db.worker()), EndReason.COMPLETED)
    join(db)
    assert db.read(joining.list_jobs_to_join) == []
    assert db.job(job_id).points_joined_to == joining._JOINED  # pyright: ignore[reportPrivateUsage]
