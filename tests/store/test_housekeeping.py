"""What finished jobs keep no longer goes, whole and once, whoever removes it; nothing else does."""

from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import Connection, event, insert, select, update

from store.commands import cleanup
from store.db.database import Database, in_us, now_us
from store.db.tables import NEVER_TRIMMED, DeletedJob, Job
from store.queries import run_dirs, timeline
from store.queries.timeline import ItemKind
from store.rows import deletion, logs, trimming
from store.rows.attempts import NewEvent
from store.rows.logs import NewLines
from store.rows.metrics import NewPoint
from store.rows.trimming import TrimLimits
from tests.databases import SQLiteDatabases
from tests.store.yard import Yard, at_once, checkpoint, store_on
from torchyard.contract.job import EndReason

DAY = timedelta(days=1)
BATCHES = 12
CHUNK = 2 * 9 + 1  # bytes of two lines


def trained(yard: Yard, *, end: EndReason | None = EndReason.COMPLETED) -> str:
    """A job that stored something of each kind: two lines and a word of progress in each batch."""
    job_id = yard.submit(max_restarts=0)
    claim = yard.running(job_id, yard.worker(), job_id)
    for seq in range(BATCHES):
        yard.record(
            claim,
            seq=seq,
            points=[NewPoint("train/loss", seq, float(seq), seq)],
            lines=[NewLines(0, "stdout", [f"batch {seq:02}a", f"batch {seq:02}b"])],
            events=[NewEvent("progress", {"step": seq}, 1), NewEvent("message", {"level": "info", "text": "hi"}, 1)],
            checkpoints=[checkpoint(f"step-{seq}", step=seq)] if seq == 3 else [],
        )
    if end is not None:
        yard.end(claim, end)
    return job_id


def age(yard: Yard, job_id: str, days: int) -> None:
    past = now_us() - in_us(days * DAY)
    yard.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(finished_at=past)))


def trim(yard: Yard, keep: TrimLimits, *, steps: int = 100_000) -> bool:
    """A pass that is broken off after some transactions; whether it came to its end."""
    passing = cleanup.trim_finished_jobs(store_on(yard.database), keep)
    return all(done != steps for done, _ in enumerate(passing, start=1))


def lines(yard: Yard, job_id: str) -> list[int]:
    found = yard.read(lambda session: logs.after(session, job_id, line=0, limit=1000))
    assert yard.read(lambda session: logs.tail(session, job_id, count=1000)) == found
    return [line.line for line in found]


def told(yard: Yard, job_id: str, after: int = 0, *kinds: ItemKind) -> list[tuple[int, str]]:
    items = yard.read(lambda session: list(timeline.after(session, job_id, after, kinds=frozenset(kinds))))
    return [(item.position, item.kind) for item in items]


def notices(yard: Yard, job_id: str) -> list[str]:
    return [event.data["text"] for event in yard.events(job_id) if event.attempt is None and event.type == "message"]


def test_logs_go_by_the_age_of_their_finished_jobs(yard: Yard) -> None:
    old, young, failed, running = (
        trained(yard),
        trained(yard),
        trained(yard, end=EndReason.HANG),
        trained(yard, end=None),
    )
    for job_id, days in ((old, 31), (young, 29), (failed, 31)):
        age(yard, job_id, days)
    before = {job_id: told(yard, job_id) for job_id in (old, young, running)}
    assert trim(yard, TrimLimits(logs=30 * DAY))
    assert lines(yard, old) == lines(yard, failed) == []
    assert notices(yard, old) == [
        "lines 1 to 24 of the log were removed: it is kept for 30d after the end of a job",
    ]
    rest = [item for item in before[old] if item[1] != "log"]
    assert told(yard, old) == [*rest, (rest[-1][0] + 1, "message")]
    assert {job_id: told(yard, job_id) for job_id in (young, running)} == {
        job_id: before[job_id] for job_id in (young, running)
    }
    everything = yard.everything()
    assert trim(yard, TrimLimits(logs=30 * DAY))
    assert yard.everything() == everything


