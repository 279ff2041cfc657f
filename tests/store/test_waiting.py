"""Groups of waiting jobs: their first jobs, their reasons, and positions in the queue."""

from collections.abc import Mapping

from sqlalchemy import select, update

from scheduling.snapshot import Waiting
from store.announcement import Announcement
from store.commands import placement
from store.db.tables import Job, WaitingReason
from store.facts.jobs import QueueCursor
from store.queue import Queue
from store.rows import jobs, listing, queue_positions, reasons, waiting
from store.rows.shapes import shape_of
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from torchyard.contract.job import Reason

BUSY = Reason("devices_busy", "needs 1 device; 0 free on box-a")


def test_the_first_job_of_each_group_and_its_successors_are_found(db: StoreFixture) -> None:
    first, second, third = (db.submit() for _ in range(3))
    urgent = [db.submit(priority=7), db.submit(priority=7)]
    others = [db.submit(owner="bob"), db.submit(resources={"devices_per_node": 2}), db.submit(priority=-100)]
    db.cancel(second)
    found = {head.id: head for head in db.read(waiting.group_heads)}
    assert found.keys() == {first, urgent[0], *others}

    def after(job: Waiting, limit: int = 2) -> list[Waiting]:
        return db.read(lambda session: waiting.next_of_group(session, job, limit=limit))

    (follows,) = after(found[first])
    assert (follows.id, follows.group) == (third, (found[first].shape, 0))
    assert after(follows) == []
    assert [after(found[job_id]) for job_id in others] == [[]] * 3
    fourth = db.submit()
    assert [job.id for job in after(found[first])] == [third, fourth]
    assert [job.id for job in after(found[first], limit=1)] == [third]


def test_a_shape_depends_only_on_the_owner_and_the_resources() -> None:
    assert shape_of("ada", {"a": 1, "b": 2}) == shape_of("ada", {"b": 2, "a": 1})
    assert len({shape_of("ada", {"a": 1}), shape_of("ada", {"a": 2}), shape_of("bob", {"a": 1})}) == 3


def test_the_first_jobs_of_all_groups_are_read_by_one_statement(db: StoreFixture) -> None:
    for count in range(1, 9):
        db.submit_many(20, resources={"devices_per_node": count})
    with recorded_statements(db.database) as found:
        assert len(db.read(waiting.group_heads)) == 8
    assert len(found) == 1


def test_many_ungrouped_jobs_are_grouped_in_several_transactions(db: StoreFixture) -> None:
    held_back = db.submit_many(2001)
    db.write(lambda session: session.execute(update(Job).values(not_before=1)))
    assert db.read(waiting.group_heads) == []
    placement.group_waiting_jobs(store_on(db.database))
    with db.database.read() as session:
        assert session.scalars(select(Job.id).where(Job.not_before.is_not(None))).all() == []
    assert [head.id for head in db.read(waiting.group_heads)] == [min(held_back)]


def test_the_reason_of_a_group_is_written_only_if_it_changes(db: StoreFixture) -> None:
    job = db.job(db.submit())

    def say(reason: Reason) -> tuple[str, int]:
        db.write(lambda session: reasons.store_reasons(session, {job.shape: reason}))
        row = db.read(lambda session: session.scalars(select(WaitingReason)).one())
        return row.message, row.since

    first = say(BUSY)
    assert say(BUSY) == first
    assert say(Reason("devices_busy", "another"))[0] == "another"
    assert db.job(job.id).version == 1


def test_workers_that_write_many_reasons_together_do_not_deadlock(db: StoreFixture) -> None:
    shapes = [f"{number:032x}" for number in range(200)]

    def say(name: str, order: list[str]) -> None:
        news: Mapping[str, Reason] = {shape: Reason("devices_busy", f"{name} {shape}") for shape in order}
        db.write(lambda session: reasons.store_reasons(session, news))

    def forget(_: int) -> None:
        db.write(reasons.delete_unused)

    for turn in range(5):
        done = run_together(
            lambda: say(f"a{turn}", shapes),  # noqa: B023
            lambda: say(f"b{turn}", shapes[::-1]),  # noqa: B023
            lambda: forget(turn),  # noqa: B023
        )
        assert done == [None, None, None]


def test_each_job_has_its_position_in_a_queue_of_many_priorities(db: StoreFixture) -> None:
    for priority in (0, 3, -2, 3, 0, 100):
        db.submit_many(3, priority=priority)
    db.cancel(db.read(jobs.queued)[4][0])
    order = [job_id for job_id, _ in db.read(jobs.queued)]
    expected = {job_id: place for place, job_id in enumerate(order, start=1)}
    rows = db.read(lambda session: session.scalars(select(Job)).all())
    assert db.read(lambda session: queue_positions.queue_positions(session, rows)) == expected
    some = [row for row in rows if expected.get(row.id, 0) % 3 == 1]
    assert db.read(lambda session: queue_positions.queue_positions(session, some)) == {
        row.id: expected[row.id] for row in some
    }
    waits = next(row for row in rows if row.id == order[-1])
    assert db.read(lambda session: queue_positions.queue_position(session, waits)) == len(order)


def test_pages_of_the_queue_continue_across_priorities(db: StoreFixture) -> None:
    for priority in (0, 3, -2, 3):
        db.submit_many(3, priority=priority)
    order = db.read(jobs.queued)
    seen: list[tuple[int, str]] = []
    last: QueueCursor | None = None
    while page := db.read(lambda session: listing.queue(session, limit=5, after=last)).items:  # noqa: B023
        seen += [(queued.place, queued.id) for queued in page]
        last = QueueCursor(page[-1].priority, page[-1].id)
    assert seen == [(place, job_id) for place, (job_id, _) in enumerate(order, start=1)]


def test_only_the_length_of_a_long_queue_in_redis_is_compared(queue: Queue) -> None:
    places_of = {f"job_{number:04}": 0 for number in range(1500)}
    queue.announce(Announcement(changed={"job_0000"}, priorities=dict(places_of)))
    read: list[str] = []

    def rows() -> list[tuple[str, int]]:
        read.append("rows")
        return sorted(places_of.items())

    assert not queue.rebuild(rows, count=lambda: 1500)
    assert read == []
    places_of["job_new"] = 0
    assert queue.rebuild(rows, count=lambda: 1501)
    assert queue.waiting() == sorted(places_of)
