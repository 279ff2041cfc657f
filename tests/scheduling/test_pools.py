"""Jobs in pools: who is given to one, in which order, and why others wait."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scheduling.plan import plan
from scheduling.pools import Pool
from scheduling.quotas import Allowance
from scheduling.snapshot import Snapshot, Waiting
from tests.approved import Approved
from tests.scheduling.clusters import HERE, HOUR, NOW, gpu, host, runs, seen, slots, starts, waits
from tests.scheduling.snapshots import snapshot_of
from tests.scheduling.worlds import any_world
from torchyard.contract.spec.resources import Resources

POOL = Pool("wrk_pool", "gpu", "cuda", devices=8)


def asks(
    job_id: str, *, nodes: int = 2, devices: int = 2, pool: str = "gpu", owner: str = "ada", **others: Any
) -> Waiting:
    """Returns a job that waits for a pool."""
    resources = Resources(nodes=nodes, devices_per_node=devices, device="cuda", pool=pool)
    given: dict[str, Any] = {"priority": 0, "submitted": NOW - HOUR, "limit_us": 24 * HOUR, **others}
    return Waiting(id=job_id, owner=owner, shape=f"{owner}/{resources.described}/{pool}", resources=resources, **given)


def given_to(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Returns which jobs are given to which pools, in order."""
    return [(start.job.id, start.placement.worker_id) for start in plan(snapshot).starts if not start.placement.devices]


def reason(snapshot: Snapshot, job: Waiting) -> tuple[str, str]:
    found = plan(snapshot).reasons.of(job)
    assert found is not None
    return found.code, found.message


def test_a_pool_gets_jobs_in_their_order_however_large_they_are() -> None:
    jobs = asks("small", nodes=1), asks("large", nodes=4, priority=1), asks("huge", nodes=900, owner="bob", priority=2)
    snapshot = seen(*jobs, hosts=[], pools=(POOL,))
    assert given_to(snapshot) == [("huge", POOL.id), ("large", POOL.id), ("small", POOL.id)]
    assert all(start.reservation is None and start.place == (POOL.id, "cuda") for start in plan(snapshot).starts)


def test_a_job_starts_in_the_pool_that_it_names_alone() -> None:
    other = Pool("wrk_other", "other", "cuda", devices=8)
    free = host([gpu(0), gpu(1), gpu(2), gpu(3)])
    snapshot = seen(asks("here"), asks("there", pool="other"), hosts=[free], pools=(POOL, other))
    assert given_to(snapshot) == [("here", POOL.id), ("there", other.id)]
    assert starts(seen(waits("host-job"), hosts=[host([])], pools=(POOL,))) == {}, "a pool takes no other job"
    single = asks("single", nodes=1, devices=1, pool="gone")
    assert starts(seen(single, hosts=[free], pools=(POOL,))) == {}, "nor a host one of a pool"


def test_as_many_jobs_of_an_owner_wait_ahead_as_the_pool_says(approved: Approved) -> None:
    pool = Pool("wrk_pool", "gpu", "cuda", devices=8, ahead=3, waiting={"ada": 1, "bob": 3})
    jobs = [asks(f"a{number}", submitted=NOW - HOUR + number) for number in range(4)]
    snapshot = seen(*jobs, asks("b", owner="bob"), asks("c", owner="cy"), hosts=[], pools=(pool,))
    assert sorted(given_to(snapshot)) == [("a0", pool.id), ("a1", pool.id), ("c", pool.id)]
    assert reason(snapshot, jobs[3]) == (
        "pool_ahead",
        approved("reason"),
    )


@pytest.mark.parametrize(
    "pools",
    [
        (),
        (Pool("wrk_pool", "gpu", "cuda", 8, draining=True),),
        (Pool("wrk_pool", "gpu", "cuda", 8, obstacle="the cluster does not answer"),),
    ],
)
def test_a_job_waits_for_a_pool_that_takes_none(pools: tuple[Pool, ...], approved: Approved) -> None:
    job = asks("a")
    snapshot = seen(job, waits("b"), hosts=[host(slots(None))], pools=pools)
    assert given_to(snapshot) == []
    assert reason(snapshot, job) == ("pool_away", approved.of_row("reason"))
    assert list(starts(snapshot)) == ["b"]


def test_quotas_are_one_for_hosts_and_pools() -> None:
    allowance = {"ada": Allowance("ada", devices=5, running=None)}
    first, second = asks("first", priority=1), waits("second", 2)
    snapshot = seen(first, second, hosts=[host(slots(None, None))], pools=(POOL,), allowances=allowance)
    assert list(starts(snapshot)) == ["first"], "4 of its 5 devices are in the pool"
    assert reason(snapshot, second)[0] == "quota"
    after = snapshot.after_start(first, plan(snapshot).starts[0].placement)
    assert (after.allowances["ada"].held, after.allowances["ada"].runs) == (4, 1)
    assert (after.pools[0].waiting, after.running) == ({"ada": 1}, ())
    tight = seen(asks("a"), hosts=[], pools=(POOL,), allowances={"ada": Allowance("ada", devices=3, running=None)})
    assert given_to(tight) == [] and reason(tight, asks("a"))[0] == "quota"


def test_a_pool_whose_worker_could_not_take_a_job_waits_for_the_next_pass(approved: Approved) -> None:
    job = asks("a")
    snapshot = seen(job, asks("b", nodes=1), hosts=[], pools=(POOL,)).refusing(job.request)
    assert given_to(snapshot) == [("b", POOL.id)]
    assert reason(snapshot, job) == ("pool_next", approved("reason"))


def test_a_drain_is_known_at_once() -> None:
    snapshot = seen(asks("a"), hosts=[], pools=(Pool(HERE, "gpu", "cuda", 8),))
    assert given_to(snapshot.after_drain(HERE)) == []


def test_what_runs_in_a_pool_is_neither_stopped_nor_waited_for() -> None:
    running = runs("in-pool", 4, on=POOL.id, preemptible=True)
    urgent = waits("urgent", 2, priority=50)
    planned = plan(seen(urgent, asks("a", priority=99), hosts=[host(slots("x"))], running=[running], pools=(POOL,)))
    assert planned.stops == () and planned.reservations == ()


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(0, 5))
def test_jobs_in_pools_change_nothing_on_hosts(random: Random, ahead: int, before: int) -> None:
    """But for the credits of others, so nobody here has used or needs anything."""
    world = snapshot_of(any_world(random), random)
    world = replace(world, uses=(), running=tuple(replace(job, stopping=True) for job in world.running))
    pool = Pool("wrk_pool", "gpu", "cuda", devices=8, ahead=ahead, waiting={"zoe": before})
    in_pool = [
        asks(f"job_p{number:03}", owner="zoe", priority=random.choice((-5, 0, 5)), nodes=random.randint(1, 3))
        for number in range(random.randint(0, 6))
    ]
    line = [*world.line, *in_pool]
    random.shuffle(line)
    alone, both = plan(world), plan(replace(world, line=tuple(line), pools=(pool,)))
    steps = [step for step in both.steps if step.job.resources.pool is None]
    assert [step.job.id for step in steps] == [step.job.id for step in alone.steps]
    assert both.reservations == alone.reservations
    assert all(both.reasons.of(job) == alone.reasons.of(job) for job in world.line)
    given_away = {start.job.id for start in both.starts} & {job.id for job in in_pool}
    assert len(given_away) == min(len(in_pool), max(0, ahead - before))
    assert all(both.reasons.of(job) is not None for job in in_pool if job.id not in given_away)