def test_of_a_large_log_the_end_is_kept_until_it_is_old(yard: Yard) -> None:
    job_id, running = trained(yard), trained(yard, end=None)
    assert trim(yard, TrimLimits(log_bytes=BATCHES * CHUNK))
    assert lines(yard, job_id) == list(range(1, 25))
    assert trim(yard, TrimLimits(log_bytes=3 * CHUNK + 1))
    assert lines(yard, job_id) == [19, 20, 21, 22, 23, 24]
    assert trim(yard, TrimLimits(log_bytes=1))
    assert lines(yard, job_id) == [23, 24]  # one chunk stays
    assert lines(yard, running) == list(range(1, 25))
    age(yard, job_id, 2)
    assert trim(yard, TrimLimits(log_bytes=1, logs=DAY))
    assert lines(yard, job_id) == []
    assert notices(yard, job_id) == [
        f"lines 1 to 18 of the log were removed: the last {3 * CHUNK + 1} bytes of it are kept",
        "lines 1 to 22 of the log were removed: the last 1 bytes of it are kept",
        "lines 1 to 24 of the log were removed: it is kept for 1d after the end of a job",
    ]
    assert notices(yard, running) == []


def test_of_old_events_the_changes_of_state_stay_and_the_services_own_words(yard: Yard) -> None:
    old, young = trained(yard), trained(yard)
    age(yard, old, 8)
    trim(yard, TrimLimits(log_bytes=CHUNK))
    before = {job_id: told(yard, job_id) for job_id in (old, young)}
    moves = yard.moves(old)
    assert trim(yard, TrimLimits(events=7 * DAY))
    last = before[old][-1]
    kept = [item for item in before[old] if item[1] in {"state", "metric", "log"}]
    assert told(yard, old) == [*kept, last, (last[0] + 1, "message")]
    assert yard.moves(old) == moves
    assert len(notices(yard, old)) == 2
    assert "kept for 7d after the end of a job" in notices(yard, old)[1]
    assert told(yard, young) == before[young]
    everything = yard.everything()
    assert trim(yard, TrimLimits(events=7 * DAY))
    assert yard.everything() == everything


def test_of_many_events_the_newest_are_kept_until_they_are_old(yard: Yard) -> None:
    job_id, running = trained(yard), trained(yard, end=None)
    before = told(yard, job_id)
    assert trim(yard, TrimLimits(event_bytes=100_000))
    assert told(yard, job_id) == before
    size = len('{"level": "info", "text": "hi"}') + len('{"step": 11}')
    assert trim(yard, TrimLimits(event_bytes=2 * size + 1))
    spoken = [item for item in before if item[1] not in {"state", "metric", "log"}]
    silent, last = [item for item in before if item not in spoken], before[-1][0] + 1
    assert told(yard, job_id) == [*sorted([*silent, *spoken[-4:]]), (last, "message")]
    assert told(yard, running)[-1] == spoken[-1]
    assert trim(yard, TrimLimits(event_bytes=1))
    assert told(yard, job_id) == [*sorted([*silent, spoken[-1]]), (last, "message"), (last + 1, "message")]
    age(yard, job_id, 2)
    assert trim(yard, TrimLimits(event_bytes=1, events=DAY))
    assert [notice.partition("was removed: ")[2] for notice in notices(yard, job_id)] == [
        f"the last {2 * size + 1} bytes of it are kept",
        "the last 1 bytes of it are kept",
        "it is kept for 1d after the end of a job",
    ]
    assert yard.moves(job_id) == yard.moves(trained(yard))


