"""What holds of all plans, whatever the cluster."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduling.plan import plan
from scheduling.quotas import Allowance
from scheduling.snapshot import Group, Snapshot, Waiting
from scheduling.steps import Plan, Start
from tests.scheduling.snapshots import snapshot_of
from tests.scheduling.worlds import any_world
from torchyard.contract.cluster.fitting import suitable


def _snapshot(random: Random) -> Snapshot:
    """Returns a snapshot, half of the time with the reservations that a plan made an hour before."""
    snapshot = snapshot_of(any_world(random), random)
    if random.random() < 0.5:
        return snapshot
    return replace(snapshot, now=snapshot.now + 3_600_000_000, reservations=plan(snapshot).reservations)


SNAPSHOTS = st.randoms(use_true_random=False).map(_snapshot)


@given(SNAPSHOTS)
def test_each_device_that_a_plan_gives_is_free_and_suits_one_job(snapshot: Snapshot) -> None:
    hosts = {host.id: host for host in snapshot.hosts}
    starts = plan(snapshot).starts
    for start in starts:
        host = hosts[start.placement.worker_id]
        assert not host.draining
        assert len(start.placement.devices) == start.job.resources.total_devices
        for device in start.placement.devices:
            assert device in suitable(start.job.resources, host.devices)
            assert device.job_id is None and device.blocked is None
    placed = [(start.placement.worker_id, device.uuid) for start in starts for device in start.placement.devices]
    assert len(placed) == len({*placed})


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
    victims = [one.victim for stop in stops for one in stop.displacements]
    assert len(victims) == len({*victims})
    for stop in stops:
        assert len({one.worker_id for one in stop.displacements}) == 1
        for one in stop.displacements:
            victim = running[one.victim]
            assert not victim.stopping and victim.worker_id == one.worker_id
            assert victim.guest if stop.why == "due" else victim.preemptible
            if stop.why == "priority":
                assert victim.priority < stop.job.priority
            elif stop.why != "due":
                assert victim.priority <= stop.job.priority


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
def test_each_place_is_kept_for_one_job_that_waits_or_starts(snapshot: Snapshot) -> None:
    planned = plan(snapshot)
    line = {job.id: job for job in snapshot.line}
    stored = {one.place: one for one in snapshot.reservations}
    jobs = [one.job_id for one in planned.reservations]
    assert len({*jobs}) == len({one.place for one in planned.reservations}) == len(jobs)
    for one in planned.reservations:
        assert one.owner == line[one.job_id].owner
        before = stored.get(one.place)
        assert one == before or one.version == (1 if before is None else before.version + 1)
    by_place = {one.place: one for one in planned.reservations}
    for start in planned.starts:
        assert start.reservation == by_place.get(start.place)
        assert len({device.kind for device in start.placement.devices}) == 1
    assert all(one in planned.reservations for one in snapshot.reservations if one.job_id in _started(planned))


@given(SNAPSHOTS, st.randoms(use_true_random=False))
def test_a_plan_depends_on_no_order_of_the_snapshots_parts(snapshot: Snapshot, random: Random) -> None:
    shuffled = replace(
        snapshot,
        hosts=_shuffled(snapshot.hosts, random),
        running=_shuffled(snapshot.running, random),
        line=_shuffled(snapshot.line, random),
        displacements=_shuffled(snapshot.displacements, random),
        reservations=_shuffled(snapshot.reservations, random),
        uses=_shuffled(snapshot.uses, random),
    )
    assert plan(shuffled) == plan(snapshot) == plan(snapshot)


@given(SNAPSHOTS)
def test_nothing_is_left_to_do_after_a_plan(snapshot: Snapshot) -> None:
    # The owners' credits fall with what was started, so who is alike in all else may be first now.
    snapshot = replace(snapshot, uses=())
    assert plan(_after(snapshot, plan(snapshot))).starts == ()


@given(SNAPSHOTS, st.integers(1, 4))
def test_the_first_jobs_of_each_group_and_their_successors_make_the_same_plan(snapshot: Snapshot, at_once: int) -> None:
    whole, part = plan(snapshot), plan(_as_read(snapshot, at_once))
    assert part.steps == whole.steps
    assert part.reservations == whole.reservations
    assert part.reasons == whole.reasons


def _started(planned: Plan) -> set[str]:
    return {start.job.id for start in planned.starts}


def _emptied(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot with all devices free."""
    hosts = tuple(
        replace(
            host, draining=False, devices=tuple(replace(device, job_id=None, blocked=None) for device in host.devices)
        )
        for host in snapshot.hosts
    )
    return replace(snapshot, hosts=hosts, running=(), displacements=(), reservations=())


def _shuffled(items: Sequence[Any], random: Random) -> tuple[Any, ...]:
    return tuple(random.sample(items, len(items)))


def _after(snapshot: Snapshot, planned: Plan) -> Snapshot:
    """Returns the snapshot after all steps of the plan."""
    snapshot = replace(snapshot, reservations=planned.reservations)
    for step in planned.steps:
        if isinstance(step, Start):
            snapshot = snapshot.after_start(step.job, step.placement, guest=step.guest)
        else:
            snapshot = snapshot.after_stop(step.displacements, message=step.reason.message)
    return snapshot


def _as_read(snapshot: Snapshot, at_once: int) -> Snapshot:
    """Returns the snapshot with as much of the line as the store reads."""
    groups: dict[Group, list[Waiting]] = {}
    for job in sorted(snapshot.line, key=lambda job: (job.submitted, job.id)):
        groups.setdefault(job.group, []).append(job)
    named = {one.job_id for one in (*snapshot.displacements, *snapshot.reservations)}
    known = {job.id for job in snapshot.line if job.id in named} | {jobs.pop(0).id for jobs in groups.values()}
    while True:
        part = replace(snapshot, line=tuple(job for job in snapshot.line if job.id in known))
        more = [group for group in plan(part).used_up if groups[group]]
        if not more:
            return part
        for group in more:
            known |= {job.id for job in groups[group][:at_once]}
            del groups[group][:at_once]
