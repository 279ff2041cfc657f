"""The text of the report, and the plan of a seed."""

from collections import Counter

import pytest

from tests.chaos import faults
from tests.chaos.report import Report, bound, percentile


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (50, 50.0), (51, 51.0), (99, 99.0), (99.5, 100.0), (100, 100.0)]
)
def test_a_percentile_is_the_least_value_that_enough_values_do_not_exceed(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert [percentile([7.0], percent) for percent in (0, 50, 99)] == [7.0, 7.0, 7.0]


def test_the_bound_is_the_rule_of_three() -> None:
    assert "0.0100 (3 / 300)" in bound(kills=300, violations=0)
    assert "1.0000 (3 / 2)" in bound(kills=2, violations=0)
    assert bound(kills=300, violations=1) == "95% bound: none"
    assert bound(kills=0, violations=0) == "95% bound: none"


def test_a_report_contains_every_figure() -> None:
    report = Report(
        seed=7,
        minutes=2,
        database="postgresql",
        kills={"rank": 2, "api": 1},
        faults={"disk full": 1},
        impossible={"postgresql restarted"},
        recovered={"rank": [4.0, 8.0], "api": [1.0]},
        unmeasured=1,
        ends={"succeeded": 3, "cancelled": 1},
        attempts=[1, 3, 1, 2],
        scored=5,
        polls=99,
        violations=["job_1: is lost"],
    )
    assert str(report).splitlines() == [
        "chaos: seed 7, 2 min, postgresql",
        "kills: 3 (rank 2, api 1)",
        "other faults: 1 (disk full 1)",
        "not possible here: postgresql restarted",
        "time to recover:",
        "  all        p50   4.00 s, p99   8.00 s (3 kills)",
        "  api        p50   1.00 s, p99   1.00 s (1 kills)",
        "  rank       p50   4.00 s, p99   8.00 s (2 kills)",
        "  not seen: 1",
        "jobs: 4 (succeeded 3, cancelled 1); attempts: 7 (1 of 2 jobs, 2 of 1 jobs, 3 of 1 jobs)",
        "scored estimates: 5; polls of the running service: 99",
        "violations: 1",
        "  job_1: is lost",
        "95% bound: none",
    ]


def test_a_seed_determines_the_plan() -> None:
    planned = faults.plan(seed=1, kills=36, seconds=180)
    assert planned == faults.plan(seed=1, kills=36, seconds=180)
    assert planned != faults.plan(seed=2, kills=36, seconds=180)
    assert sum(fault.kill for fault in planned) == 36
    counts = Counter(fault.what for fault in planned if not fault.kill)
    assert len(counts) == 12
    assert set(counts.values()) == {1}
    assert all(0 <= fault.at <= 180 for fault in planned)
    assert planned == sorted(planned)


def test_only_a_run_with_boxes_breaks_boxes() -> None:
    own, with_boxes = (
        {fault.what for fault in faults.plan(seed=1, kills=400, seconds=180, boxes=boxes)} for boxes in (False, True)
    )
    assert with_boxes - own == {
        *("box", "join", "link down for seconds", "link down past a lease"),
        *("box asleep for seconds", "box asleep past its lease"),
    }


def test_a_short_run_omits_long_faults() -> None:
    names = {fault.what for fault in faults.plan(seed=1, kills=36, seconds=60) if not fault.kill}
    assert len(names) == 11
    assert not names & {"rank stopped for good", "worker stopped past its lease"}
