"""Which jobs stop for others, and when."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduling.displacing import RESTART
from scheduling.plan import plan
from scheduling.price import lost_us
from scheduling.snapshot import Displacement, Running, Snapshot, Waiting
from tests.approved import Approved
from tests.scheduling.clusters import (
    HERE,
    HOUR,
    MINUTE,
    NOW,
    THERE,
    gpu,
    host,
    kept,
    runs,
    seen,
    slots,
    starts,
    stopped,
    waits,
)
from torchyard.contract.spec.resources import Resources


def settled(job_id: str, count: int = 1, *, hours: int = 3, **others: Any) -> Running:
    """Returns a preemptible job that runs so long that a first look may displace it. It has just been saved."""
    given: dict[str, Any] = {"preemptible": True, "since": NOW - hours * HOUR, "saved_at": NOW, **others}
    return runs(job_id, count, **given)


def after(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot after the stops of its plan were requested."""
    planned = plan(snapshot)
    for stop in planned.stops:
        until = tuple(replace(one, until=NOW + 2 * MINUTE) for one in stop.displacements)
        snapshot = snapshot.after_stop(until, message=stop.reason.message)
    return replace(snapshot, reservations=planned.reservations)


def test_jobs_are_stopped_for_a_higher_priority_only_where_no_host_has_room(approved: Approved) -> None:
    urgent, victim = waits("job_1", priority=1), runs("job_0", preemptible=True)
    hosts = [host(slots("job_0")), host(slots("x"), "there")]
    full = seen(urgent, hosts=hosts, running=[victim])
    (stop,) = plan(full).stops
    assert [(one.victim, one.job_id) for one in stop.displacements] == [("job_0", "job_1")]
    assert stop.why == "priority"
    assert plan(full).reasons.by_job["job_1"] == stop.reason
    assert stop.reason.message == approved("message")
    assert plan(replace(full, hosts=(hosts[0], host(slots(None), "there")))).stops == ()
    assert plan(replace(full, running=(replace(victim, preemptible=False),))).stops == ()
    assert plan(replace(full, running=(replace(victim, priority=1),))).stops == ()
    assert plan(replace(full, running=(replace(victim, stopping=True),))).stops == ()


def test_the_lowest_priority_stops_and_of_it_what_loses_the_least_device_time() -> None:
    urgent = waits("job_1", priority=9)
    running = [
        settled("job_a", saved_at=NOW - HOUR),
        settled("job_b", 2, saved_at=NOW - 2 * MINUTE),
        settled("job_c", priority=1),
    ]
    hosts = [host(slots("job_a", "job_b", "job_b", "job_c"))]
    assert stopped(plan(seen(urgent, hosts=hosts, running=running))) == {"job_b": "job_1"}
    older = [replace(job, saved_at=NOW - 40 * MINUTE) if job.job_id == "job_b" else job for job in running]
    assert stopped(plan(seen(urgent, hosts=hosts, running=older))) == {"job_a": "job_1"}
    large = waits("job_1", 4, priority=9)
    assert {*stopped(plan(seen(large, hosts=hosts, running=running)))} == {"job_a", "job_b", "job_c"}
    assert plan(seen(waits("job_1", 5, priority=9), hosts=hosts, running=running)).stops == ()


def test_the_cheapest_host_is_chosen() -> None:
    running = [settled("job_a", saved_at=NOW - HOUR), settled("job_b", on=THERE)]
    hosts = [host(slots("job_a")), host(slots("job_b"), "there")]
    assert stopped(plan(seen(waits("job_1", priority=1), hosts=hosts, running=running))) == {"job_b": "job_1"}


def test_what_is_set_aside_waits_for_its_job_until_the_stop_is_overdue() -> None:
    urgent, small = waits("job_1", 2, priority=1), waits("job_2")
    snapshot = seen(urgent, small, hosts=[host(slots("job_0", None))], running=[runs("job_0", preemptible=True)])
    asked = after(snapshot)
    assert starts(asked) == {}
    assert plan(asked).stops == ()
    assert starts(replace(asked, reservations=(), now=NOW + 3 * MINUTE)) == {"job_2": ["cpu-1"]}
    highest = waits("job_3", priority=2)
    assert starts(replace(asked, line=(*asked.line, highest))) == {"job_3": ["cpu-1"]}
    ended = replace(asked, hosts=(host(slots(None, None)),), running=())
    assert starts(ended) == {"job_1": ["cpu-0", "cpu-1"]}


