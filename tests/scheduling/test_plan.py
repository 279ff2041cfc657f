"""The plan, without a database: against what was recorded, by examples, and by what holds of all plans."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scheduling import plan as planning
from scheduling.plan import Plan, plan, used_up
from scheduling.quotas import Allowance
from scheduling.snapshot import Device, Group, Host, Running, Snapshot, Waiting
from tests.scheduling.outcomes import recorded
from tests.scheduling.snapshots import outcome_of, snapshot_of
from tests.scheduling.worlds import COUNT, any_world, world
from torchyard.contract.fitting import suitable
from torchyard.contract.spec import Resources

HERE, THERE = "wrk_here", "wrk_there"
SNAPSHOTS = st.randoms(use_true_random=False).map(lambda random: snapshot_of(any_world(random)))


def test_a_plan_is_what_the_scheduler_before_it_did() -> None:
    expected = recorded()
    assert len(expected) == COUNT
    for number in range(COUNT):
        snapshot = snapshot_of(world(number))
        assert outcome_of(plan(snapshot), snapshot) == expected[number], number


@given(SNAPSHOTS)
def test_each_device_that_a_plan_gives_is_free_and_suits_one_job(snapshot: Snapshot) -> None:
    (here,) = (host for host in snapshot.hosts if host.id == snapshot.here)
    starts = plan(snapshot).starts
    given_away = [device for start in starts for device in start.placement.devices]
    assert max(Counter(device.uuid for device in given_away).values(), default=1) == 1
    assert all(device in here.devices and device.job_id is None and device.blocked is None for device in given_away)
    assert not (starts and here.draining)
    for start in starts:
        assert start.placement.worker_id == here.id
        assert len(start.placement.devices) == start.job.resources.total_devices
        assert all(device in suitable(start.job.resources, here.devices) for device in start.placement.devices)


@given(SNAPSHOTS, st.integers(1, 3), st.integers(0, 2))
def test_a_plan_keeps_quotas(snapshot: Snapshot, devices: int, running: int) -> None:
    owners = {job.owner for job in snapshot.line}
    limited = {owner: Allowance(owner, devices, running, held=1, runs=0) for owner in owners}
    starts = plan(replace(_emptied(snapshot), allowances=limited)).starts
    for owner in owners:
        counts = [len(start.placement.devices) for start in starts if start.job.owner == owner]
        assert not counts or 1 + sum(counts) <= devices
        assert len(counts) <= running


@given(SNAPSHOTS)
def test_a_plan_stops_only_what_may_be_stopped_and_each_job_once(snapshot: Snapshot) -> None:
    running = {job.job_id: job for job in snapshot.running}
    stops = plan(snapshot).stops
    victims = [reservation.victim for stop in stops for reservation in stop.reservations]
    assert len(victims) == len(set(victims))
    for stop in stops:
        assert stop.reservations
        for reservation in stop.reservations:
            victim = running[reservation.victim]
            assert victim.preemptible and not victim.stopping and victim.worker_id == snapshot.here
            assert victim.priority < stop.job.priority


@given(SNAPSHOTS)
def test_each_job_of_the_line_starts_or_has_a_reason(snapshot: Snapshot) -> None:
    planned = plan(snapshot)
    started = {start.job.id for start in planned.starts}
    for job in snapshot.line:
        assert (planned.reasons.of(job) is not None) or job.id in started
    waiting = {job.id for job in snapshot.line} - started
    assert planned.reasons.by_job.keys() <= waiting
    shapes = [job.shape for job in snapshot.line if job.id in waiting]
    assert planned.reasons.by_shape.keys() <= {*shapes}


@given(SNAPSHOTS)
def test_jobs_of_a_group_start_in_their_order(snapshot: Snapshot) -> None:
    served = {step.job.id for step in plan(snapshot).steps}
    alone = {one.job_id for one in snapshot.reservations}
    line = sorted((job for job in snapshot.line if job.id not in alone), key=lambda job: job.id)
    for group in {job.group for job in line}:
        flags = [job.id in served for job in line if job.group == group]
        assert flags == sorted(flags, reverse=True), "none passes another"


@given(SNAPSHOTS, st.randoms(use_true_random=False))
def test_a_plan_depends_on_no_order_of_the_snapshots_parts(snapshot: Snapshot, random: Random) -> None:
    shuffled = replace(
        snapshot,
        hosts=_shuffled(snapshot.hosts, random),
        running=_shuffled(snapshot.running, random),
        line=_shuffled(snapshot.line, random),
        reservations=_shuffled(snapshot.reservations, random),
    )
    assert plan(shuffled) == plan(snapshot) == plan(snapshot)


@given(SNAPSHOTS)
def test_nothing_is_left_to_do_after_a_plan(snapshot: Snapshot) -> None:
    first = plan(snapshot)
    again = plan(_after(snapshot, first))
    assert (again.starts, again.stops, again.reasons) == ((), (), first.reasons)


@given(SNAPSHOTS, st.integers(1, 4))
def test_the_first_jobs_of_each_group_and_their_successors_make_the_same_plan(snapshot: Snapshot, at_once: int) -> None:
    assert plan(_as_read(snapshot, at_once)) == plan(snapshot)


def _emptied(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot with all devices free."""
    hosts = tuple(
        replace(
            host, draining=False, devices=tuple(replace(device, job_id=None, blocked=None) for device in host.devices)
        )
        for host in snapshot.hosts
    )
    return replace(snapshot, hosts=hosts, running=(), reservations=())


