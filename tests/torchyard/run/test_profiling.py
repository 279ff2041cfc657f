"""The profile of some steps of a program: which ones it has, and what is told where there is none."""

import errno
import gzip
import json
import os
from pathlib import Path
import shutil
from typing import Any

import pytest
import torch

from tests.approved import Approved
from torchyard.contract.attempts.events import Message, parse_line
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.run import Run


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def start(run_dir: RunDir, asked: str | None = "2:3", **environ: str) -> Run:
    profile = {} if asked is None else {Env.PROFILE: asked}
    return Run({Env.RUN_DIR: str(run_dir.job), **profile, **environ})


def work() -> None:
    torch.mm(torch.ones(16, 16), torch.ones(16, 16))


def steps(run: Run, *reported: int) -> None:
    for step in reported:
        work()
        run.progress(step=step)


def told(run_dir: RunDir) -> list[str]:
    found = [parse_line(line) for line in run_dir.events.read_text().splitlines()]
    return [line.text for line in found if isinstance(line, Message)]


def traces(run_dir: RunDir) -> dict[str, list[str]]:
    """Returns the steps in each trace, by the name of its file."""
    return {path.name: steps_in(path) for path in (run_dir.artifacts / "profile").glob("*")}


def steps_in(path: Path) -> list[str]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    named = {str(event.get("name")) for event in events}
    assert "aten::mm" in named
    return sorted(name for name in named if name.startswith("ProfilerStep#"))


def test_the_steps_that_were_asked_for_are_in_the_trace(run_dir: RunDir) -> None:
    run = start(run_dir)
    steps(run, *range(8))
    run.close()
    assert traces(run_dir) == {"steps-3-5.json.gz": [f"ProfilerStep#{step}" for step in (3, 4, 5)]}
    (text,) = told(run_dir)
    assert text.startswith("profile of steps 3 to 5: of the CPUs' time in operations ")
    assert text.endswith("; the trace is the artifact profile/steps-3-5.json.gz")
    assert "aten::mm " in text and "ProfilerStep" not in text
    assert 1 < text.count(" ms)") <= 5


def test_metrics_tell_the_steps_too_and_older_ones_do_not_count(run_dir: RunDir) -> None:
    run = start(run_dir)
    for step in range(1, 7):
        work()
        run.log({"loss": 1.0}, step=step)
        run.log({"late": 1.0}, step=max(1, step - 1))
    run.close()
    assert [*traces(run_dir)] == ["steps-3-5.json.gz"]


@pytest.mark.parametrize("environ", [{"RANK": "1"}, {}])
def test_without_a_profile_and_on_other_ranks_nothing_is_made(run_dir: RunDir, environ: dict[str, str]) -> None:
    run = start(run_dir, "2:3" if environ else None, **environ)
    steps(run, *range(8))
    run.close()
    assert traces(run_dir) == {}


@pytest.mark.parametrize(
    "reported",
    [
        [],
        [1],
        [1, 2],
        [1000, 2000],
    ],
)
def test_a_program_without_the_steps_is_told_so_once(run_dir: RunDir, reported: list[int], approved: Approved) -> None:
    run = start(run_dir)
    steps(run, *reported)
    run.close()
    assert told(run_dir) == [approved.of_row("told")]
    assert traces(run_dir) == {}


def test_a_program_that_ends_within_the_profile_keeps_what_there_is(run_dir: RunDir) -> None:
    run = start(run_dir)
    steps(run, 1, 2, 3, 4)
    run.close()
    assert [*traces(run_dir)] == ["steps-3-4.json.gz"]
    assert told(run_dir)[0].startswith("profile of steps 3 to 4, 2 of 3, as the program did no more of them: ")


def test_a_resume_beyond_the_start_profiles_nothing_again(run_dir: RunDir, approved: Approved) -> None:
    run = start(run_dir, **{Env.RESUME_FROM: "/resume"})
    steps(run, *range(3, 9))
    run.close()
    assert told(run_dir) == [approved("told")]


def test_a_resume_before_the_start_is_profiled(run_dir: RunDir) -> None:
    run = start(run_dir, "300:2", **{Env.RESUME_FROM: "/resume"})
    steps(run, *range(299, 305))
    run.close()
    assert [*traces(run_dir)] == ["steps-301-302.json.gz"]


def test_steps_that_are_told_some_at_a_time_are_profiled_whole(run_dir: RunDir) -> None:
    run = start(run_dir)
    steps(run, *range(0, 40, 10))
    run.close()
    assert [*traces(run_dir)] == ["steps-11-20.json.gz"]


def test_an_evaluation_within_the_profile_ends_it(run_dir: RunDir) -> None:
    run = start(run_dir)
    steps(run, 1, 2, 3, *[3] * 200, 4, 5)
    run.close()
    assert [*traces(run_dir)] == ["steps-3-3.json.gz"]


def test_what_the_profiler_raises_is_told_and_the_program_goes_on(
    run_dir: RunDir, tmp_path: Path, approved: Approved
) -> None:
    (run_dir.artifacts / "profile").write_text("in the way")
    run = start(run_dir)
    steps(run, *range(8))
    run.close()
    (text,) = told(run_dir)
    assert text == approved("text", tmp_path=tmp_path)


def test_no_half_of_a_trace_becomes_an_artifact(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_the_disk(_: Any, packed: Any, __: int) -> None:
        packed.write(b"{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", fill_the_disk)
    run = start(run_dir)
    steps(run, *range(8))
    run.close()
    assert told(run_dir) == ["nothing was profiled: the profiler failed: [Errno 28] No space left on device"]
    assert [*(run_dir.artifacts / "profile").iterdir()] == []
