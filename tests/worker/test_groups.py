"""A pass over a long queue: it costs by the number of different requests, and hides no job."""

from contextlib import closing
from dataclasses import dataclass, field, replace
import os

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Update, select, update

from store.db.database import Database
from store.db.tables import Job
from store.queue import Queue
from store.rows import reasons
from store.rows.reasons import DisplayedReason
from tests.databases import Databases, on_both
from tests.store.fixture import StoreFixture, recorded_statements
from tests.worker.rack import Rack
from tests.worker.test_schedule import slot
from torchyard.contract.job import EndReason, JobState

LARGE = {"devices_per_node": 8}


def rows_of(rack: Rack, job_ids: list[str]) -> set[tuple[str, str]]:
    """What the jobs' own rows say."""
    found = rack.yard.read(lambda session: session.scalars(select(Job).where(Job.id.in_(job_ids))).all())
    return {(row.reason_code, row.reason_message) for row in found}


def shown(rack: Rack, job_ids: list[str]) -> set[tuple[str, str]]:
    """What users see."""
    found = rack.yard.read(
        lambda session: reasons.displayed(session, session.scalars(select(Job).where(Job.id.in_(job_ids))).all())
    )
    return {(reason.code, reason.message) for reason in found.values()}


@on_both
def test_a_job_that_fits_starts_behind_more_than_ten_thousand_that_do_not(rack: Rack) -> None:
    hand = rack.hand("box", slot(0), slot(1))
    large = rack.yard.submit_many(10_000, resources=LARGE, priority=1)
    fits = rack.submit(2)
    hand.look()
    assert hand.taken == [fits]
    assert shown(rack, [large[0], large[-1]]) == {("too_big", "needs 8 devices; the largest worker, box, has 2")}


@on_both
def test_a_pass_executes_no_more_statements_for_more_alike_jobs(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))

    def executed() -> int:
        with recorded_statements(rack.yard.database) as found:
            hand.look()
        return len(found)

    for resources in (LARGE, {"devices_per_node": 9}):
        rack.yard.submit_many(2, resources=resources)
    hand.look()
    few = executed()
    for resources in (LARGE, {"devices_per_node": 9}):
        rack.yard.submit_many(500, resources=resources)
    assert executed() == few


@on_both
def test_a_new_sentence_for_a_whole_group_is_one_write(rack: Rack) -> None:
    hand = rack.hand("box", slot(0), slot(1))
    runs = hand.runs("cpu-0")
    waiting = rack.yard.submit_many(300, resources={"devices_per_node": 2})
    rows = rows_of(rack, waiting)
    hand.look()
    assert shown(rack, waiting) == {("devices_busy", "needs 2 devices; 1 free on box")}
    hand.runs("cpu-1")
    with recorded_statements(rack.yard.database) as found:
        hand.look()
    assert shown(rack, waiting) == {("devices_busy", "needs 2 devices; 0 free on box")}
    assert rows_of(rack, waiting) == rows
    written = [statement for statement in found if statement.startswith(("INSERT", "UPDATE"))]
    assert [statement.split()[:3] for statement in written] == [["INSERT", "INTO", "waiting_reasons"]]
    assert rack.yard.job(runs.job_id).state == JobState.RUNNING


def test_a_job_has_the_reason_of_its_group_since_it_waits(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))
    first = rack.submit(2)
    assert rack.yard.reason(first).code == "waiting"
    hand.look()
    later = rack.submit(2)
    of_first, of_later = rack.yard.reason(first), rack.yard.reason(later)
    assert of_later == DisplayedReason(of_first.code, of_first.message, rack.yard.job(later).created_at)
    hand.look()
    assert rack.yard.reason(later) == of_later


@on_both
def test_what_was_said_of_jobs_that_wait_no_more_is_forgotten(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))
    runs = hand.runs("cpu-0")
    waits, other = rack.submit(), rack.submit(2)
    hand.look()
    assert len(rack.yard.read(reasons.by_shape)) == 2
    rack.yard.end(runs, EndReason.COMPLETED)
    hand.look()
    assert hand.taken == [waits]
    assert set(rack.yard.read(reasons.by_shape)) == {rack.yard.job(other).shape}
    rack.yard.cancel(other)
    assert rack.yard.read(reasons.any_unused)
    rack.yard.write(reasons.delete_unused)
    assert rack.yard.read(reasons.by_shape) == {}