def _shuffled(items: Sequence[Any], random: Random) -> tuple[Any, ...]:
    return tuple(random.sample(items, len(items)))


def _after(snapshot: Snapshot, planned: Plan) -> Snapshot:
    """Returns the snapshot after all steps of the plan."""
    for start in planned.starts:
        snapshot = snapshot.after_start(start.job, start.placement)
    for stop in planned.stops:
        snapshot = snapshot.after_stop(stop.reservations, message=stop.reason.message)
    return snapshot


def _as_read(snapshot: Snapshot, at_once: int) -> Snapshot:
    """Returns the snapshot with as much of the line as `store.queries.placement` reads."""
    groups: dict[Group, list[Waiting]] = {}
    for job in sorted(snapshot.line, key=lambda job: job.order):
        groups.setdefault(job.group, []).append(job)
    reserving = {one.job_id for one in snapshot.reservations}
    known = {job.id for job in snapshot.line if job.id in reserving} | {jobs.pop(0).id for jobs in groups.values()}
    while True:
        part = replace(snapshot, line=tuple(job for job in snapshot.line if job.id in known))
        more = [group for group in used_up(part) if groups[group]]
        if not more:
            return part
        for group in more:
            known |= {job.id for job in groups[group][:at_once]}
            del groups[group][:at_once]


def slots(*holders: str | None) -> tuple[Device, ...]:
    """Returns CPU slots, each with the job that holds it."""
    return tuple(Device(index, f"cpu-{index}", "slot", "cpu", job_id=job) for index, job in enumerate(holders))


def waits(job_id: str, count: int = 1, *, priority: int = 0, owner: str = "ada") -> Waiting:
    return Waiting(job_id, priority, f"{owner}/{count}", Resources(devices_per_node=count), owner)


def runs(job_id: str, *, priority: int = 0, on: str = HERE) -> Running:
    """Returns a job that may be stopped."""
    return Running(job_id, "bob", priority, preemptible=True, since=0, stopping=False, worker_id=on)


def seen(
    *line: Waiting, here: Sequence[Device], there: Sequence[Device] = (), running: Sequence[Running] = ()
) -> Snapshot:
    hosts = (Host(HERE, "here", tuple(here)), Host(THERE, "there", tuple(there)))
    return Snapshot(here=HERE, now=0, hosts=hosts, running=tuple(running), line=line)


def starts(snapshot: Snapshot) -> dict[str, list[str]]:
    return {start.job.id: [device.uuid for device in start.placement.devices] for start in plan(snapshot).starts}


def test_a_higher_priority_and_then_an_older_job_starts_first() -> None:
    line = (waits("job_1"), waits("job_2", priority=1), waits("job_3", owner="bob"))
    assert starts(seen(*line, here=slots(None, "x", None))) == {"job_2": ["cpu-0"], "job_1": ["cpu-2"]}


