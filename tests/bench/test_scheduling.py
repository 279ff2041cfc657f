"""The simulator of the queue on tiny traces: what it prints, and EASY by limits as one counts it by hand."""

from dataclasses import fields
import json
from pathlib import Path

import pytest

from bench.scheduling import __main__ as program
from bench.scheduling import traces
from bench.scheduling.report import Result, result_of
from bench.scheduling.simple import Easy
from bench.scheduling.simulator import simulate

KEYS = [
    *("trace", "seed", "preemptible", "policy", "mean_wait_hours", "big_mean_hours", "big_max_hours"),
    *("worst_user_hours", "others_wait_hours", "slowdown"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(traces, "FOLDER", tmp_path)
    return tmp_path


def test_json_is_a_list_of_all_figures_of_each_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [_philly(number) for number in range(60)]
    (folder / "philly.csv").write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *lines]))
    monkeypatch.setattr(traces, "JOBS", 40)
    given = ["bench.scheduling", "--trace", "philly", "--seeds", "a", "b", "--policy", "today", "plan", "--json"]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit):
        program.main()
    found = json.loads(capsys.readouterr().out)
    assert [(one["seed"], one["policy"]) for one in found] == [(seed, name) for seed in "ab" for name in given[-3:-1]]
    assert all([*one] == KEYS for one in found) and [field.name for field in fields(Result)] == KEYS
    assert all(one["trace"] == "philly" and one["preemptible"] == 0.7 for one in found)
    assert all(one["big_max_hours"] >= one["big_mean_hours"] and one["slowdown"] >= 1 for one in found)
    again = program.result_of("philly", "a", 0.7, "today", simulate(traces.philly("a", 0.7), program.Today("a")))
    assert vars(again) == found[0], "a seed tells all"


def test_estimates_are_scored_by_seed_and_in_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [_philly(number) for number in range(60)]
    (folder / "philly.csv").write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *lines]))
    monkeypatch.setattr(traces, "JOBS", 30)
    monkeypatch.setattr(traces, "LOAD", 4.0)
    monkeypatch.setattr("sys.argv", ["bench.scheduling", "--forecast", "--seeds", "a", "b"])
    with pytest.raises(SystemExit):
        program.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["seed", "---", "a", "b", "all"]
    counts = [int(row[1]) for row in rows[2:]]
    assert counts[0] > 0 and counts[2] == counts[0] + counts[1]


def test_easy_lets_others_pass_who_do_not_delay_the_first_by_limits(folder: Path) -> None:
    """Of 100 processors: 60 for 100 s, then one that waits for all of them, then three that could pass it."""
    jobs = [(0, 100, 60, 120), (10, 50, 100, 60), (20, 80, 40, 100), (30, 10, 40, 200), (130, 20, 40, 30)]
    (folder / "KTH-SP2.swf").write_text("; a comment\n" + "\n".join(_swf(*job) for job in jobs))
    found = simulate(traces.whole_kth(), Easy())
    # The first is bound to end at 120: 20 + 100 is not later, 30 + 200 is. The last waits for those before it.
    assert [round(job.waited / 1e6) for job in found] == [0, 90, 0, 120, 20]
    slowdowns = [1, (90 + 50) / 50, 1, (120 + 10) / 10, (20 + 20) / 20]
    assert result_of("kth", "", 0.0, "easy", found).slowdown == pytest.approx(sum(slowdowns) / 5)


def _philly(number: int) -> str:
    run, devices, user = 3600.0 * (1 + number % 5), 2 ** (number % 4), f"user-{number % 3}"
    return f"2017-10-02 {number // 60:02}:{number % 60:02}:00,{run},{devices},{run * devices},{user}"


def _swf(submitted: int, run: int, processors: int, limit: int) -> str:
    return f"1 {submitted} -1 {run} {processors} -1 -1 {processors} {limit} -1 1 7 -1 -1 -1 -1 -1 -1"
