"""The timeline of a job: all that it has stored, in one order that a reader can resume anywhere."""

from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import islice

import pytest

from store.db.database import Database
from store.jobs import timeline
from store.output.facts import MetricPoint, NewEvent, NewLines, TimelineItem
from tests.databases import Databases
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.states import EndReason
from torchyard.contract.telemetry.views import EventView, LogLine, StoredKind

BATCHES = 40
"""More chunks than one read returns."""


def after(
    db: StoreFixture, job_id: str, position: int, *kinds: StoredKind, limit: int | None = None
) -> list[TimelineItem]:
    return db.read(
        lambda session: list(islice(timeline.after(session, job_id, position, kinds=frozenset(kinds)), limit))
    )


def told(items: Iterable[TimelineItem]) -> list[tuple[int, str, object]]:
    return [(item.position, item.kind, _content(item.content)) for item in items]


def _content(content: EventView | MetricPoint | LogLine) -> object:
    return (content.seq, content.data) if isinstance(content, EventView) else content


@pytest.fixture(scope="module")
def db(databases: Databases) -> Generator[StoreFixture]:
    """One database for all of these tests: they change nothing of what is stored."""
    with databases.migrated() as url, closing(Database(url)) as database:
        yield StoreFixture(database)


@pytest.fixture(scope="module")
def job_id(db: StoreFixture) -> str:
    """A job that stored items of each kind, in several batches, and more than one read returns."""
    claim = db.running(db.submit(), db.worker())
    for seq in range(BATCHES):
        db.record(
            claim,
            seq=seq,
            points=[MetricPoint(key, seq, float(seq), seq) for key in ("train/loss", "train/lr")],
            lines=[NewLines(rank, "stdout", [f"{seq} {rank}", "next"]) for rank in (0, 1, None)],
            events=[NewEvent("progress", {"step": seq}, 1)],
            checkpoints=[checkpoint(f"step-{seq}", step=seq)] if seq % 10 == 0 else [],
        )
    db.end(claim, EndReason.COMPLETED)
    return claim.job_id


def test_every_item_has_a_position_in_the_order_of_commits(db: StoreFixture, job_id: str) -> None:
    items = after(db, job_id, 0)
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    assert len(items) == db.job(job_id).position == 4 + BATCHES * (2 + 6 + 1) + BATCHES // 10
    assert [item.kind for item in items[:4]] == ["state", "state", "state", "metric"]
    assert items[-1].kind == "state"
    steps = [item.content.step for item in items if isinstance(item.content, MetricPoint)]
    assert steps == sorted(steps)
    assert [item.content.line for item in items if isinstance(item.content, LogLine)] == list(range(1, 6 * BATCHES + 1))


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.thorough), 7, 1000])
def test_pages_of_any_size_join_to_the_whole(db: StoreFixture, job_id: str, size: int) -> None:
    whole = told(after(db, job_id, 0))
    joined: list[tuple[int, str, object]] = []
    while page := after(db, job_id, joined[-1][0] if joined else 0, limit=size):
        joined += told(page)
    assert joined == whole


def test_only_the_requested_kinds_are_returned(db: StoreFixture, job_id: str) -> None:
    whole = after(db, job_id, 0)
    for kinds in ({"log"}, {"metric"}, {"state", "checkpoint"}, {"progress", "log"}):
        chosen = after(db, job_id, 5, *kinds)  # pyright: ignore[reportArgumentType] - each is a kind
        assert told(chosen) == told(item for item in whole if item.kind in kinds and item.position > 5)


def test_each_job_has_its_own_positions_and_nothing_follows_the_last(db: StoreFixture, job_id: str) -> None:
    other = db.submit()
    assert [item.position for item in after(db, other, 0)] == [1]
    assert after(db, job_id, db.job(job_id).position) == []
    assert after(db, job_id, 2**62) == []
    assert after(db, "job_" + "0" * 32, 0) == []