def test_a_job_that_fits_passes_one_that_does_not() -> None:
    assert starts(seen(waits("job_1", 2), waits("job_2"), here=slots("x", None))) == {"job_2": ["cpu-1"]}


def test_jobs_are_stopped_only_where_no_other_host_has_room() -> None:
    urgent, victim = waits("job_1", priority=1), runs("job_0")
    full = seen(urgent, here=slots("job_0"), there=slots("x"), running=[victim])
    (stop,) = plan(full).stops
    assert [(one.victim, one.job_id) for one in stop.reservations] == [("job_0", "job_1")]
    assert plan(full).reasons.by_job["job_1"] == stop.reason
    assert plan(seen(urgent, here=slots("job_0"), there=slots(None), running=[victim])).stops == ()
    assert plan(seen(urgent, here=slots("job_0"), running=[replace(victim, worker_id=THERE)])).stops == ()


def test_reserved_devices_are_kept_until_the_stop_is_overdue() -> None:
    urgent, small = waits("job_1", 2, priority=1), waits("job_2")
    snapshot = seen(urgent, small, here=slots("job_0", None), running=[runs("job_0")])
    (stop,) = plan(snapshot).stops
    kept = snapshot.after_stop(stop.reservations, message=stop.reason.message)
    assert starts(kept) == {}
    assert starts(replace(kept, now=1)) == {"job_2": ["cpu-1"]}


def test_a_refused_request_waits_for_the_next_snapshot() -> None:
    snapshot = seen(waits("job_1", 2), waits("job_2"), here=slots(None, None))
    assert starts(snapshot) == {"job_1": ["cpu-0", "cpu-1"]}
    refused = snapshot.refusing(Resources(devices_per_node=2))
    assert starts(refused) == {"job_2": ["cpu-0"]}
    assert starts(refused.without("job_2")) == {}
    assert starts(snapshot.after_drain()) == {}
    assert plan(snapshot.after_drain()).reasons.by_shape["ada/2"].message == "needs 2 devices; here is draining"


def test_a_quota_counts_what_the_plan_starts() -> None:
    snapshot = seen(waits("job_1", 2), waits("job_2", 1), here=slots(None, None, None))
    snapshot = replace(snapshot, allowances={"ada": Allowance("ada", devices=2, running=None)})
    assert starts(snapshot) == {"job_1": ["cpu-0", "cpu-1"]}
    assert plan(snapshot).reasons.by_shape["ada/1"].code == "quota"


def test_a_job_that_was_asked_to_stop_is_not_asked_for_another() -> None:
    large, small = (
        Device(index, f"GPU-{index}", "GPU", "cuda", memory << 30, "job_0") for index, memory in ((0, 80), (1, 24))
    )
    first = replace(waits("job_1", priority=2), resources=Resources(min_memory_gb=40))
    planned = plan(seen(first, waits("job_2", priority=1), here=(large, small), running=[runs("job_0")]))
    assert [stop.job.id for stop in planned.stops] == ["job_1"]


def test_a_group_is_used_up_while_none_of_its_jobs_waits() -> None:
    first, second = waits("job_1"), waits("job_2")
    assert used_up(seen(first, here=slots(None, None))) == {first.group}
    assert used_up(seen(first, second, here=slots(None, None))) == {first.group}
    assert used_up(seen(first, second, here=slots(None, "x"))) == set()


def test_equal_requests_are_searched_for_victims_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    choose_victims = planning.choose_victims

    def counted(*arguments: Any) -> Any:
        searched.append(1)
        return choose_victims(*arguments)

    monkeypatch.setattr(planning, "choose_victims", counted)
    running = [runs(f"job_{index}") for index in (1, 2, 3)]
    full = slots("x", "job_1", "job_2", "job_3")
    line = [waits(f"job_a{index}", 4, owner=f"user-{index}") for index in range(5)]
    plan(seen(*line, here=full, running=running))
    assert searched == [], "no job of lower priority"
    planned = plan(seen(*(replace(job, priority=5) for job in line), here=full, running=running))
    assert (len(searched), planned.stops) == (1, ())
