"""Groups of waiting jobs: their first jobs, their reasons, their waits, and positions in the queue."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update

from store.attempts import state as attempts
from store.cluster import occupancy as cluster
from store.jobs import jobs, queued, reasons
from store.jobs.facts import QueueCursor
from store.jobs.shapes import shape_of
from store.queue import placement, positions, waiting
from store.queue.groups import Groups
from store.tables import Attempt, Job, WaitingReason
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from torchyard.contract.states import EndReason, Reason

BUSY = Reason("devices_busy", "needs 1 device; 0 free on box-a")


def test_the_first_job_of_each_group_and_its_successors_are_found(db: StoreFixture) -> None:
    first, second, third = (db.submit() for _ in range(3))
    urgent = [db.submit(priority=7), db.submit(priority=7)]
    others = [db.submit(owner="bob"), db.submit(resources={"devices_per_node": 2}), db.submit(priority=-100)]
    db.cancel(second)
    with db.database.read() as session:
        groups = Groups(session)
        found = {job.id: job for job in groups.heads()}
        assert found.keys() == {first, urgent[0], *others}
        assert [job.id for job in groups.more(found[first].group, limit=2)] == [third]
        assert groups.going_on([job.group for job in found.values()]) != []
        assert found[first].group not in groups.going_on([found[first].group]), "it has no more"
        assert [groups.more(found[job_id].group, limit=1) for job_id in others] == [[]] * 3
    with db.database.read() as session:
        groups = Groups(session)
        groups.heads()
        assert [job.id for job in groups.more(found[first].group, limit=1)] == [third]


def test_a_shape_says_what_a_job_waits_for() -> None:
    def shape(owner: str = "ada", ran_us: int = 0, **changes: Any) -> str:
        return shape_of(owner, {"resources": {"a": 1, "b": 2}, **changes}, ran_us=ran_us)

    minutes = 60_000_000
    assert shape() == shape(resources={"b": 2, "a": 1}) == shape(name="other", priority=7) == shape(ran_us=minutes)
    assert shape() == shape(time_limit="24h", preemptible=False), "these are the defaults"
    others = {
        shape(owner="bob"),
        shape(resources={"a": 2}),
        shape(preemptible=True),
        shape(time_limit="12h"),
        shape(ran_us=31 * minutes),
        shape(ran_us=10 * 60 * minutes),
    }
    assert len(others | {shape()}) == 7
    assert shape(ran_us=48 * 60 * minutes) == shape(ran_us=49 * 60 * minutes), "nothing is left"
    assert shape(time_limit="3 moons") == shape(), "only a newer program understands it"


def test_a_job_that_is_queued_again_has_the_shape_of_what_is_left(db: StoreFixture) -> None:
    job_id, like = db.submit(), db.submit()
    claim = db.running(job_id, db.worker())
    began = (
        update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=Attempt.started_at - 40 * 60 * 10**6)
    )
    db.write(lambda session: session.execute(began))
    db.end(claim, EndReason.PREEMPTED)
    job = db.job(job_id)
    assert job.shape == shape_of("ada", job.spec, needs=job.needs, ran_us=job.ran_us) != db.job(like).shape
    db.pause(job_id)
    db.resume(job_id)
    assert db.job(job_id).shape == job.shape


def test_the_first_jobs_of_all_groups_are_read_by_three_statements(db: StoreFixture) -> None:
    for count in range(1, 9):
        db.submit_many(20, resources={"devices_per_node": count})
    with recorded_statements(db.database) as found:
        assert len(db.heads()) == 8
    assert len(found) == 3, "one finds them, one reads their rows, and one how long their owners' jobs take"


def test_many_ungrouped_jobs_are_grouped_in_several_transactions(db: StoreFixture) -> None:
    held_back = db.submit_many(2001)
    db.write(lambda session: session.execute(update(Job).values(not_before=1)))
    assert db.heads() == []
    placement.group_waiting_jobs(store_on(db.database))
    with db.database.read() as session:
        assert session.scalars(select(Job.id).where(Job.not_before.is_not(None))).all() == []
    assert db.heads() == [min(held_back)]


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

    for turn in range(3):
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
    assert db.read(lambda session: positions.find_positions(session, rows)) == expected
    some = [row for row in rows if expected.get(row.id, 0) % 3 == 1]
    assert db.read(lambda session: positions.find_positions(session, some)) == {
        row.id: expected[row.id] for row in some
    }
    assert db.place(order[-1]) == len(order)


def test_pages_of_the_queue_continue_across_priorities(db: StoreFixture) -> None:
    for priority in (0, 3, -2, 3):
        db.submit_many(3, priority=priority)
    order = db.read(jobs.queued)
    seen: list[tuple[int, str]] = []
    last: QueueCursor | None = None
    while (page := db.read(lambda session: queued.list_queue(session, limit=5, after=last))).items:  # noqa: B023
        seen += [(queued.in_line, queued.id) for queued in page.items]
        last = page.last
    assert seen == [(place, job_id) for place, (job_id, _) in enumerate(order, start=1)]


def test_a_running_job_has_waited_since_its_first_start_and_a_waiting_one_in_all(db: StoreFixture) -> None:
    worker, job_id = db.worker(), db.submit()

    def wait(hours: int) -> None:
        """Lets the job have waited so much longer until now."""
        us = hours * 3_600_000_000
        earlier = {"lined_at": Job.lined_at - us, "created_at": Job.created_at - us}
        values = earlier if db.job(job_id).attempt == 0 else {"lined_at": earlier["lined_at"]}
        db.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(values)))

    def waited_hours() -> int:
        (job,) = db.read(cluster.running)
        return round(job.waited_us / 3_600_000_000)

    wait(30)
    claim = db.running(job_id, worker)
    assert waited_hours() == 0
    db.end(claim, EndReason.PREEMPTED)
    wait(5)
    (job,) = db.read(lambda session: waiting.waiting_among(session, [job_id]))
    assert round(job.waited_us / 3_600_000_000) == 35
    db.running(job_id, worker)
    assert waited_hours() == 5


def test_a_job_has_its_home_where_its_last_attempt_ran(db: StoreFixture) -> None:
    first, second = db.worker("a"), db.worker("b")
    job_id = db.submit(max_restarts=9)

    def home(job_id: str) -> str | None:
        db.write(waiting.group_jobs)
        (job,) = db.read(lambda session: waiting.waiting_among(session, [job_id]))
        return job.home

    def attempt(worker: str, reason: EndReason, *, ran: bool = True) -> None:
        db.hold_back(job_id, seconds=-1)
        claim = db.starting(job_id, worker)
        if ran:
            db.write(lambda session: attempts.mark_launched(session, claim, {"pid": 1}))
        db.end(claim, reason)
        db.hold_back(job_id, seconds=-1)

    assert home(job_id) is None
    attempt(first, EndReason.PREEMPTED)
    assert home(job_id) == first
    attempt(second, EndReason.USER_ERROR)
    assert home(job_id) == second
    attempt(second, EndReason.WORKER_LOST)
    assert home(job_id) is None
    attempt(first, EndReason.PREEMPTED)
    attempt(second, EndReason.PREEMPTED, ran=False)
    assert home(job_id) is None
    attempt(first, EndReason.PREEMPTED)
    db.cancel(job_id)
    assert home(db.retry(job_id)) == first
    assert home(db.retry(job_id, fresh=True)) is None
