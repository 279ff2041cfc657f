"""What would start a waiting job now: each answer is held against the plan that the workers then make."""

from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scheduling import alternatives as module
from scheduling.alternatives import LIMITS, Alternative, alternatives
from scheduling.plan import plan
from scheduling.pools import Pool
from scheduling.quotas import Allowance
from scheduling.shapes import limit_class, looked
from scheduling.snapshot import Displacement, Snapshot, Waiting
from scheduling.steps import Plan
from tests.scheduling.clusters import HERE, HOUR, MINUTE, NOW, host, kept, runs, seen, slots, starts, waits
from tests.scheduling.snapshots import snapshot_of
from tests.scheduling.worlds import any_world
from torchyard.contract.spec.resources import Resources


def found(snapshot: Snapshot, job: Waiting) -> dict[str, str]:
    return {one.change: one.value for one in _all(snapshot, job)}


@given(st.randoms(use_true_random=False))
def test_plan_starts_what_is_offered_and_not_what_asks_for_a_little_more(random: Random) -> None:
    snapshot = snapshot_of(any_world(random), random)
    started = {start.job.id for start in plan(snapshot).starts}
    for job in [job for job in snapshot.line if job.id not in started]:
        offered = {one.change: one.job for one in _all(snapshot, job)}
        for variant in offered.values():
            assert _starts(snapshot, variant)
        if _is_held(snapshot, job):
            assert not offered
            continue
        limits = _with_limits(job)
        assert not _starts(snapshot, _next_after(offered.get("time_limit"), limits))
        counts = [_with_devices(job, count) for count in range(1, job.resources.devices_per_node)]
        assert not _starts(snapshot, _next_after(offered.get("devices"), counts))
        if "preemptible" not in offered:
            assert job.preemptible or not _starts(snapshot, replace(job, preemptible=True))


def test_a_job_that_ends_before_a_kept_place_is_due_would_start() -> None:
    """The whole host is kept for one that waits until the other ends, which has three hours left."""
    large = waits("large", 4, submitted=NOW - 2 * HOUR)
    small = waits("small", 1, ran_us=0)
    other = runs("other", 2, limit_us=4 * HOUR)
    snapshot = seen(large, small, hosts=[host(slots("other", "other", None, None))], running=[other])
    assert starts(snapshot) == {}
    assert kept(plan(snapshot)).keys() == {"large"}
    assert found(snapshot, small) == {"time_limit": "2h"}
    short = replace(small, preemptible=False, usual_us=HOUR)
    assert found(replace(snapshot, line=(large, short)), short) == {"time_limit": "2h", "preemptible": "true"}


def test_a_job_that_is_too_large_for_what_is_free_would_start_on_fewer_devices() -> None:
    job = waits("job", 8)
    hosts = [host(slots("other", None, None, None)), host(slots(None, None), name="there")]
    snapshot = seen(job, hosts=hosts, running=[runs("other")])
    assert found(snapshot, job) == {"devices": "3"}
    assert found(seen(hosts=hosts, running=[runs("other")]), job) == {"devices": "3"}, "it is not in the line yet"
    assert found(seen(job, hosts=[host(slots("other"))], running=[runs("other")]), job) == {}, "nothing is free"
    assert found(seen(job, hosts=[]), job) == {}


def test_few_plans_find_the_most_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Snapshot] = []

    def planning(snapshot: Snapshot) -> Generator[None, None, Plan]:
        made.append(snapshot)
        return (yield from real(snapshot))

    real = module.planning
    monkeypatch.setattr(module, "planning", planning)
    job, hosts = waits("job", 1024), [host(slots(*[None] * 700))]
    assert found(seen(job, hosts=hosts), job) == {"devices": "700"}
    assert len(made) <= 11


