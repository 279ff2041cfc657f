"""Submission, lists, the queue, cancels, and ids."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import json

import pytest
from sqlalchemy import update

from store.ids import is_id, new_id
from store.jobs import events as job_events
from store.jobs import jobs, listing, reasons, show, stop
from store.jobs.facts import ListCursor
from store.queue import waiting
from store.tables import Job
from store.team import access
from store.team.callers import SERVICE, Caller
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, recorded_statements
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.jobs.filters import JobQuery
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.team.roles import Role


def test_a_submitted_job_is_queued_with_its_resolved_spec(db: StoreFixture) -> None:
    job = db.job(db.submit(name="one", labels={"team": "ü"}, priority=7))
    assert (job.state, job.owner, job.name, job.trainer, job.priority) == ("queued", "ada", "one", "script", 7)
    assert (job.labels, job.version, job.attempt, job.position) == ({"team": "ü"}, 1, 0, 1)
    assert parse_spec(job.spec).model_dump(mode="json") == job.spec
    assert (job.spec["max_restarts"], job.spec["time_limit"]) == (2, "1d")
    assert (job.started_at, job.finished_at, job.error, job.progress) == (None, None, None, None)
    (event,) = db.events(job.id)
    assert (event.seq, event.type, event.attempt) == (1, "state", None)
    assert event.data == {"from": None, "to": "queued", "reason": {"code": "waiting", "message": job.reason_message}}


ADA, EVE = Caller("ada", Role.MEMBER), Caller("eve", Role.MEMBER)


def test_a_private_job_of_another_owner_is_not_found(db: StoreFixture) -> None:
    job_id = db.submit(owner="ada")
    for caller in (ADA, SERVICE):
        assert db.read(lambda session, caller=caller: access.require_job(session, job_id, caller)).id == job_id
    for caller in (EVE, Caller("eve", Role.OPERATOR)):
        with pytest.raises(NotFound):
            db.read(lambda session, caller=caller: access.require_job(session, job_id, caller))
        with pytest.raises(NotFound):
            db.write(lambda session, caller=caller: stop.request_cancel(session, job_id, caller))
    with pytest.raises(NotFound):
        db.cancel(new_id("job"))
    assert db.job(job_id).state == JobState.QUEUED


def test_a_job_of_the_team_is_read_by_all_and_changed_by_its_owner_and_administrators(db: StoreFixture) -> None:
    job_id = db.submit(owner="ada", visibility="team")
    assert db.read(lambda session: access.require_job(session, job_id, EVE)).id == job_id
    with pytest.raises(Forbidden, match="belongs to ada"):
        db.write(lambda session: stop.request_cancel(session, job_id, EVE))
    assert db.job(job_id).state == JobState.QUEUED
    db.write(lambda session: stop.request_cancel(session, job_id, ADA))
    assert db.job(job_id).state == JobState.CANCELLED


def test_a_list_reads_no_column_that_may_be_large(db: StoreFixture) -> None:
    db.submit(checkpoint={"monitor": "val/accuracy", "mode": "max"})
    older = db.submit()
    with db.database.write() as session:  # as a version without the key stored it
        session.execute(update(Job).where(Job.id == older).values(spec={"trainer": "script"}))
    old, new = db.read(lambda session: listing.list_page(session, JobQuery(), caller=SERVICE, limit=2)).items
    assert (new.monitor, new.error) == ("val/accuracy", None)
    assert old.monitor == "val/loss"
    assert {"spec", "card", "error"}.isdisjoint(column.key for column in show.LISTED)


def test_a_job_is_told_by_one_row_and_by_what_its_attempts_stored(db: StoreFixture) -> None:
    running, paused, queued = db.submit(owner="ada"), db.submit(owner="ada"), db.submit(owner="ada")
    db.running(running, db.worker())
    db.pause(paused)
    shape = db.job(queued).shape
    db.write(lambda session: reasons.store_reasons(session, {shape: Reason("no_device", "2 devices are held")}))
    for job_id in (running, paused, queued):
        expected = db.read(lambda session, job_id=job_id: show.show_job(session, jobs.require(session, job_id)))
        for caller in (ADA, SERVICE):
            told = db.read(lambda session, job_id=job_id, caller=caller: show.find_job(session, job_id, caller))
            assert replace(told, spec=expected.spec) == expected
            assert json.loads(told.spec) == json.loads(expected.spec)
    assert expected.reason.message == "2 devices are held"
    for job_id, count in ((paused, 1), (running, 3)):
        with recorded_statements(db.database) as statements:
            db.read(lambda session, job_id=job_id: show.find_job(session, job_id, ADA))
        assert len(statements) == count
    for job_id, caller in ((running, EVE), (running, Caller("eve", Role.OPERATOR)), ("job_x", SERVICE)):
        with pytest.raises(NotFound):
            db.read(lambda session, job_id=job_id, caller=caller: show.find_job(session, job_id, caller))


def test_lists_are_newest_first_and_filtered(db: StoreFixture) -> None:
    a, b, c = db.submit(name="a"), db.submit(name="b", owner="eve"), db.submit(name="a")
    d = db.submit(trainer="image-classification", config={}, name="d")
    db.cancel(c)

    def found(limit: int = 10, before: str | None = None, **where: object) -> list[str]:
        chosen = JobQuery(**where)  # pyright: ignore[reportArgumentType]
        after = None if before is None else ListCursor(None, before)
        rows = db.read(lambda session: listing.list_page(session, chosen, caller=SERVICE, limit=limit, after=after))
        return [listed.id for listed in rows.items]

    assert found() == [d, c, b, a]
    assert found(2) == [d, c]
    assert found(2, before=c) == [b, a]
    assert found(owner="ada") == [d, c, a]
    assert found(name="a") == [c, a]
    assert found(trainer="image-classification") == [d]
    assert found(state=[JobState.CANCELLED]) == [c]
    assert found(state=[JobState.CANCELLED, JobState.QUEUED], owner="eve") == [b]
    assert found(state=[JobState.FAILED]) == []


def test_the_queue_is_ordered_by_priority_then_submission(db: StoreFixture) -> None:
    low, first, second, high = (db.submit(priority=priority) for priority in (-5, 0, 0, 5))
    expected = [high, first, second, low]
    assert db.read(jobs.queued) == [(high, 5), (first, 0), (second, 0), (low, -5)]
    assert db.read(lambda session: jobs.queued(session, limit=2)) == [(high, 5), (first, 0)]
    assert [db.place(job_id) for job_id in expected] == [1, 2, 3, 4]

    db.cancel(first)
    assert [job_id for job_id, _ in db.read(jobs.queued)] == [high, second, low]
    assert db.place(low) == 3
    asked = [low, first, second, new_id("job")]
    assert {job.id for job in db.read(lambda session: waiting.waiting_among(session, asked))} == {low, second}


def test_a_waiting_reason_is_written_only_if_it_changes_and_the_job_waits(db: StoreFixture) -> None:
    job_id, reason = db.submit(), Reason("devices_busy", "needs 2 GPUs; 1 free on box-a")
    db.write(lambda session: jobs.set_waiting_reason(session, [job_id], reason))
    since = db.job(job_id).reason_since
    assert db.job(job_id).reason_message == reason.message

    db.write(lambda session: jobs.set_waiting_reason(session, [job_id], reason))
    assert (db.job(job_id).reason_since, db.job(job_id).version) == (since, 1)

    db.starting(job_id, db.worker())
    db.write(lambda session: jobs.set_waiting_reason(session, [job_id], reason))
    assert db.job(job_id).reason_code == "starting"


def test_a_queued_job_is_cancelled_immediately_and_a_repetition_changes_nothing(db: StoreFixture) -> None:
    job_id = db.submit()
    assert db.cancel(job_id).state == JobState.CANCELLED
    before = db.everything()
    assert db.cancel(job_id).state == JobState.CANCELLED
    assert db.everything() == before


@quick_on_sqlite
def test_a_running_job_is_requested_to_stop_once(db: StoreFixture) -> None:
    job_id = db.submit()
    claim = db.running(job_id, db.worker())
    version = db.job(job_id).version
    asked = db.cancel(job_id)
    assert (asked.state, asked.version, asked.reason_code) == (JobState.RUNNING, version + 1, "stopping")
    assert asked.cancel_requested_at is not None
    before = db.everything()
    db.cancel(job_id)
    assert db.everything() == before
    assert db.end(claim, EndReason.CANCELLED) is JobState.CANCELLED


@pytest.mark.parametrize("reason", [EndReason.COMPLETED, EndReason.DATA_ERROR])
@quick_on_sqlite
def test_a_job_that_has_ended_cannot_be_cancelled(db: StoreFixture, reason: EndReason) -> None:
    job_id = db.submit()
    state = db.end(db.running(job_id, db.worker()), reason)
    before = db.everything()
    with pytest.raises(Conflict, match=f"has already {state}"):
        db.cancel(job_id)
    assert db.everything() == before


def test_events_are_read_in_pages(db: StoreFixture) -> None:
    job_id = db.submit()
    for number in range(5):
        db.write(lambda s, n=number: job_events.append(s, job_id, type="message", attempt=None, data={"text": f"{n}"}))
    pages = [
        db.read(lambda s, a=after: job_events.list_events(s, job_id, caller=SERVICE, after=a, limit=2).items)
        for after in (0, 2, 4, 6)
    ]
    assert [[event.seq for event in page] for page in pages] == [[1, 2], [3, 4], [5, 6], []]


@pytest.mark.parametrize("data", [{"text": "a\0b"}, {"a\0": ["\udc00"]}, {"text": "\\u0000 é 🎉"}])
def test_any_text_is_stored(db: StoreFixture, data: dict[str, object]) -> None:
    job_id = db.submit()
    db.write(lambda session: job_events.append(session, job_id, type="message", attempt=None, data=data))
    stored = str(db.events(job_id)[-1].data)
    assert stored == str(data).replace("\\x00", "\ufffd").replace("\\udc00", "\ufffd")


def test_ids_rise_in_the_order_of_their_creation() -> None:
    ids = [new_id("job") for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_ids_of_many_threads_are_distinct_and_rise_in_each() -> None:
    with ThreadPoolExecutor(8) as pool:
        pending = [pool.submit(lambda: [new_id("ckpt") for _ in range(2_000)]) for _ in range(8)]
        found = [future.result() for future in pending]
    assert all(ids == sorted(ids) for ids in found)
    assert len({each for ids in found for each in ids}) == 16_000


@pytest.mark.parametrize(
    "text", ["", "job_", "job_" + "0" * 31, "job_" + "0" * 33, "job_" + "G" * 32, "job_" + "A" * 32, "wrk_" + "0" * 32]
)
def test_invalid_job_ids_are_refused(text: str) -> None:
    assert not is_id(text, "job")
    assert not is_id("job_" + "0" * 32 + "\n", "job")
    assert is_id(new_id("job"), "job")
