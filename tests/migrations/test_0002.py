"""Revision 0002 keeps every event, point and log line of existing jobs and gives each a position."""

from contextlib import closing
import math
from typing import Any

from alembic import command
from sqlalchemy import text

from migrations.__main__ import configuration
from store.db.database import Database
from store.queries import timeline
from store.rows.logs import Line
from tests.store.fixture import StoreFixture

JOB = "job_" + "0" * 32
WORKER = "wrk_" + "0" * 32
INSERTS: dict[str, list[dict[str, Any]]] = {
    "jobs": [
        {
            "id": JOB,
            "owner": "ada",
            "name": "old",
            "trainer": "script",
            "spec": "{}",
            "priority": 0,
            "labels": "{}",
            "state": "queued",
            "version": 1,
            "reason_code": "waiting",
            "reason_message": "waiting",
            "reason_since": 1,
            "attempt": 2,
            "restarts": 0,
            "barren": 0,
            "ran_us": 0,
            "devices": "[]",
            "events": 2,
            "log_lines": 3,
            "created_at": 1,
        }
    ],
    "workers": [{"id": WORKER, "name": "box-a", "devices": "[]", "started_at": 1, "seen_at": 1}],
    "attempts": [
        {
            "id": number,
            "job_id": JOB,
            "number": number,
            "worker_id": WORKER,
            "lease_until": 1,
            "start_step": (number - 1) * 4000,
            "relay_seq": 1,
            "offsets": "{}",
            "checkpoints": 0,
            "started_at": 1,
            "ended_at": 2,
        }
        for number in (1, 2)
    ],
    "job_events": [
        {"job_id": JOB, "seq": seq, "time": seq, "type": "message", "data": '{"level": "info", "text": "hi"}'}
        for seq in (1, 2)
    ],
    "log_chunks": [
        {"job_id": JOB, "first": first, "count": count, "attempt": 1, "stream": "stdout", "time": 1, "text": lines}
        for first, count, lines in ((1, 2, "one\ntwo"), (3, 1, "three"))
    ],
    "series": [{"id": 7, "job_id": JOB, "key": "train/loss", "latest": 0.5}],
    "points": [
        {"series_id": 7, "attempt": attempt, "step": step, "value": None if step == 3 else step / 2, "time": step}
        for attempt, steps in ((1, range(1, 5001)), (2, range(4001, 4003)))
        for step in steps
    ],
}


def fill(database: Database) -> None:
    with database.engine.begin() as connection:
        for table, rows in INSERTS.items():
            names = ", ".join(rows[0])
            values = ", ".join(f":{name}" for name in rows[0])
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), rows)


def points(database: Database) -> list[tuple[Any, ...]]:
    with database.engine.begin() as connection:
        rows = connection.execute(text("SELECT series_id, attempt, step, value, time FROM points ORDER BY 1, 2, 3"))
        return [tuple(row) for row in rows]


def test_upgrades_and_downgrades_keep_what_a_job_has_stored(empty_url: str) -> None:
    command.upgrade(configuration(empty_url), "0001")
    with closing(Database(empty_url)) as database:
        fill(database)
        before = points(database)

    command.upgrade(configuration(empty_url), "head")

    with closing(Database(empty_url)) as database:
        db = StoreFixture(database)
        items = db.read(lambda session: list(timeline.after(session, JOB, 0)))
        assert [item.position for item in items] == list(range(1, 2 + 5002 + 3 + 1))
        assert [item.kind for item in items[:3]] == ["message", "message", "metric"]
        assert [item.content.text for item in items[-3:] if isinstance(item.content, Line)] == ["one", "two", "three"]
        assert db.job(JOB).position == items[-1].position
        found = db.series(JOB)["train/loss"]
        assert found.steps.tolist() == list(range(1, 4003))
        assert math.isnan(found.values[2])
        assert found.attempts.tolist() == [1] * 4000 + [2] * 2

    command.downgrade(configuration(empty_url), "0001")

    with closing(Database(empty_url)) as database:
        assert points(database) == before