def test_jobs_of_one_group_start_in_the_order_of_their_submission_as_long_as_devices_are_free(rack: Rack) -> None:
    hand = rack.hand("box", *(slot(index) for index in range(5)))
    low = [rack.submit(), rack.submit()]
    high = [rack.submit(priority=3), rack.submit(priority=3)]
    others = [rack.yard.submit(owner="bob"), rack.yard.submit(owner="bob")]
    hand.look()
    assert hand.taken == [*high, *low, others[0]]


@on_both
def test_one_that_is_held_back_hides_no_other_and_costs_no_pass(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))
    held_back, next_one = rack.submit(), rack.submit()
    rack.yard.hold_back(held_back, seconds=3600)
    hand.look()
    assert hand.taken == [next_one]
    hand.look()
    with recorded_statements(rack.yard.database) as found:
        hand.look()
    assert len(found) == 2, "whether any is due, and the groups"
    assert rack.yard.reason(held_back).code == "waiting", "its own: its group has none"
    rack.yard.hold_back(held_back, seconds=-1)
    hand.look()
    assert rack.yard.job(held_back).not_before is None
    assert rack.reason(held_back) == ("devices_busy", "needs 1 device; 0 free on box")


def test_a_job_that_is_held_back_says_so_while_its_group_waits(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))
    runs = hand.runs("cpu-0")
    failed = rack.yard.running(rack.submit(), hand.id, "cpu-9")
    rack.yard.end(failed, EndReason.DEVICE_FAULT)
    behind = rack.submit()
    hand.look()
    assert rack.reason(behind)[0] == "devices_busy"
    assert rack.reason(failed.job_id)[0] == "retrying"
    assert rack.yard.job(runs.job_id).state == JobState.RUNNING


@on_both
def test_what_an_older_program_has_queued_or_said_is_seen(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))
    old = rack.yard.submit_many(1500, resources=LARGE)
    fits = rack.submit()
    shapeless = update(Job).where(Job.id.in_([*old, fits])).values(shape=None, reason_message="as of an older worker")
    rack.yard.write(lambda session: session.execute(shapeless))
    hand.look()
    assert hand.taken == [fits]
    assert shown(rack, old) == {("too_big", "needs 8 devices; the largest worker, box, has 1")}


@on_both
def test_room_is_made_for_one_of_a_group_after_the_other(rack: Rack) -> None:
    hand = rack.hand("box", slot(0), slot(1))
    victims = [hand.runs(f"cpu-{index}", preemptible=True) for index in (0, 1)]
    urgent = rack.yard.submit_many(50, priority=5)
    hand.look()
    (first,) = rack.asked()
    assert rack.asked() == {first: urgent[0]}
    assert rack.reason(urgent[0])[0] == "preempting"
    assert {code for code, _ in shown(rack, urgent[1:])} == {"devices_busy"}
    with recorded_statements(rack.yard.database) as found:
        hand.look()
    assert not [statement for statement in found if not statement.startswith(("SELECT", "WITH"))]
    for victim in sorted(victims, key=lambda victim: victim.job_id != first):
        rack.yard.end(victim, EndReason.PREEMPTED)
        hand.look()
    assert hand.taken == urgent[:2]


def test_devices_are_kept_for_a_job_that_came_to_stand_behind_another_of_its_group(rack: Rack) -> None:
    hand = rack.hand("box", slot(0), slot(1))
    older = hand.runs("cpu-0")
    victim = hand.runs("cpu-1", preemptible=True, priority=-1)
    urgent = rack.submit(2, priority=0)
    rack.yard.write(lambda session: session.execute(_asks_for(older.job_id, like=urgent)))
    assert rack.yard.preempt(victim.job_id, preemptor=urgent)
    rack.yard.end(older, EndReason.PREEMPTED)
    small = rack.submit(1, priority=-5)
    hand.look()
    assert hand.taken == [], f"{older.job_id} is the first of the group, and what {urgent} needs is kept nevertheless"
    assert rack.reason(urgent)[0] == "preempting"
    assert rack.reason(small)[0] == "devices_busy"


def _asks_for(job_id: str, *, like: str) -> Update:
    same = select(Job.shape).where(Job.id == like).scalar_subquery()
    spec = select(Job.spec).where(Job.id == like).scalar_subquery()
    return update(Job).where(Job.id == job_id).values(shape=same, spec=spec)


