"""Who is first: priority, and then the time of submission less the owner's credit."""

from dataclasses import replace

import pytest

from scheduling.credit import MOST, credits_of
from scheduling.plan import plan
from scheduling.quotas import Allowance
from scheduling.shapes import limit_class, limit_rounded_up
from scheduling.snapshot import OwnerUse
from scheduling.usage import HALF_LIFE
from tests.scheduling.clusters import HOUR, NOW, host, runs, seen, slots, starts, waits

DAY_S = HALF_LIFE.total_seconds()
MOST_US = MOST.total_seconds() * 1e6


def test_a_higher_priority_and_then_an_older_job_starts_first() -> None:
    line = (
        waits("job_1", submitted=NOW - 3 * HOUR),
        waits("job_2", owner="bob", submitted=NOW - 2 * HOUR),
        waits("job_3", owner="eve", priority=1),
    )
    assert starts(seen(*line, hosts=[host(slots(None, "x", None))])) == {"job_3": ["cpu-0"], "job_1": ["cpu-2"]}


def test_an_owner_who_used_less_goes_before_one_who_was_earlier() -> None:
    line = (waits("job_1", submitted=NOW - 3 * HOUR), waits("job_2", owner="bob"))
    used = OwnerUse("ada", "cpu", used_s=DAY_S)
    hosts = [host(slots(None))]
    assert starts(seen(*line, hosts=hosts)) == {"job_1": ["cpu-0"]}
    assert starts(seen(*line, hosts=hosts, uses=(used,))) == {"job_2": ["cpu-0"]}
    other_kind = replace(used, kind="cuda")
    assert starts(seen(*line, hosts=hosts, uses=(other_kind,))) == {"job_1": ["cpu-0"]}


def test_what_the_running_jobs_need_still_counts_as_used() -> None:
    line = (waits("job_1", submitted=NOW - 2 * HOUR), waits("job_2", owner="eve"))
    hosts = [host(slots("job_0", None))]
    assert starts(seen(*line, hosts=hosts, running=[runs("job_0", owner="eve")])) == {"job_1": ["cpu-1"]}
    assert starts(seen(*line, hosts=hosts, running=[runs("job_0", owner="ada")])) == {"job_2": ["cpu-1"]}


def test_nobody_is_behind_an_equal_priority_submitted_72_hours_later() -> None:
    line = (waits("job_1", submitted=NOW - 73 * HOUR), waits("job_2", owner="bob", submitted=NOW - HOUR + 1))
    used = OwnerUse("ada", "cpu", used_s=1e12)
    assert starts(seen(*line, hosts=[host(slots(None))], uses=(used,))) == {"job_1": ["cpu-0"]}


def test_a_credit_halves_with_each_share_that_was_used() -> None:
    waiting = {("ada", "cpu"), ("bob", "cpu")}
    share_s = 2 * DAY_S / 0.6931471805599453 / 2
    found = credits_of({"cpu": 2}, [OwnerUse("ada", "cpu", share_s)], {}, waiting)  # type: ignore[arg-type]
    assert found["ada", "cpu"] == pytest.approx(MOST_US / 2)
    assert found["bob", "cpu"] == MOST_US
    weighed = [OwnerUse("ada", "cpu", share_s, weight=300), OwnerUse("bob", "cpu", 0.0)]
    found = credits_of({"cpu": 2}, weighed, {}, waiting)  # type: ignore[arg-type]
    assert found["ada", "cpu"] == pytest.approx(MOST_US * 2 ** (-2 / 3))


def test_without_devices_only_who_used_nothing_has_a_credit() -> None:
    used = [OwnerUse("ada", "cpu", 1.0), OwnerUse("bob", "cpu", 0.0)]
    found = credits_of({}, used, {}, {("ada", "cpu"), ("bob", "cpu")})
    assert found == {("ada", "cpu"): 0, ("bob", "cpu"): MOST_US}


def test_who_is_over_quota_is_behind_the_line() -> None:
    line = (waits("job_1", 2, submitted=NOW - 3 * HOUR), waits("job_2", owner="bob"))
    allowances = {"ada": Allowance("ada", devices=2, running=None, held=1)}
    planned = plan(seen(*line, hosts=[host(slots(None, "x"))], allowances=allowances))
    assert [start.job.id for start in planned.starts] == ["job_2"]
    assert planned.reasons.by_shape[line[0].shape].code == "quota"
    assert planned.reservations == ()


def test_a_quota_counts_what_the_plan_starts() -> None:
    line = (waits("job_1", 2, submitted=NOW - 2 * HOUR), waits("job_2"))
    snapshot = seen(*line, hosts=[host(slots(None, None, None))])
    snapshot = replace(snapshot, allowances={"ada": Allowance("ada", devices=2, running=None)})
    assert starts(snapshot) == {"job_1": ["cpu-0", "cpu-1"]}
    assert plan(snapshot).reasons.by_shape[line[1].shape].code == "quota"


def test_a_limit_is_rounded_up_to_one_of_64_classes() -> None:
    limits = [0, 1, HOUR, 24 * HOUR, 24 * HOUR + 1, 30 * 24 * HOUR, 10**6 * HOUR]
    assert all(limit_rounded_up(limit) >= limit for limit in limits)
    assert {limit_class(round(HOUR / 120 * 1.1**power)) for power in range(200)} == {*range(64)}
    assert limit_rounded_up(24 * HOUR) == 24 * HOUR
    assert limit_class(24 * HOUR) + 1 == limit_class(24 * HOUR + 1)


def test_of_a_thousand_owners_all_are_considered_in_their_order() -> None:
    line = [waits(f"job_{number:04}", owner=f"user-{number}", submitted=NOW - number) for number in range(1100)]
    planned = plan(seen(*line, hosts=[host(slots(*[None] * 4))]))
    assert [start.job.id for start in planned.starts] == ["job_1099", "job_1098", "job_1097", "job_1096"]
