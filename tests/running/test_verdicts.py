"""What a run of all quick tests may cost and skip."""

from pathlib import Path

import pytest

from tests.running import budget, skips
from tests.running.budget import Recorded
from tests.running.costs import SERVERS, Costs, without_database
from tests.running.groups import Group, Line, make_groups
from tests.running.shards import parse_shard
from tests.running.skips import Allowed

FILES = {f"tests/test_{number}.py": 1.0 for number in range(8)}
RECORDED = Recorded(0.01, {"tests/test_x.py": 10.0, **FILES}, {}, {"tests/test_x.py::test_dear": 6.0})
REASONS = {"tests/test_x.py::test_dear": "It trains."}


def costs(
    *,
    pace: float = 0.01,
    wait: float = 1.0,
    ours: float = 10.0,
    times: float = 1.0,
    shared: float = 0.0,
    **tests: float,
) -> Costs:
    """`ours`: what one file costs; all have cost so many times more, as the machine was slower."""
    told = Costs(paces=[(pace, pace * wait)] * 3)
    told.files.update({name: spent * times for name, spent in (FILES | {"tests/test_x.py": ours}).items()})
    if shared:
        told.files[SERVERS] = shared * times
    told.tests.update({f"tests/test_x.py::{name}": spent * times for name, spent in tests.items()})
    return told


def test_a_run_within_its_budget_passes() -> None:
    assert budget.compare(costs(test_dear=7.7, test_other=2.5, ours=11.0), RECORDED, REASONS) == budget.Verdict([], [])


def test_a_dear_test_without_a_reason_is_told_and_so_is_one_above_its_record() -> None:
    found = budget.compare(costs(test_other=2.7, test_dear=7.9), RECORDED, REASONS).warnings
    assert ["test_dear" in text for text in found] == [True, False]
    assert "dear.toml" in found[1]


def test_the_sum_warns_above_the_record_and_fails_far_above() -> None:
    assert budget.compare(costs(ours=15.3), RECORDED, REASONS).failures == []
    assert len(budget.compare(costs(ours=15.3), RECORDED, REASONS).warnings) == 1
    assert len(budget.compare(costs(ours=15.5), RECORDED, REASONS).failures) == 1
    assert budget.compare(costs(ours=15.5), RECORDED, REASONS).warnings == []
    assert len(budget.compare(costs(shared=5.5), RECORDED, REASONS).failures) == 1


@pytest.mark.parametrize("times", [0.6, 1.0, 1.8])
@pytest.mark.parametrize("pace", [0.006, 0.01, 0.018])
def test_costs_are_taken_at_the_pace_of_the_files_whatever_a_loop_takes(pace: float, times: float) -> None:
    told = costs(pace=pace, times=times, test_other=2.5, test_dear=7.7)
    assert budget.compare(told, RECORDED, REASONS).warnings == []
    grown = budget.compare(costs(pace=pace, times=times, ours=16.0, test_other=2.7), RECORDED, REASONS)
    assert len(grown.failures) >= 1 and len(grown.warnings) == 1


def test_a_file_that_has_grown_is_told_on_a_machine_of_any_pace() -> None:
    for times in (0.5, 1.0, 2.0):
        told = costs(times=times)
        told.files["tests/test_1.py"] = 4.1 * times
        (warning,) = budget.compare(told, RECORDED, REASONS).warnings[1:]
        assert warning == "tests/test_1.py costs 4.1 s of a processor, and 1.0 s at its record"


def test_what_makes_most_files_dear_is_seen_beside_the_loop() -> None:
    assert budget.compare(costs(pace=0.006, times=1.1), RECORDED, REASONS).failures == []
    (failure,) = budget.compare(costs(pace=0.01, times=2.1), RECORDED, REASONS).failures
    assert failure.startswith("most files cost 2.1 times their record, and a loop 1.0 times")


def test_on_a_busy_machine_costs_fail_nothing_but_are_told() -> None:
    found = budget.compare(costs(wait=5.0, ours=99.0, test_other=9.0), RECORDED, REASONS)
    assert found.failures == []
    assert len(found.warnings) == 4


def test_a_run_without_a_record_fails() -> None:
    assert budget.compare(costs(), None, REASONS).failures == ["no costs are recorded: make test-costs"]


def test_recorded_costs_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    budget.write(costs(test_dear=2.06, test_cheap=1.0), path)
    files = {"tests/test_x.py": 10.0, **FILES}
    assert budget.read(path) == Recorded(0.01, files, {}, {"tests/test_x.py::test_dear": 2.1})
    assert budget.read(tmp_path / "missing") is None


def test_a_tests_cost_is_that_of_its_phases_without_what_is_shared() -> None:
    told = Costs()
    for phase, own, shared in (("setup", 1.0, 4.0), ("call", 2.0, 0.0), ("teardown", 0.5, 0.25)):
        location = ("tests/test_x.py", 1, "test_it")
        name = "tests/test_x.py::test_it[sqlite-a]"
        properties = [("processor_s", own), ("shared_processor_s", shared), ("other", 9.0)]
        told.add(pytest.TestReport(name, location, {}, "passed", None, phase, (), 10.0, user_properties=properties))  # pyright: ignore[reportArgumentType]
    assert (dict(told.files), dict(told.tests)) == ({"tests/test_x.py": 7.75}, {"tests/test_x.py::test_it[a]": 3.5})


def test_what_files_share_is_counted_with_none_of_them() -> None:
    told = Costs()
    properties = [("servers_processor_s", 70.0)]
    told.add(
        pytest.TestReport(
            "t.py::x", ("t.py", 1, "x"), {}, "passed", None, "teardown", (), 1.0, user_properties=properties
        )
    )  # pyright: ignore[reportArgumentType]
    assert (dict(told.files), dict(told.tests)) == ({SERVERS: 70.0}, {"t.py::x": 0.0})


