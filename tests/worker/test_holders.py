"""What becomes of a kept place when something happens to its holder, to its host, or to the clock."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import inspect, update

from store.attempts.facts import Claim
from store.ids import new_id
from store.jobs import deletion, edits
from store.jobs.shapes import shape_of
from store.tables import Attempt, Job, Reservation, Usage, Worker
from store.team import quotas, users
from store.team.callers import SERVICE
from tests.databases import on_both, quick_on_sqlite
from tests.worker.schedulers import SchedulerFixture, SchedulersFixture, slot
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Resource, Role

HOUR = 3_600_000_000
FOREIGN = "GPU 1 is in use by a foreign process (pid 7)"


@dataclass
class KeptHost:
    """A host of two slots on which a job of one runs, and reserved for a job of two; another one is behind it."""

    schedulers: SchedulersFixture
    box: SchedulerFixture
    runs: Claim
    holder: str
    after: str

    @classmethod
    def of(cls, schedulers: SchedulersFixture) -> "KeptHost":
        box = schedulers.scheduler("box", slot(0), slot(1))
        runs = box.start_job("cpu-0", owner="eve")
        both = {"devices_per_node": 2}
        kept = cls(
            schedulers,
            box,
            runs,
            schedulers.store.submit(owner="ada", resources=both),
            schedulers.store.submit(owner="bob", resources=both),
        )
        box.run_pass()
        assert kept.kept_for() == kept.holder
        return kept

    def kept_for(self) -> str | None:
        """Returns for which job the host is kept."""
        found = self.schedulers.store.kept().get(self.box.id)
        return None if found is None else found[0]

    def start_next(self) -> list[str]:
        """Lets the running job end. Returns what starts then."""
        self.schedulers.store.end(self.runs, EndReason.COMPLETED)
        self.box.run_pass()
        return self.box.taken


def _limit(kept: KeptHost) -> None:
    store = kept.schedulers.store
    store.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    store.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.DEVICES: 1}, caller=SERVICE))


def _delete(kept: KeptHost) -> None:
    kept.schedulers.store.cancel(kept.holder)
    kept.schedulers.store.write(lambda session: deletion.delete_job(session, kept.holder))


def _reprice(kept: KeptHost, priority: int) -> None:
    patch = parse_patch({"priority": priority})
    kept.schedulers.store.write(lambda session: edits.change(session, kept.holder, patch))


LOSES: dict[str, Callable[[KeptHost], object]] = {
    "cancelled": lambda kept: kept.schedulers.store.cancel(kept.holder),
    "paused": lambda kept: kept.schedulers.store.pause(kept.holder),
    "deleted": _delete,
    "lower": lambda kept: _reprice(kept, -5),
    "over quota": _limit,
    "held back": lambda kept: kept.schedulers.store.hold_back(kept.holder, seconds=3600),
}


@quick_on_sqlite
@pytest.mark.parametrize("what", LOSES)
def test_the_place_of_a_holder_that_may_not_start_is_the_next_ones(schedulers: SchedulersFixture, what: str) -> None:
    kept = KeptHost.of(schedulers)
    LOSES[what](kept)
    kept.box.run_pass()
    assert kept.kept_for() == kept.after
    assert kept.start_next() == [kept.after]


@quick_on_sqlite
def test_a_holder_of_a_higher_priority_keeps_its_place(schedulers: SchedulersFixture) -> None:
    kept = KeptHost.of(schedulers)
    _reprice(kept, 5)
    kept.box.run_pass()
    assert kept.kept_for() == kept.holder
    assert kept.start_next() == [kept.holder]


@quick_on_sqlite
def test_a_holder_that_is_asked_for_while_its_claim_is_made_does_not_start(schedulers: SchedulersFixture) -> None:
    kept = KeptHost.of(schedulers)
    kept.box.before_claim = lambda: schedulers.store.cancel(kept.holder)
    assert kept.start_next() == [kept.after]


def _drain(schedulers: SchedulersFixture, host: SchedulerFixture) -> None:
    schedulers.store.drain(host.id)


def _lose(schedulers: SchedulersFixture, host: SchedulerFixture) -> None:
    """Lets the last heartbeat of the worker be old."""
    old = update(Worker).where(Worker.id == host.id).values(seen_at=0)
    schedulers.store.write(lambda session: session.execute(old))


HOST_EVENTS: dict[str, Callable[[SchedulersFixture, SchedulerFixture], object]] = {
    "drains": _drain,
    "is lost": _lose,
    "loses a device": lambda _, host: host.report_devices(slot(0)),
    "has a foreign process": lambda _, host: host.report_devices(slot(0), replace(slot(1), blocked=FOREIGN)),
}


@quick_on_sqlite
@pytest.mark.parametrize("what", HOST_EVENTS)
def test_a_holder_gets_another_place_when_its_host_cannot_run_it(schedulers: SchedulersFixture, what: str) -> None:
    both = [schedulers.scheduler(name, slot(0), slot(1)) for name in ("one", "two")]
    running = {host.id: host.start_job("cpu-0") for host in both}
    holder = schedulers.submit(2)
    both[0].run_pass()
    (first,) = schedulers.store.kept()
    host, other = sorted(both, key=lambda host: host.id != first)
    HOST_EVENTS[what](schedulers, host)
    assert other.kept_version() is None
    other.run_pass()
    assert schedulers.store.kept() == {other.id: (holder, 1)}
    schedulers.store.end(running[host.id], EndReason.COMPLETED)
    if what != "is lost":
        host.run_pass()
    schedulers.store.end(running[other.id], EndReason.COMPLETED)
    other.run_pass()
    assert (host.taken, other.taken) == ([], [holder])


@pytest.mark.parametrize("hours", [-30, *(pytest.param(hours, marks=pytest.mark.thorough) for hours in (-1, 1)), 1000])
@on_both
def test_a_clock_that_jumps_loses_no_place(schedulers: SchedulersFixture, hours: int) -> None:
    kept = KeptHost.of(schedulers)
    _jump(schedulers, hours * HOUR)
    kept.box.report_devices(*kept.box.devices)
    kept.box.run_pass()
    assert kept.kept_for() == kept.holder
    assert kept.start_next() == [kept.holder]
    schedulers.store.end(kept.box.claims[kept.holder], EndReason.PREEMPTED)
    kept.box.run_pass()
    assert kept.box.taken[1] in {kept.holder, kept.after}


def _jump(schedulers: SchedulersFixture, us: int) -> None:
    """Lets all that is stored be as if the database's clock had jumped forward by so much."""
    times = (
        (Job, ("created_at", "started_at", "lined_at", "reason_since")),
        (Attempt, ("started_at", "lease_until")),
        (Reservation, ("due", "bound", "since")),
        (Usage, ("at",)),
        (Worker, ("started_at", "seen_at")),
    )
    for table, names in times:
        earlier = update(table).values({name: getattr(table, name) - us for name in names})
        schedulers.store.write(lambda session, earlier=earlier: session.execute(earlier))


@on_both
def test_of_hundreds_of_owners_without_runs_each_has_its_turn(schedulers: SchedulersFixture) -> None:
    box = schedulers.scheduler("box", slot(0), slot(1))
    like = schedulers.store.job(schedulers.submit(2))
    row = {item.key: getattr(like, item.key) for item in inspect(Job).column_attrs if item.key != "notes"}
    owners = [f"owner-{number}" for number in range(300)]
    rows = [Job(**{**row, "id": new_id("job"), "owner": one, "shape": shape_of(one, like.spec)}) for one in owners]
    ids = [like.id, *(job.id for job in rows)]
    schedulers.store.write(lambda session: session.add_all(rows))
    for _ in range(3):
        box.run_pass()
        schedulers.store.complete(box.claims[box.taken[-1]])
    assert box.taken == ids[:3]