def test_a_job_that_hardly_ran_displaces_one_that_ran_two_hours() -> None:
    new = waits("job_1", ran_us=0)
    snapshot = seen(new, hosts=[host(slots("job_0"))], running=[settled("job_0")])
    (stop,) = plan(snapshot).stops
    assert (stop.job.id, stop.why) == ("job_1", "first_look")
    assert plan(replace(snapshot, line=(replace(new, ran_us=31 * MINUTE),))).stops == ()
    for kind in (
        {"preemptible": False},
        {"since": NOW - HOUR},
        {"waited_us": 25 * HOUR},
        {"priority": 1},
    ):
        assert plan(replace(snapshot, running=(settled("job_0", **kind),))).stops == (), kind


def test_a_first_look_starts_although_others_are_ahead_in_the_line() -> None:
    first = waits("job_a", submitted=NOW - 5 * HOUR)
    snapshot = seen(waits("job_1", ran_us=0), hosts=[host(slots("job_0"))], running=[settled("job_0")])
    ended = replace(after(snapshot), hosts=(host(slots(None)),), running=())
    assert [*starts(replace(ended, line=(*ended.line, first)))] == ["job_1"]


def test_a_plan_says_when_a_job_may_be_displaced() -> None:
    snapshot = seen(waits("job_1", ran_us=0), hosts=[host(slots("job_0"))], running=[settled("job_0", hours=1)])
    planned = plan(snapshot)
    assert (planned.stops, planned.again_at) == ((), NOW + HOUR)
    assert stopped(plan(replace(snapshot, now=NOW + HOUR))) == {"job_0": "job_1"}


def long_wait(**others: Any) -> Waiting:
    given: dict[str, Any] = {"waited_us": 13 * HOUR, **others}
    return waits("job_1", submitted=NOW - 13 * HOUR, **given)


def test_a_holder_that_waited_twelve_hours_displaces_what_was_submitted_later() -> None:
    snapshot = seen(long_wait(), hosts=[host(slots("job_0"))], running=[settled("job_0")])
    (stop,) = plan(snapshot).stops
    assert (stop.job.id, stop.why) == ("job_1", "waited")
    assert "job_1" in kept(plan(snapshot)), "its place stays kept until it has started"
    earlier = replace(snapshot, running=(settled("job_0", submitted=NOW - 14 * HOUR),))
    assert plan(earlier).stops == ()
    recent = replace(snapshot, line=(long_wait(waited_us=11 * HOUR),))
    assert (plan(recent).stops, plan(recent).again_at) == ((), NOW + HOUR)
    second = replace(snapshot, line=(waits("job_a", submitted=NOW - 20 * HOUR), long_wait(owner="eve")))
    assert plan(second).stops == (), "no place is kept for it"


def test_a_first_look_does_not_delay_a_holder() -> None:
    running = [settled("job_0"), runs("job_2", fraction=0.5)]
    hosts = [host(slots("job_0", "job_2"))]
    holder, new = waits("job_a", 2, submitted=NOW - 2 * HOUR), waits("job_1", owner="eve", ran_us=0)
    snapshot = seen(holder, hosts=hosts, running=running)
    snapshot = replace(snapshot, reservations=plan(snapshot).reservations, line=(holder, new))
    assert plan(snapshot).stops == ()
    usual = replace(new, preemptible=True, usual_us=20 * MINUTE)
    assert plan(replace(snapshot, line=(holder, usual))).stops == (), "it may run longer than others"
    short = replace(new, limit_us=20 * MINUTE)
    assert stopped(plan(replace(snapshot, line=(holder, short)))) == {"job_0": "job_1"}


def test_a_job_is_stopped_for_one_other_at_a_time() -> None:
    large, small = (gpu(0, job="job_0"), gpu(1, memory=24, job="job_0"))
    first = waits("job_1", priority=2, resources=Resources(min_memory_gb=40))
    line = (first, waits("job_2", priority=1))
    planned = plan(seen(*line, hosts=[host([large, small])], running=[runs("job_0", 2, preemptible=True)]))
    assert [stop.job.id for stop in planned.stops] == ["job_1"]