def test_a_test_costs_no_more_than_there_was_time_for() -> None:
    told = Costs()
    for phase in ("setup", "call", "teardown"):
        properties = [("processor_s", 85.0)]
        told.add(
            pytest.TestReport(
                "t.py::x", ("t.py", 1, "x"), {}, "passed", None, phase, (), 0.001, user_properties=properties
            )
        )  # pyright: ignore[reportArgumentType]
    assert told.tests["t.py::x"] < 1
    assert told.files["t.py"] < 1
    assert sum(told.files.values()) == pytest.approx(255)


@pytest.mark.parametrize(
    ("name", "without"),
    [("t::x[sqlite]", "t::x"), ("t::x[postgresql-a]", "t::x[a]"), ("t::x[sqlited]", "t::x[sqlited]"), ("t::x", "t::x")],
)
def test_the_database_is_no_part_of_a_tests_name(name: str, without: str) -> None:
    assert without_database(name) == without


ALLOWED = [
    Allowed("tests/gpu/*", "no GPU", because="", runs=""),
    Allowed("tests/proxy.py::test_it[a]", "no nginx", because="", runs="", program="nginx"),
]


def test_a_skip_is_listed_with_its_reason_or_fails_the_run() -> None:
    skipped = {
        "tests/gpu/test_x.py::test_a": "no GPU here",
        "tests/gpu/test_x.py::test_b": "no disk",
        "tests/t.py::c": "no GPU",
    }
    found = skips.judge(skipped, ALLOWED, in_ci=True)
    assert found.failures == ["tests/gpu/test_x.py::test_b was skipped: no disk", "tests/t.py::c was skipped: no GPU"]


def test_a_program_may_be_missing_but_not_in_ci() -> None:
    skipped = {"tests/proxy.py::test_it[a]": "no nginx"}
    at_home = skips.judge(skipped, ALLOWED, in_ci=False)
    assert (at_home.failures, at_home.missing) == ([], ["1 tests need nginx, which is missing"])
    assert len(skips.judge(skipped, ALLOWED, in_ci=True).failures) == 1


def test_what_is_listed_has_reasons_that_are_read() -> None:
    assert all(each.because and each.runs for each in skips.read())
    assert all(budget.read_reasons().values())


def test_each_test_is_in_one_shard() -> None:
    shards = [parse_shard(f"{number}/30") for number in range(1, 31)]
    names = [f"tests/test_x.py::test_it[{number}]" for number in range(3000)]
    assert [sum(shard.has(name) for shard in shards) for name in names] == [1] * len(names)
    assert min(sum(shard.has(name) for name in names) for shard in shards) > 50


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"share|invalid literal"):
        parse_shard(text)


class Item:
    def __init__(self, nodeid: str, *, served: bool = False) -> None:
        self.nodeid, self.fixturenames = nodeid, ["shared_service"] if served else []


def test_groups_are_files_the_longest_first_and_those_that_share_a_service_are_one_or_two() -> None:
    served = ("tests/e2e/test_jobs.py", "tests/e2e/test_after.py", "tests/own_code/test_data.py")
    files = ("tests/test_a.py", served[0], "tests/test_b.py", *served[1:], "tests/test_c.py")
    items = [
        Item(f"{file}::test_{number}", served=file in served and number > 0) for file in files for number in (0, 1)
    ]
    spent = {
        "tests/test_a.py": 1.0,
        "tests/test_b.py": 9.0,
        "tests/e2e/test_jobs.py": 2.0,
        "tests/e2e/test_after.py": 3.0,
        "tests/own_code/test_data.py": 4.0,
    }

    def named(workers: int) -> list[list[str]]:
        groups = make_groups(items, spent, {}, workers=workers)  # pyright: ignore[reportArgumentType]
        return [[items[index].nodeid.removeprefix("tests/") for index in group.tests] for group in groups]

    alone = [len(group) for group in named(1)]  # nine seconds of nineteen end in time
    assert alone == [2, 6, 2, 2]
    assert named(4) == [
        ["test_b.py::test_0", "test_b.py::test_1"],
        [f"e2e/test_{name}.py::test_{number}" for name in ("after", "jobs") for number in range(2)],
        ["own_code/test_data.py::test_0", "own_code/test_data.py::test_1"],
        ["test_a.py::test_0", "test_a.py::test_1"],
        ["test_c.py::test_0", "test_c.py::test_1"],
    ]


def test_groups_that_wait_run_beside_those_that_use_a_processor() -> None:
    files = [f"tests/test_{letter}.py" for letter in "abcdef"]
    items = [Item(f"{file}::test") for file in files]
    lengths = dict(zip(files, (60.0, 50.0, 40.0, 40.0, 30.0, 20.0), strict=True))
    spent = dict(zip(files, (6.0, 4.0, 40.0, 38.0, 3.0, 19.0), strict=True))
    line = Line(make_groups(items, lengths, spent, workers=3))  # pyright: ignore[reportArgumentType]
    taken: list[Group] = []
    while (group := line.take(taken[-1:])) is not None:  # of two workers, the one that began first has ended
        taken.append(group)
    order = [(items[group.tests[0]].nodeid.removeprefix("tests/test_")[0], group.waits) for group in taken]
    assert order == [("a", True), ("c", False), ("b", True), ("d", False), ("e", True), ("f", False)]
    line.put_back(taken[3])
    assert line.take([]) is taken[3], "what is left of the other half, where one half has no more"
