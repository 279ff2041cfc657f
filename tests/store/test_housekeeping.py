"""Housekeeping removes old logs and events of finished jobs once, whichever worker does it, and nothing else."""

from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import Connection, event, insert, select, update

from store import housekeeping as cleanup
from store.attempts import append, removal
from store.db.database import Database, in_us, now_us
from store.jobs import deletion, timeline
from store.output import logs, trimming
from store.output.facts import Batch, MetricPoint, NewEvent, NewLines, TrimLimits
from store.tables import NEVER_TRIMMED, DeletedJob, Job
from tests.approved import Approved
from tests.databases import SQLiteDatabases, quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint, run_together, store_on
from torchyard.contract.states import EndReason
from torchyard.contract.telemetry.views import StoredKind

DAY = timedelta(days=1)
BATCHES = 12
CHUNK = 2 * 9 + 1  # bytes of two lines


def trained(db: StoreFixture, *, end: EndReason | None = EndReason.COMPLETED) -> str:
    """Returns a job that stored two lines and a progress event in each batch."""
    job_id = db.submit(max_restarts=0)
    claim = db.running(job_id, db.worker(), job_id)
    with db.database.write() as session:
        for seq in range(BATCHES):
            append.record(session, claim, batch_of(seq), seq=seq)
    if end is not None:
        db.end(claim, end)
    return job_id


def batch_of(seq: int) -> Batch:
    return Batch(
        offsets={},
        points=[MetricPoint("train/loss", seq, float(seq), seq)],
        lines=[NewLines(0, "stdout", [f"batch {seq:02}a", f"batch {seq:02}b"])],
        events=[NewEvent("progress", {"step": seq}, 1), NewEvent("message", {"level": "info", "text": "hi"}, 1)],
        checkpoints=[checkpoint(f"step-{seq}", step=seq)] if seq == 3 else [],
    )


def age(db: StoreFixture, job_id: str, days: int) -> None:
    past = now_us() - in_us(days * DAY)
    db.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(finished_at=past)))


def trim(db: StoreFixture, keep: TrimLimits, *, steps: int = 100_000) -> bool:
    """Runs a pass that stops after some transactions. Returns whether it was complete."""
    passing = cleanup.trim_finished_jobs(store_on(db.database), keep)
    return all(done != steps for done, _ in enumerate(passing, start=1))


def lines(db: StoreFixture, job_id: str) -> list[int]:
    found = db.read(lambda session: logs.list_after(session, job_id, line=0, limit=1000).items)
    assert db.read(lambda session: logs.list_before(session, job_id, line=10**9, limit=1000).items) == found
    return [line.line for line in found]


def told(db: StoreFixture, job_id: str, after: int = 0, *kinds: StoredKind) -> list[tuple[int, str]]:
    items = db.read(lambda session: list(timeline.after(session, job_id, after, kinds=frozenset(kinds))))
    return [(item.position, item.kind) for item in items]


def notices(db: StoreFixture, job_id: str) -> list[str]:
    return [event.data["text"] for event in db.events(job_id) if event.attempt is None and event.type == "message"]


@quick_on_sqlite
def test_logs_are_removed_by_the_age_of_their_finished_jobs(db: StoreFixture, approved: Approved) -> None:
    old, young, failed, running = (
        trained(db),
        trained(db),
        trained(db, end=EndReason.HANG),
        trained(db, end=None),
    )
    for job_id, days in ((old, 31), (young, 29), (failed, 31)):
        age(db, job_id, days)
    before = {job_id: told(db, job_id) for job_id in (old, young, running)}
    assert trim(db, TrimLimits(logs=30 * DAY))
    assert lines(db, old) == lines(db, failed) == []
    assert notices(db, old) == [
        approved("notices"),
    ]
    rest = [item for item in before[old] if item[1] != "log"]
    assert told(db, old) == [*rest, (rest[-1][0] + 1, "message")]
    assert {job_id: told(db, job_id) for job_id in (young, running)} == {
        job_id: before[job_id] for job_id in (young, running)
    }
    everything = db.everything()
    assert trim(db, TrimLimits(logs=30 * DAY))
    assert db.everything() == everything