def test_with_the_limit_of_a_job_that_starts_it_would_be_behind_that_one() -> None:
    """Of those that may pass, the shortest goes first, and of equal ones the oldest."""
    large, other = waits("large", 2, submitted=NOW - 9 * HOUR), runs("other", 1, limit_us=6 * HOUR)
    hosts = [host(slots("other", None))]
    short = waits("short", 1, limit_us=4 * HOUR, ran_us=0, submitted=NOW - 3 * HOUR)
    job = waits("job", 1, ran_us=0, submitted=NOW - 2 * HOUR)
    alone = seen(large, job, hosts=hosts, running=[other])
    assert found(alone, job) == {"time_limit": "4h"}
    both = seen(large, short, job, hosts=hosts, running=[other])
    assert starts(both).keys() == {"short"}
    assert found(both, job) == {"time_limit": "2h"}


@pytest.mark.parametrize("held", ["quota", "pool", "preempting"])
def test_a_job_that_does_not_wait_for_devices_alone_has_none(held: str) -> None:
    job, hosts = waits("job", 3), [host(slots("other", "victim", None))]
    running = [runs("other"), runs("victim", preemptible=True, stopping=True)]
    snapshot = seen(job, hosts=hosts, running=running)
    assert found(snapshot, job) == {"devices": "1"}
    match held:
        case "quota":
            snapshot = replace(snapshot, allowances={"ada": Allowance("ada", devices=2, running=None)})
        case "pool":
            job = replace(job, resources=Resources(nodes=2, pool="p"))
            snapshot = replace(snapshot, pools=(Pool("wrk_p", "p", "cpu", devices=2),))
        case _:
            stop = Displacement("job", "ada", "victim", "bob", HERE, "here", until=NOW + MINUTE)
            snapshot = replace(snapshot, displacements=(stop,))
    assert found(snapshot, job) == {}


def test_what_a_job_has_run_already_is_no_limit_for_it() -> None:
    large, other = waits("large", 2, submitted=NOW - 9 * HOUR), runs("other", 1, limit_us=5 * HOUR)
    job = waits("job", 1, ran_us=3 * HOUR, submitted=NOW - 2 * HOUR)
    snapshot = seen(large, job, hosts=[host(slots("other", None))], running=[other])
    assert found(snapshot, job) == {"time_limit": "4h"}
    longer = replace(job, ran_us=9 * HOUR)
    assert found(replace(snapshot, line=(large, longer)), longer) == {"time_limit": "12h"}


def _all(snapshot: Snapshot, job: Waiting) -> list[Alternative]:
    return [one for one in alternatives(snapshot, job) if one is not None]


def _starts(snapshot: Snapshot, variant: Waiting | None) -> bool:
    if variant is None:
        return False
    left = limit_class(variant.limit_us - variant.ran_us)
    size = f"{variant.resources.devices_per_node}/{variant.resources.device}/{variant.resources.min_memory_gb}"
    shape = f"{variant.owner}/{size}/{variant.preemptible}/{left}/{looked(variant.ran_us)}"
    line = tuple(job for job in snapshot.line if job.id != variant.id)
    planned = plan(replace(snapshot, line=(*line, replace(variant, shape=shape))))
    stopped_for = {stop.job.id for stop in planned.stops}
    return variant.id in {start.job.id for start in planned.starts} - stopped_for


def _next_after(offered: Waiting | None, variants: list[Waiting]) -> Waiting | None:
    """Returns the least variant that was found not to start; None if all do."""
    at = 0 if offered is None else [_size(one) for one in variants].index(_size(offered)) + 1
    return variants[at] if at < len(variants) else None


def _size(job: Waiting) -> tuple[int, int]:
    return job.limit_us, job.resources.devices_per_node


def _with_limits(job: Waiting) -> list[Waiting]:
    limits = [limit // timedelta(microseconds=1) for limit in LIMITS]
    return [replace(job, limit_us=limit) for limit in limits if job.ran_us < limit < job.limit_us]


def _with_devices(job: Waiting, count: int) -> Waiting:
    return replace(job, resources=job.resources.model_copy(update={"devices_per_node": count}))


def _is_held(snapshot: Snapshot, job: Waiting) -> bool:
    allowance = snapshot.allowances.get(job.owner)
    over = allowance is not None and allowance.refusal(job.resources.total_devices) is not None
    return over or any(one.job_id == job.id for one in snapshot.displacements)
