"""Revision 0024 takes what users used of late, and how long their runs took, from the attempts of before."""

from contextlib import closing
from dataclasses import replace
from typing import Literal

from alembic import command
import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from migrations.actions import configuration
from store.db.database import Database, now_us
from store.db.tables import Attempt, Job
from store.rows import attempts, claims, usage
from tests.store.fixture import StoreFixture, placement_on
from torchyard.contract.job import EndReason, Reason

HOUR = 3_600_000_000
Kept = tuple[dict[tuple[str, str], float], dict[tuple[str, str], int]]


def kept(db: StoreFixture) -> Kept:
    def look(session: Session) -> Kept:
        return usage.used_seconds(session, now=now), usage.usual_lengths(session)

    now = db.read(lambda session: session.execute(select(now_us())).scalar_one())
    return db.read(look)


@pytest.mark.thorough
def test_what_was_used_of_late_is_kept(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        _live(StoreFixture(database))
        before = kept(StoreFixture(database))
    command.downgrade(configuration(database_url), "0022")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        after = kept(db)
        kinds = {row.device: row.kind for row in db.allocations()}
    assert before[0].keys() == {("ada", "cpu"), ("ada", "cuda"), ("bob", "cpu")}
    assert after == (pytest.approx(before[0], rel=1e-2), before[1])
    assert kinds == {"cpu-0": "cpu", "cpu-1": "cpu", "cpu-2": "cpu", "GPU-1": "cuda", "GPU-2": "cuda"}


@pytest.mark.thorough
def test_what_was_used_long_ago_is_forgotten(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        _run(db, "ada", "cpu-0", hours=1)
        earlier = {"started_at": Attempt.started_at - 800 * HOUR, "ended_at": Attempt.ended_at - 800 * HOUR}
        db.write(lambda session: session.execute(update(Attempt).values(**earlier)))
        db.write(lambda session: session.execute(update(Job).values(finished_at=Job.finished_at - 800 * HOUR)))
    command.downgrade(configuration(database_url), "0022")
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        assert kept(StoreFixture(database)) == ({}, {})


def _live(db: StoreFixture) -> None:
    for hours in (1, 5, 3):
        _run(db, "ada", "cpu-0", hours=hours)
    _run(db, "ada", "GPU-1", "GPU-2", kind="cuda", hours=30)
    _run(db, "ada", "cpu-1", hours=2, end=EndReason.DATA_ERROR)
    _run(db, "bob", "cpu-2", hours=7, end=None)


def _run(
    db: StoreFixture,
    owner: str,
    *devices: str,
    hours: int,
    kind: Literal["cuda", "cpu"] = "cpu",
    end: EndReason | None = EndReason.COMPLETED,
) -> None:
    job_id, placement = db.submit(owner=owner), placement_on(db.worker(), *devices)
    placement = replace(placement, devices=tuple(replace(device, kind=kind) for device in placement.devices))
    claim = db.write(lambda session: claims.claim(session, job_id, placement))
    assert claim is not None
    db.write(lambda session: attempts.mark_running(session, claim, reason=Reason("running", "runs")))
    past = update(Attempt).where(Attempt.id == claim.attempt_id)
    db.write(lambda session: session.execute(past.values(started_at=Attempt.started_at - hours * HOUR)))
    if end is not None:
        db.end(claim, end)