def test_a_large_log_keeps_its_end_until_it_is_old(db: StoreFixture, approved: Approved) -> None:
    job_id, running = trained(db), trained(db, end=None)
    assert trim(db, TrimLimits(log_bytes=BATCHES * CHUNK))
    assert lines(db, job_id) == list(range(1, 25))
    assert trim(db, TrimLimits(log_bytes=3 * CHUNK + 1))
    assert lines(db, job_id) == [19, 20, 21, 22, 23, 24]
    assert trim(db, TrimLimits(log_bytes=1))
    assert lines(db, job_id) == [23, 24]  # one chunk stays
    assert lines(db, running) == list(range(1, 25))
    age(db, job_id, 2)
    assert trim(db, TrimLimits(log_bytes=1, logs=DAY))
    assert lines(db, job_id) == []
    assert notices(db, job_id) == [
        f"lines 1 to 18 of the log were removed: the last {3 * CHUNK + 1} bytes of it are kept",
        approved("notices"),
        approved("lines log removed"),
    ]
    assert notices(db, running) == []


@quick_on_sqlite
def test_old_events_are_removed_except_state_changes_and_service_messages(db: StoreFixture, approved: Approved) -> None:
    old, young = trained(db), trained(db)
    age(db, old, 8)
    trim(db, TrimLimits(log_bytes=CHUNK))
    before = {job_id: told(db, job_id) for job_id in (old, young)}
    moves = db.moves(old)
    assert trim(db, TrimLimits(events=7 * DAY))
    last = before[old][-1]
    kept = [item for item in before[old] if item[1] in {"state", "metric", "log"}]
    assert told(db, old) == [*kept, last, (last[0] + 1, "message")]
    assert db.moves(old) == moves
    assert len(notices(db, old)) == 2
    assert notices(db, old)[1] == approved("notices")
    assert told(db, young) == before[young]
    everything = db.everything()
    assert trim(db, TrimLimits(events=7 * DAY))
    assert db.everything() == everything


@quick_on_sqlite
def test_many_events_keep_the_newest_until_they_are_old(db: StoreFixture, approved: Approved) -> None:
    job_id, running = trained(db), trained(db, end=None)
    before = told(db, job_id)
    assert trim(db, TrimLimits(event_bytes=100_000))
    assert told(db, job_id) == before
    size = len('{"level": "info", "text": "hi"}') + len('{"step": 11}')
    assert trim(db, TrimLimits(event_bytes=2 * size + 1))
    spoken = [item for item in before if item[1] not in {"state", "metric", "log"}]
    silent, last = [item for item in before if item not in spoken], before[-1][0] + 1
    assert told(db, job_id) == [*sorted([*silent, *spoken[-4:]]), (last, "message")]
    assert told(db, running)[-1] == spoken[-1]
    assert trim(db, TrimLimits(event_bytes=1))
    assert told(db, job_id) == [*sorted([*silent, spoken[-1]]), (last, "message"), (last + 1, "message")]
    age(db, job_id, 2)
    assert trim(db, TrimLimits(event_bytes=1, events=DAY))
    assert [notice.partition("were removed: ")[2] for notice in notices(db, job_id)] == [
        f"the last {2 * size + 1} bytes of it are kept",
        approved("notice"),
        approved("kept after end"),
    ]
    assert db.moves(job_id) == db.moves(trained(db))