def test_a_job_without_suitable_devices_is_not_stopped() -> None:
    devices = [gpu(0, memory=24, job="small"), gpu(1, job="large"), gpu(2, blocked="quarantine"), *slots("cpu")]
    running = [settled(name) for name in ("small", "large", "cpu")]
    wants = Resources(min_memory_gb=40)
    urgent = waits("job_1", priority=1, resources=wants)
    snapshot = seen(urgent, hosts=[host(devices)], running=running)
    assert stopped(plan(snapshot)) == {"large": "job_1"}
    two = replace(urgent, resources=Resources(min_memory_gb=40, devices_per_node=2))
    assert plan(replace(snapshot, line=(two,))).stops == ()
    devices[2] = replace(devices[2], returning=True)
    soon = replace(snapshot, hosts=(host(devices),))
    assert plan(soon).stops == (), "one is free soon"
    assert stopped(plan(replace(soon, line=(two,)))) == {"large": "job_1"}


def test_jobs_stop_for_cpus_and_memory_too() -> None:
    running = [settled("job_0", resources=Resources(cpus=4)), settled("job_2")]
    urgent = waits("job_1", priority=1, resources=Resources(cpus=6))
    hosts = [host(slots("job_0", "job_2", None), cpus=8)]
    assert stopped(plan(seen(urgent, hosts=hosts, running=running))) == {"job_0": "job_1"}


def test_a_displacement_of_a_lost_host_keeps_nothing() -> None:
    one = Displacement("job_1", "ada", "job_0", "bob", HERE, "here", until=NOW + MINUTE)
    hosts = [host(slots(None), "there")]
    assert [*starts(seen(waits("job_1"), hosts=hosts, displacements=(one,)))] == ["job_1"]
    assert [*starts(seen(waits("job_2"), hosts=hosts, displacements=(one,)))] == ["job_2"], "the other left the line"


def test_a_job_has_its_first_look_though_one_of_equal_length_before_it_had_its_own() -> None:
    running = [runs("job_v", preemptible=True, since=NOW - 3 * HOUR), runs("job_x")]
    line = (
        waits("job_1", 2, submitted=NOW - 3 * HOUR),
        waits("job_2", owner="eve", submitted=NOW - 2 * HOUR, limit_us=10 * HOUR, ran_us=HOUR),
        waits("job_3", owner="eve", limit_us=9 * HOUR, ran_us=0),
    )
    planned = plan(seen(*line, hosts=[host(slots("job_v", "job_x"))], running=running))
    assert stopped(planned) == {"job_v": "job_3"}


SAVED = st.one_of(st.none(), st.integers(NOW - 4 * HOUR, NOW + HOUR))
"""When a job saved last: never, before it started, or after a clock that has jumped back."""
VICTIMS = st.lists(st.tuples(st.integers(1, 3), SAVED, st.integers(0, 9)), min_size=1, max_size=6)


@given(VICTIMS, st.integers(1, 8))
def test_of_the_jobs_that_suffice_the_cheapest_stop(jobs: list[tuple[int, int | None, int]], wanted: int) -> None:
    running = [
        runs(f"job_{place}", count, preemptible=True, saved_at=saved, since=NOW - 1 - hours * HOUR)
        for place, (count, saved, hours) in enumerate(jobs)
    ]
    devices = [job.job_id for job in running for _ in range(job.resources.total_devices)]
    urgent = waits("job_x", wanted, priority=1)
    victims = stopped(plan(seen(urgent, hosts=[host(slots(*devices))], running=running)))
    enough = [
        chosen
        for size in range(1, len(running) + 1)
        for chosen in combinations(running, size)
        if sum(job.resources.total_devices for job in chosen) >= wanted
    ]
    assert bool(victims) == bool(enough)
    if enough:
        assert _price([job for job in running if job.job_id in victims]) == min(map(_price, enough))


def _price(jobs: Sequence[Running]) -> int:
    return sum(_price_of(job) for job in jobs)


def _price_of(job: Running) -> int:
    devices = job.resources.total_devices
    lost = lost_us(now=NOW, since=job.since, saved_at=job.saved_at, devices=devices)
    return lost + devices * int(RESTART.total_seconds() * 1_000_000)


def test_a_checkpoint_that_was_just_written_makes_a_job_the_victim() -> None:
    running = [settled("job_a", saved_at=NOW - 5 * MINUTE), settled("job_b", saved_at=NOW - 4 * MINUTE)]
    snapshot = seen(waits("job_1", priority=1), hosts=[host(slots("job_a", "job_b"))], running=running)
    assert stopped(plan(snapshot)) == {"job_b": "job_1"}
    saved = (replace(running[0], saved_at=NOW), running[1])
    assert stopped(plan(replace(snapshot, running=saved))) == {"job_a": "job_1"}
