"""A pass over a long queue: its cost depends on the number of different requests, and every job is considered."""

from datetime import timedelta
from functools import partial

from sqlalchemy import Update, select, update

from store.jobs import reasons
from store.jobs.facts import DisplayedReason
from store.jobs.shapes import shape
from store.queue.groups import MOST_OF_OWNER, Groups, in_turn
from store.queue.line_facts import Member
from store.queue.placement import read_plan
from store.tables import Job
from tests.approved import Approved
from tests.databases import on_both
from tests.store.fixture import recorded_statements
from tests.worker.schedulers import SchedulersFixture, slot
from torchyard.contract.states import EndReason, JobState

LARGE = {"devices_per_node": 8}


def rows_of(schedulers: SchedulersFixture, job_ids: list[str]) -> set[tuple[str, str]]:
    """Returns the reasons in the jobs' own rows."""
    found = schedulers.store.read(lambda session: session.scalars(select(Job).where(Job.id.in_(job_ids))).all())
    return {(row.reason_code, row.reason_message) for row in found}


def shown(schedulers: SchedulersFixture, job_ids: list[str]) -> set[tuple[str, str]]:
    """Returns the reasons that users see."""
    found = schedulers.store.read(
        lambda session: reasons.displayed(session, session.scalars(select(Job).where(Job.id.in_(job_ids))).all())
    )
    return {(reason.code, reason.message) for reason in found.values()}


@on_both
def test_a_job_that_fits_starts_behind_thousands_that_do_not(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0), slot(1))
    large = schedulers.store.submit_many(3_000, resources=LARGE, priority=1)
    fits = schedulers.submit(2)
    scheduler.run_pass()
    assert scheduler.taken == [fits]
    assert not scheduler.has_more
    assert shown(schedulers, [large[0], large[-1]]) == {("too_big", "needs 8 devices; the largest worker (box) has 2")}


@on_both
def test_more_equal_jobs_cost_a_pass_no_more_statements(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0))

    def executed() -> int:
        with recorded_statements(schedulers.store.database) as found:
            scheduler.run_pass()
        return len(found)

    for resources in (LARGE, {"devices_per_node": 9}):
        schedulers.store.submit_many(2, resources=resources)
    scheduler.run_pass()
    few = executed()
    for resources in (LARGE, {"devices_per_node": 9}):
        schedulers.store.submit_many(500, resources=resources)
    assert executed() == few


@on_both
def test_a_new_reason_of_a_group_is_written_once(schedulers: SchedulersFixture, approved: Approved) -> None:
    scheduler = schedulers.scheduler("box", slot(0), slot(1))
    runs = scheduler.start_job("cpu-0")
    holder, *waiting = schedulers.store.submit_many(300, resources={"devices_per_node": 2})
    rows = rows_of(schedulers, waiting)
    scheduler.run_pass()
    assert schedulers.reason(holder) == ("reserved", approved("needs devices box"))
    of_group = "devices_busy", "needs 2 devices; 1 free on box, reserved for a job of ada"
    assert shown(schedulers, waiting) == {of_group}
    scheduler.start_job("cpu-1")
    with recorded_statements(schedulers.store.database) as found:
        scheduler.run_pass()
    assert schedulers.reason(holder)[1] == approved("reason")
    assert shown(schedulers, waiting) == {(of_group[0], of_group[1].replace("1 free", "0 free"))}
    assert rows_of(schedulers, waiting) == rows
    written = [statement for statement in found if statement.startswith(("INSERT", "UPDATE"))]
    assert [statement.split()[:3] for statement in written if "waiting_reasons" in statement] == [
        ["INSERT", "INTO", "waiting_reasons"]
    ]
    assert len([statement for statement in written if statement.startswith("UPDATE jobs")]) == 1, "the holder's own"
    assert schedulers.store.job(runs.job_id).state == JobState.RUNNING


def test_a_new_job_shows_the_reason_of_its_group_since_its_submission(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0))
    first = schedulers.submit(2)
    assert schedulers.store.reason(first).code == "waiting"
    scheduler.run_pass()
    later = schedulers.submit(2)
    of_first, of_later = schedulers.store.reason(first), schedulers.store.reason(later)
    assert of_later == DisplayedReason(of_first.code, of_first.message, schedulers.store.job(later).created_at)
    scheduler.run_pass()
    assert schedulers.store.reason(later) == of_later


@on_both
def test_the_reason_of_a_group_without_waiting_jobs_is_deleted(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0))
    runs = scheduler.start_job("cpu-0")
    waits, after, other = schedulers.submit(), schedulers.submit(), schedulers.submit(2)
    scheduler.run_pass()
    shapes = {schedulers.store.job(after).shape, schedulers.store.job(other).shape}
    assert set(schedulers.store.read(reasons.by_shape)) == shapes
    schedulers.store.end(runs, EndReason.COMPLETED)
    scheduler.run_pass()
    assert scheduler.taken == [waits]
    assert schedulers.reason(after)[0] == "reserved", "it has a reason of its own now"
    schedulers.store.cancel(after)
    scheduler.run_pass()
    assert set(schedulers.store.read(reasons.by_shape)) == {schedulers.store.job(other).shape}
    schedulers.store.cancel(other)
    assert schedulers.store.read(reasons.any_unused)
    schedulers.store.write(reasons.delete_unused)
    assert schedulers.store.read(reasons.by_shape) == {}