def test_trimmed_jobs_cost_a_later_pass_nothing(sqlite: SQLiteDatabases) -> None:
    keep, steps = TrimLimits(logs=DAY, log_bytes=CHUNK, events=DAY), [0]

    def count() -> int:
        steps[0] += 1
        return 0

    def watch(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(count, 1)

    with sqlite.migrated() as url, closing(Database(url)) as database:
        db = StoreFixture(database)
        age(db, trained(db), 2)
        assert trim(db, keep)
        row = db.everything()["jobs"][0]
        assert (row["log_cut_to"], row["events_cut_to"]) == (0, 0)
        event.listen(database.engine, "begin", watch)
        used: list[int] = []
        for count_of_jobs in (1, 400):
            more = [{**row, "id": f"job_{count_of_jobs}_{number}"} for number in range(count_of_jobs)]
            db.write(lambda session, more=more: session.execute(insert(Job), more))
            steps[0] = 0
            assert trim(db, keep)
            used.append(steps[0])
        assert used[0] == used[1] > 0
        left = [{**row, "id": f"job_{number}", "events_cut_to": NEVER_TRIMMED} for number in range(3)]
        db.write(lambda session: session.execute(insert(Job), left))
        steps[0] = 0
        assert trim(db, keep)
        assert steps[0] > used[1]


@quick_on_sqlite
def test_a_reader_continues_after_removed_rows(db: StoreFixture) -> None:
    job_id = trained(db)
    age(db, job_id, 2)
    end = db.job(job_id).position
    trim(db, TrimLimits(log_bytes=5 * CHUNK, events=DAY))
    assert lines(db, job_id)[0] == 15
    choices: list[tuple[StoredKind, ...]] = [(), ("log",), ("log", "metric"), ("message", "state")]
    for kinds in choices:
        whole = told(db, job_id, 0, *kinds)
        for cursor in range(0, end + 4, 7):
            assert told(db, job_id, cursor, *kinds) == [item for item in whole if item[0] > cursor]


@quick_on_sqlite
@pytest.mark.parametrize("stops", [(2, 6, 20), pytest.param((1, 4, 7, 8, 19), marks=pytest.mark.thorough)])
def test_a_later_pass_completes_an_interrupted_one(
    db: StoreFixture, monkeypatch: pytest.MonkeyPatch, approved: Approved, stops: tuple[int, ...]
) -> None:
    monkeypatch.setattr(trimming, "ROWS_PER_TRANSACTION", 2)
    keep = TrimLimits(log_bytes=2 * CHUNK, events=DAY)
    for steps in stops:
        job_id = trained(db)
        age(db, job_id, 2)
        trim(db, keep, steps=steps)
        cut = min(steps - 1, 5)  # the first step is to look, the 7th again
        assert lines(db, job_id) == list(range(4 * cut + 1, 25))
        assert len(notices(db, job_id)) == (cut == 5) + (steps == 20)
        assert trim(db, keep)
        assert lines(db, job_id) == [21, 22, 23, 24]
        assert [notice.partition(":")[0] for notice in notices(db, job_id)] == [
            approved("notice"),
            approved("events attempts up"),
        ]


def test_several_concurrent_workers_write_one_notice(db: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "ROWS_PER_TRANSACTION", 2)
    kept = [trained(db) for _ in range(2)]
    deleted = trained(db)
    for job_id in (*kept, deleted):
        age(db, job_id, 2)
    passes = [lambda: trim(db, TrimLimits(log_bytes=CHUNK, events=DAY))] * 3
    answers = run_together(*passes, lambda: db.write(lambda session: deletion.delete_job(session, deleted)))
    assert answers == [True, True, True, None]
    for job_id in kept:
        assert lines(db, job_id) == [23, 24]
        assert len(notices(db, job_id)) == 2
    assert told(db, deleted) == []


@quick_on_sqlite
def test_without_limits_nothing_is_read(db: StoreFixture) -> None:
    trained(db)
    assert list(cleanup.trim_finished_jobs(store_on(db.database), TrimLimits())) == []


def test_a_tombstone_is_kept_for_thirty_days(db: StoreFixture) -> None:
    day = in_us(DAY)
    for name, days in (("old", 31), ("young", 29)):
        row = insert(DeletedJob).values(job_id=name, deleted_at=now_us() - days * day)
        db.write(lambda session, row=row: session.execute(row))
    forget = lambda: db.write(deletion.delete_old_tombstones)  # noqa: E731
    assert run_together(forget, forget) == [None, None]
    assert db.read(lambda session: session.scalars(select(DeletedJob.job_id)).all()) == ["young"]


@quick_on_sqlite
def test_known_jobs_have_the_ages_of_their_attempts(db: StoreFixture) -> None:
    ended, running, waiting = trained(db), trained(db, end=None), db.submit()
    found = db.read(lambda session: removal.find_known_jobs(session, [ended, running, waiting, "job_x"]))
    assert {job_id: job.finished for job_id, job in found.items()} == {ended: True, running: False, waiting: False}
    assert (found[running].attempts, found[waiting].attempts) == ({1: None}, {})
    age_us = found[ended].attempts[1]
    assert age_us is not None
    assert 0 <= age_us < 600 * 1_000_000