def test_a_job_for_which_room_was_made_in_vain_waits_as_its_group_does(rack: Rack) -> None:
    hand, other = rack.hand("box", slot(0), slot(1)), rack.hand("box-b")
    victim = hand.runs("cpu-0", preemptible=True)
    hand.runs("cpu-1")
    urgent, behind = rack.submit(priority=5), rack.submit(priority=5)
    hand.look()
    assert rack.reason(urgent)[0] == "preempting"
    rack.yard.cancel(victim.job_id)
    rack.yard.end(victim, EndReason.CANCELLED)
    third = rack.yard.claim(rack.submit(), other.id, "cpu-7")
    assert third is not None
    hand.seen(slot(1))
    hand.look()
    assert rack.reason(urgent) == rack.reason(behind) == ("devices_busy", "needs 1 device; 0 free on box")


@on_both
def test_a_device_that_is_not_to_be_had_ends_no_pass_and_is_tried_once_for_each_group(rack: Rack) -> None:
    hand, twin = rack.hand("box", slot(0), slot(1)), rack.hand("box-b")
    rack.yard.submit_many(20, resources={"devices_per_node": 1})
    large = rack.submit(2)
    stolen = rack.yard.submit(priority=-50)
    tried: list[str] = []

    def steal() -> None:
        tried.append("claim")
        if len(tried) == 1:
            assert rack.yard.claim(stolen, hand.id, "cpu-0") is not None

    hand.meanwhile = steal
    hand.look()
    assert (hand.taken, tried) == ([], ["claim", "claim"]), "once for each request"
    assert rack.yard.job(large).state == JobState.QUEUED
    assert twin.taken == []
    hand.look()
    assert len(hand.taken) == 1, "the other device"


@dataclass(frozen=True)
class Asked:
    count: int
    priority: int
    owner: str
    held_back: bool


@dataclass(frozen=True)
class Turn:
    submitted: list[Asked]
    release: bool
    """Whether those that are held back may start from now on."""
    ends: int
    """How many of those that run end after the pass."""


@dataclass
class Naive:
    """A scheduler that looks at each job."""

    free: int
    waiting: dict[str, Asked] = field(default_factory=dict[str, Asked])
    running: dict[str, Asked] = field(default_factory=dict[str, Asked])
    taken: list[str] = field(default_factory=list[str])

    def look(self) -> None:
        for job_id in sorted(self.waiting, key=lambda job_id: (-self.waiting[job_id].priority, job_id)):
            job = self.waiting[job_id]
            if job.count <= self.free and not job.held_back:
                self.running[job_id] = self.waiting.pop(job_id)
                self.free -= job.count
                self.taken.append(job_id)

    def release(self) -> list[str]:
        held_back = [job_id for job_id, job in self.waiting.items() if job.held_back]
        for job_id in held_back:
            self.waiting[job_id] = replace(self.waiting[job_id], held_back=False)
        return held_back

    def end(self, count: int) -> list[str]:
        ended = list(self.running)[:count]
        self.free += sum(self.running.pop(job_id).count for job_id in ended)
        return ended


ASKED = st.builds(
    Asked,
    count=st.integers(1, 3),
    priority=st.integers(-1, 1),
    owner=st.sampled_from(["ada", "bob"]),
    held_back=st.booleans(),
)
TURNS = st.lists(
    st.builds(Turn, submitted=st.lists(ASKED, max_size=6), release=st.booleans(), ends=st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=int(os.environ.get("TORCHYARD_MODEL_EXAMPLES", "15")))
@given(turns=TURNS, slots=st.integers(1, 4))
def test_jobs_start_as_if_each_were_looked_at(databases: Databases, turns: list[Turn], slots: int) -> None:
    with databases.migrated() as url, closing(Database(url)) as database:
        rack = Rack(StoreFixture(database), Queue("unix:///nowhere/redis.sock"))
        hand, naive = rack.hand("box", *(slot(index) for index in range(slots))), Naive(slots)
        for turn in turns:
            for asked in turn.submitted:
                resources = {"devices_per_node": asked.count}
                job_id = rack.yard.submit(owner=asked.owner, priority=asked.priority, resources=resources)
                naive.waiting[job_id] = asked
                if asked.held_back:
                    rack.yard.hold_back(job_id, seconds=3600)
            for job_id in naive.release() if turn.release else []:
                rack.yard.hold_back(job_id, seconds=-1)
            hand.look()
            naive.look()
            assert hand.taken == naive.taken
            for job_id in naive.end(turn.ends):
                rack.yard.end(hand.claims[job_id], EndReason.USER_ERROR)