def test_jobs_of_one_group_start_in_the_order_of_submission(
    schedulers: SchedulersFixture,
) -> None:
    scheduler = schedulers.scheduler("box", *(slot(index) for index in range(5)))
    low = [schedulers.submit(), schedulers.submit()]
    high = [schedulers.submit(priority=3), schedulers.submit(priority=3)]
    others = [schedulers.store.submit(owner="bob"), schedulers.store.submit(owner="bob")]
    scheduler.run_pass()
    assert scheduler.taken == [*high, *low, others[0]]


@on_both
def test_a_held_back_job_delays_no_other_and_needs_no_pass(schedulers: SchedulersFixture, approved: Approved) -> None:
    scheduler = schedulers.scheduler("box", slot(0))
    held_back, next_one = schedulers.submit(), schedulers.submit()
    schedulers.store.hold_back(held_back, seconds=3600)
    scheduler.run_pass()
    assert scheduler.taken == [next_one]
    scheduler.run_pass()
    with recorded_statements(schedulers.store.database) as found:
        scheduler.run_pass()
    assert len(found) == 2, "one for jobs that are due, one for the groups"
    assert schedulers.store.reason(held_back).code == "waiting", "it shows its own reason, as its group has none"
    schedulers.store.hold_back(held_back, seconds=-1)
    scheduler.run_pass()
    assert schedulers.store.job(held_back).not_before is None
    assert schedulers.reason(held_back) == ("reserved", approved("reason"))


def test_a_held_back_job_shows_its_own_reason_while_its_group_waits(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0))
    runs = scheduler.start_job("cpu-0")
    failed = schedulers.store.running(schedulers.submit(), scheduler.id, "cpu-9")
    schedulers.store.end(failed, EndReason.DEVICE_FAULT)
    holder, after = schedulers.submit(), schedulers.submit()
    scheduler.run_pass()
    assert [schedulers.reason(job_id)[0] for job_id in (holder, after)] == ["reserved", "devices_busy"]
    assert schedulers.reason(failed.job_id)[0] == "retrying"
    assert schedulers.store.job(runs.job_id).state == JobState.RUNNING


@on_both
def test_jobs_are_preempted_for_as_many_jobs_of_a_group_as_it_helps(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0), slot(1))
    victims = [scheduler.start_job(f"cpu-{index}", preemptible=True) for index in (0, 1)]
    preemptor = schedulers.store.submit_many(10, priority=5)
    scheduler.run_pass()
    assert schedulers.preempted().keys() == {victim.job_id for victim in victims}
    assert sorted(schedulers.preempted().values()) == sorted(preemptor[:2]), "each stops one"
    codes = [schedulers.reason(job_id)[0] for job_id in preemptor[:3]]
    assert codes == ["preempting", "preempting", "reserved"]
    assert {code for code, _ in shown(schedulers, preemptor[3:])} == {"devices_busy"}
    with recorded_statements(schedulers.store.database) as found:
        scheduler.run_pass()
    assert not [statement for statement in found if not statement.startswith(("SELECT", "WITH"))]
    for victim in victims:
        schedulers.store.end(victim, EndReason.PREEMPTED)
        scheduler.run_pass()
    assert sorted(scheduler.taken) == sorted(preemptor[:2])


def test_devices_stay_reserved_for_a_preemptor_that_is_no_longer_the_first_of_its_group(
    schedulers: SchedulersFixture,
) -> None:
    scheduler = schedulers.scheduler("box", slot(0), slot(1))
    older = scheduler.start_job("cpu-0")
    victim = scheduler.start_job("cpu-1", preemptible=True, priority=-1)
    preemptor = schedulers.submit(2, priority=0)
    schedulers.store.write(lambda session: session.execute(_asks_for(older.job_id, like=preemptor)))
    assert schedulers.store.preempt(victim.job_id, preemptor=preemptor)
    schedulers.store.end(older, EndReason.PREEMPTED)
    small = schedulers.submit(1, priority=-5)
    scheduler.run_pass()
    assert scheduler.taken == [], (
        f"{older.job_id} is the first of the group, and the devices stay reserved for {preemptor}"
    )
    assert schedulers.reason(preemptor)[0] == "preempting"
    assert schedulers.reason(small)[0] == "devices_busy"


def _asks_for(job_id: str, *, like: str) -> Update:
    same = select(Job.shape).where(Job.id == like).scalar_subquery()
    spec = select(Job.spec).where(Job.id == like).scalar_subquery()
    return update(Job).where(Job.id == job_id).values(shape=same, spec=spec)