def test_those_that_are_cut_cost_a_later_pass_nothing(sqlite: SQLiteDatabases) -> None:
    keep, steps = TrimLimits(logs=DAY, log_bytes=CHUNK, events=DAY), [0]

    def count() -> int:
        steps[0] += 1
        return 0

    def watch(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(count, 1)

    with sqlite.migrated() as url, closing(Database(url)) as database:
        yard = Yard(database)
        age(yard, trained(yard), 2)
        assert trim(yard, keep)
        row = yard.everything()["jobs"][0]
        assert (row["log_cut_to"], row["events_cut_to"]) == (0, 0)
        event.listen(database.engine, "begin", watch)
        used: list[int] = []
        for count_of_jobs in (1, 400):
            more = [{**row, "id": f"job_{count_of_jobs}_{number}"} for number in range(count_of_jobs)]
            yard.write(lambda session, more=more: session.execute(insert(Job), more))
            steps[0] = 0
            assert trim(yard, keep)
            used.append(steps[0])
        assert used[0] == used[1] > 0
        left = [{**row, "id": f"job_{number}", "events_cut_to": NEVER_TRIMMED} for number in range(3)]
        yard.write(lambda session: session.execute(insert(Job), left))
        steps[0] = 0
        assert trim(yard, keep)
        assert steps[0] > used[1]


def test_a_reader_goes_on_from_any_place_behind_what_is_gone(yard: Yard) -> None:
    job_id = trained(yard)
    age(yard, job_id, 2)
    end = yard.job(job_id).position
    trim(yard, TrimLimits(log_bytes=5 * CHUNK, events=DAY))
    assert lines(yard, job_id)[0] == 15
    choices: list[tuple[ItemKind, ...]] = [(), ("log",), ("log", "metric"), ("message", "state")]
    for kinds in choices:
        whole = told(yard, job_id, 0, *kinds)
        for cursor in range(end + 4):
            assert told(yard, job_id, cursor, *kinds) == [item for item in whole if item[0] > cursor]


def test_a_pass_that_is_cut_off_is_made_up_for(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "_ROWS_AT_ONCE", 2)
    keep = TrimLimits(log_bytes=2 * CHUNK, events=DAY)
    for steps in (1, 2, 4, 6, 7, 8, 19, 20):
        job_id = trained(yard)
        age(yard, job_id, 2)
        trim(yard, keep, steps=steps)
        cut = min(steps - 1, 5)  # the first step is to look, the 7th again
        assert lines(yard, job_id) == list(range(4 * cut + 1, 25))
        assert len(notices(yard, job_id)) == (cut == 5) + (steps == 20)
        assert trim(yard, keep)
        assert lines(yard, job_id) == [21, 22, 23, 24]
        assert [notice.partition(":")[0] for notice in notices(yard, job_id)] == [
            "lines 1 to 20 of the log were removed",
            "what its attempts told as events, up to number 64, was removed",
        ]


def test_several_workers_at_once_say_it_once(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "_ROWS_AT_ONCE", 2)
    kept = [trained(yard) for _ in range(2)]
    deleted = trained(yard)
    for job_id in (*kept, deleted):
        age(yard, job_id, 2)
    passes = [lambda: trim(yard, TrimLimits(log_bytes=CHUNK, events=DAY))] * 3
    answers = at_once(*passes, lambda: yard.write(lambda session: deletion.delete_job(session, deleted)))
    assert answers == [True, True, True, None]
    for job_id in kept:
        assert lines(yard, job_id) == [23, 24]
        assert len(notices(yard, job_id)) == 2
    assert told(yard, deleted) == []


def test_nothing_is_looked_at_unless_something_is_to_be_removed(yard: Yard) -> None:
    trained(yard)
    assert list(cleanup.trim_finished_jobs(store_on(yard.database), TrimLimits())) == []


def test_a_tombstone_is_kept_as_long_as_a_worker_may_be_away(yard: Yard) -> None:
    day = in_us(DAY)
    for name, days in (("old", 31), ("young", 29)):
        row = insert(DeletedJob).values(job_id=name, deleted_at=now_us() - days * day)
        yard.write(lambda session, row=row: session.execute(row))
    forget = lambda: yard.write(deletion.delete_old_tombstones)  # noqa: E731
    assert at_once(forget, forget) == [None, None]
    assert yard.read(lambda session: session.scalars(select(DeletedJob.job_id)).all()) == ["young"]


def test_what_is_known_of_attempts(yard: Yard) -> None:
    ended, running, waiting = trained(yard), trained(yard, end=None), yard.submit()
    found = yard.read(lambda session: run_dirs.known_jobs(session, [ended, running, waiting, "job_x"]))
    assert {job_id: job.finished for job_id, job in found.items()} == {ended: True, running: False, waiting: False}
    assert (found[running].attempts, found[waiting].attempts) == ({1: None}, {})
    age_us = found[ended].attempts[1]
    assert age_us is not None
    assert 0 <= age_us < 600 * 1_000_000