def test_a_preemptor_that_lost_its_devices_shows_the_reason_of_its_group_again(schedulers: SchedulersFixture) -> None:
    scheduler, other = schedulers.scheduler("box", slot(0), slot(1)), schedulers.scheduler("box-b")
    victim = scheduler.start_job("cpu-0", preemptible=True)
    scheduler.start_job("cpu-1")
    preemptor, holder, after = (schedulers.submit(priority=5) for _ in range(3))
    scheduler.run_pass()
    assert [schedulers.reason(job_id)[0] for job_id in (preemptor, holder)] == ["preempting", "reserved"]
    schedulers.store.cancel(victim.job_id)
    schedulers.store.end(victim, EndReason.CANCELLED)
    third = schedulers.store.claim(schedulers.submit(), other.id, "cpu-7")
    assert third is not None
    scheduler.report_devices(slot(1))
    scheduler.run_pass()
    of_group = "devices_busy", "needs 1 device; 0 free on box, reserved for a job of ada"
    assert schedulers.reason(preemptor) == schedulers.reason(after) == of_group


@on_both
def test_a_lost_race_for_a_device_ends_no_pass_and_is_tried_once_for_each_group(
    schedulers: SchedulersFixture,
) -> None:
    scheduler, twin = schedulers.scheduler("box", slot(0), slot(1)), schedulers.scheduler("box-b")
    large = schedulers.submit(2)
    schedulers.store.submit_many(20, resources={"devices_per_node": 1})
    stolen = schedulers.store.submit(priority=-50)
    tried: list[str] = []

    def steal() -> None:
        tried.append("claim")
        if len(tried) == 1:
            kept = scheduler.kept_version()
            assert schedulers.store.claim(stolen, scheduler.id, "cpu-0", reservation=kept) is not None

    scheduler.before_claim = steal
    scheduler.run_pass()
    assert (len(scheduler.taken), len(tried)) == (1, 3), "once for each request, and once when the rows were read again"
    assert schedulers.store.job(large).state == JobState.QUEUED
    assert twin.taken == []
    scheduler.run_pass()
    assert len(scheduler.taken) == 1


def submit_different(schedulers: SchedulersFixture, count: int) -> list[str]:
    """Submits jobs of ada whose requests differ by a hair, and which no worker here can start."""
    resources = ({**LARGE, "min_memory_gb": 1 + place / 1000} for place in range(count))
    return [schedulers.store.submit(resources=each, priority=1) for each in resources]


@on_both
def test_a_pass_looks_at_few_requests_of_one_owner_and_in_turn_at_all(
    schedulers: SchedulersFixture, approved: Approved
) -> None:
    """Thousands of requests of one owner took the others' workers seconds for each pass."""
    scheduler = schedulers.scheduler("box", slot(0), slot(1))
    different = submit_different(schedulers, 150)
    fits = schedulers.submit()
    other = schedulers.submit(owner="bob")
    seen: set[str] = set()
    for turn in range(4):
        found = schedulers.store.read(partial(read_plan, observed={scheduler.id: scheduler.devices}, turn=turn))
        assert found is not None
        line = {job.id for job in found[0].line}
        assert other in line
        assert len(line) <= MOST_OF_OWNER + 1
        seen |= line
    assert seen == {*different, fits, other}
    for _ in range(4):
        scheduler.run_pass()
    assert set(scheduler.taken) == {fits, other}
    assert scheduler.has_more, "the next pass comes soon, and looks at others"
    ((_, message),) = shown(schedulers, different[:1])
    assert message == approved("message")


def test_of_very_many_requests_the_first_are_always_looked_at_and_the_others_in_turn() -> None:
    ada, bob = (
        [(shape(name, {"memory_gb": place}, preemptible=False, limit=timedelta()), 0) for place in range(count)]
        for name, count in (("ada", 100), ("bob", MOST_OF_OWNER))
    )
    heads = {group: Member(f"job_{place}", place) for place, group in enumerate([*ada, *bob])}
    looks = [in_turn(heads, turn) for turn in range(3)]
    assert all(set(bob) <= look.keys() for look in looks), "they are not too many"
    assert all(len(look.keys() & set(ada)) == MOST_OF_OWNER for look in looks)
    assert set.intersection(*(look.keys() & set(ada) for look in looks)) == {*ada[: MOST_OF_OWNER // 2]}
    assert set(ada) <= {group for look in looks for group in look}


def test_a_request_that_is_asked_for_is_looked_at_in_any_turn(schedulers: SchedulersFixture) -> None:
    last = schedulers.store.job(submit_different(schedulers, MOST_OF_OWNER + 36)[-1])
    with schedulers.store.database.read() as session:
        groups = Groups(session)
        assert last.id not in {job.id for job in groups.heads()}
        assert last.id in {job.id for job in groups.heads(also=(last.shape, last.priority))}
        assert groups.crowded == {"ada"}
