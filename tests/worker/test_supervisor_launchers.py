"""A stop of a program that another one has started: a shell, a wrapper, torchrun. It has its grace all the same."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import signal
import sys
from typing import Any

import pytest

from tests.worker.attempt import DEADLINE_S, Attempt, rank_of, wait_for
from tests.worker.launchers import (
    ENDS_ITS_RANKS,
    FORWARDS_AND_ENDS,
    HAS_A_HELPER,
    HAS_WORKERS,
    LOADS_DATA,
    POLLS,
    STARTS_ONE,
    TRAINS,
    TRAINS_IN_WORKERS,
)
from torchyard.contract.states import EndReason
from worker.engines.local.launchers import rank_start
from worker.host import process
from worker.sandbox import levels

START = "agent"
"""Starts less than a cold start does."""
Code = Mapping[str, str]


def start(attempt: Attempt, code: Code, command: Sequence[str], *, ranks: int = 1, **spec: Any) -> None:
    """Runs a command of this code, and waits until each of its `ranks` trains."""
    program, *args = command
    config = {"code": attempt.add_bundle(code), "command": program, "args": args}
    attempt.start_spec({"trainer": "script", "config": config, **spec}, world_size=1)
    for rank in range(ranks):
        wait_for_file_or_end(attempt, f"ready-{rank}")


def start_entrypoint(attempt: Attempt, code: Code) -> None:
    """Runs `wrapper.py` as the job's own rank, and waits until its program trains."""
    attempt.stand_in = attempt.launcher == "torchrun"
    config = {"code": attempt.add_bundle(code), "entrypoint": "wrapper.py"}
    attempt.start_spec({"trainer": "script", "config": config}, world_size=1)
    wait_for_file_or_end(attempt, "ready-0")


def wait_for_file_or_end(attempt: Attempt, name: str) -> None:
    wait_for(lambda: (attempt.run.job / name).exists() or attempt.run.exit.exists(), name)
    assert (attempt.run.job / name).exists(), f"{name}: {output(attempt)}"


def output(attempt: Attempt) -> str:
    logs = attempt.run.job.glob("logs/*")
    return attempt.run.exit.read_text() + "".join(log.read_text() for log in logs)


def save(attempt: Attempt, *, ranks: int = 1) -> None:
    """Lets the ranks save, once each has been told."""
    for rank in range(ranks):
        wait_for_file_or_end(attempt, f"told-{rank}")
    (attempt.run.job / "go").touch()


def assert_saved(attempt: Attempt, reason: EndReason, *, ranks: int = 1) -> None:
    report = attempt.report()
    assert report.reason is reason, output(attempt)
    assert "killed" not in report.message
    assert [(attempt.run.job / f"saved-{rank}").exists() for rank in range(ranks)] == [True] * ranks
    assert attempt.running_processes() == []


GO = {"go.sh": "#!/bin/bash\npython train.py\n", "train.py": TRAINS}


@pytest.mark.thorough  # the quick run has a script that goes on after its program, and one that is killed
@pytest.mark.parametrize("reason", [EndReason.PAUSED, EndReason.CANCELLED, EndReason.PREEMPTED])
def test_a_program_behind_a_shell_script_saves_at_a_stop(attempt: Attempt, reason: EndReason) -> None:
    start(attempt, GO, ["./go.sh"])
    attempt.stop(reason, grace=60)
    save(attempt)
    assert_saved(attempt, reason)


@pytest.mark.thorough  # the quick run shuts the host down while children of multiprocessing train
def test_it_saves_when_its_host_is_shut_down(attempt: Attempt) -> None:
    start(attempt, GO, ["./go.sh"], stop_grace="1m")
    process.send(attempt.supervisor, signal.SIGTERM)
    save(attempt)
    assert_saved(attempt, EndReason.PREEMPTED)


@pytest.mark.thorough
def test_it_saves_at_its_time_limit(attempt: Attempt) -> None:
    shell = ["--command", "0", "1", "sh", "-c", f"python {attempt.script(TRAINS)}; true"]
    plan = attempt.plan([sys.executable, "-I", "-S", rank_start.__file__, *shell], time_limit=40)
    attempt.start_plan(replace(plan, launcher="command"))
    save(attempt)
    assert_saved(attempt, EndReason.TIME_LIMIT)


MPIRUN = {"mpirun": ENDS_ITS_RANKS, "train.py": TRAINS}
SHELL = ["sh", "-c", "python train.py; true"]
WRAPPER = {"wrapper.py": STARTS_ONE, "train.py": TRAINS}
RUNNER = "[sys.executable, '-u', '-m', 'deepspeed.launcher.launch', *sys.argv[1:]]"
DEEPSPEED = {
    "train.py": TRAINS,
    "deepspeed/__init__.py": "",
    "deepspeed/launcher/__init__.py": "",
    "deepspeed/launcher/runner.py": ENDS_ITS_RANKS.replace("range(2)", "[0]").replace("sys.argv[1:]", RUNNER),
    "deepspeed/launcher/launch.py": ENDS_ITS_RANKS.replace("sys.argv[1:]", "[sys.executable, '-u', *sys.argv[1:]]"),
}
UV = ["uv", "run", "--no-project", "--offline", "--no-cache", "--python", sys.executable, "python", "train.py"]
ACCELERATE = ["accelerate", "launch", "--num_machines", "1", "--num_processes"]


@pytest.mark.parametrize(
    ("code", "command", "ranks"),
    [
        pytest.param({"train.py": TRAINS}, SHELL, 1, id="sh -c", marks=pytest.mark.thorough),
        pytest.param({"train.py": POLLS}, SHELL, 1, id="should_stop", marks=pytest.mark.thorough),
        pytest.param(
            {"train.py": TRAINS},
            ["bash", "-c", "python train.py 2>&1 | cat"],
            1,
            id="a pipe",
            marks=pytest.mark.thorough,
        ),
        pytest.param(WRAPPER, ["python", "wrapper.py"], 1, id="subprocess.run", marks=pytest.mark.thorough),
        pytest.param(MPIRUN, ["python", "mpirun", "python", "train.py"], 2, id="mpirun"),
        pytest.param({"train.py": TRAINS}, UV, 1, id="uv run", marks=pytest.mark.thorough),
        pytest.param(
            DEEPSPEED,
            ["python", "-m", "deepspeed.launcher.runner", "train.py"],
            2,
            id="deepspeed",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {"train.py": TRAINS},
            ["torchrun", "--standalone", "--nproc-per-node=2", "train.py"],
            2,
            id="torchrun",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {"train.py": TRAINS},
            [*ACCELERATE, "1", "--cpu", "train.py"],
            1,
            id="accelerate",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {"train.py": TRAINS},
            [*ACCELERATE, "2", "--multi_gpu", "train.py"],
            2,
            id="accelerate, two ranks",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_program_behind_another_one_saves_at_a_stop(
    attempt: Attempt, code: Code, command: Sequence[str], ranks: int
) -> None:
    start(attempt, code, command, ranks=ranks)
    attempt.stop(EndReason.PAUSED, grace=60)
    save(attempt, ranks=ranks)
    assert_saved(attempt, EndReason.PAUSED, ranks=ranks)


ISOLATED = pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=pytest.mark.thorough)])
ENTRYPOINT = pytest.mark.parametrize(
    "attempt", ["warm", pytest.param("agent", marks=pytest.mark.thorough)], indirect=True
)


@ENTRYPOINT
def test_a_program_that_the_entrypoint_starts_saves_at_a_stop(attempt: Attempt) -> None:
    start_entrypoint(attempt, {"wrapper.py": STARTS_ONE, "train.py": TRAINS})
    attempt.stop(EndReason.PAUSED, grace=60)
    save(attempt)
    assert_saved(attempt, EndReason.PAUSED)


@ENTRYPOINT
@ISOLATED
def test_a_program_is_waited_for_that_outlives_the_entrypoint(attempt: Attempt, isolated: bool) -> None:
    attempt.isolation = attempt.isolation if isolated else levels.OFF
    start_entrypoint(attempt, {"wrapper.py": FORWARDS_AND_ENDS, "train.py": TRAINS})
    rank = rank_of(attempt.run)
    attempt.stop(EndReason.PAUSED, grace=60)
    wait_for_file_or_end(attempt, "told-0")
    process.wait(rank, timeout=DEADLINE_S)
    save(attempt)
    assert_saved(attempt, EndReason.PAUSED)


@ISOLATED
def test_a_program_is_waited_for_that_outlives_its_command(attempt: Attempt, isolated: bool) -> None:
    attempt.isolation = attempt.isolation if isolated else levels.OFF
    start(attempt, {"wrapper.py": FORWARDS_AND_ENDS, "train.py": TRAINS}, ["python", "wrapper.py"])
    command = rank_of(attempt.run)
    attempt.stop(EndReason.PAUSED, grace=60)
    wait_for_file_or_end(attempt, "told-0")
    process.wait(command, timeout=DEADLINE_S)
    save(attempt)
    assert_saved(attempt, EndReason.PAUSED)


@pytest.mark.parametrize(
    "command",
    [pytest.param(["python", "train.py"], marks=pytest.mark.thorough), SHELL],
    ids=["alone", "behind a shell"],
)
def test_children_of_multiprocessing_get_no_signal(attempt: Attempt, command: Sequence[str]) -> None:
    start(attempt, {"train.py": HAS_WORKERS}, command)
    attempt.stop(EndReason.PAUSED, grace=60)
    save(attempt)
    assert_saved(attempt, EndReason.PAUSED)
    assert [*attempt.run.job.glob("disturbed*")] == []


def test_children_of_multiprocessing_that_train_are_waited_for(attempt: Attempt) -> None:
    start(attempt, {"train.py": TRAINS_IN_WORKERS}, ["python", "train.py"], stop_grace="1m")
    process.send(attempt.supervisor, signal.SIGTERM)
    save(attempt)
    assert_saved(attempt, EndReason.PREEMPTED)
    assert [*attempt.run.job.glob("disturbed*")] == []


@pytest.mark.thorough
def test_workers_of_a_data_loader_get_no_signal_and_are_not_waited_for(attempt: Attempt) -> None:
    start(attempt, {"train.py": LOADS_DATA}, SHELL)
    attempt.stop(EndReason.PAUSED, grace=3600)
    assert attempt.report().reason is EndReason.PAUSED
    assert attempt.running_processes() == []


def test_a_helper_that_is_not_python_gets_no_signal_and_is_not_waited_for(attempt: Attempt) -> None:
    start(attempt, {"train.py": HAS_A_HELPER}, SHELL)
    attempt.stop(EndReason.PAUSED, grace=3600)
    assert attempt.report().reason is EndReason.PAUSED
    assert not (attempt.run.job / "disturbed").exists()
    assert attempt.running_processes() == []


def test_a_script_may_go_on_for_a_while_after_its_program_has_saved(attempt: Attempt) -> None:
    copies = "#!/bin/bash\npython train.py\n" + 'cp "$TORCHYARD_RUN_DIR/saved-0" "$TORCHYARD_RUN_DIR/copied"\n'
    start(attempt, {**GO, "go.sh": copies}, ["./go.sh"])
    attempt.stop(EndReason.PAUSED, grace=60)
    save(attempt)
    assert_saved(attempt, EndReason.PAUSED)
    assert (attempt.run.job / "copied").exists()


def test_a_script_that_starts_its_program_again_ends_all_the_same(attempt: Attempt) -> None:
    again = "#!/bin/bash\nwhile true; do python train.py; sleep 0.5; done\n"
    start(attempt, {**GO, "go.sh": again}, ["./go.sh"])
    attempt.stop(EndReason.PAUSED, grace=8)
    save(attempt)
    assert_saved(attempt, EndReason.PAUSED)


def test_programs_without_a_handler_end_at_once(attempt: Attempt) -> None:
    runs = "import os, time; open(os.environ['TORCHYARD_RUN_DIR'] + '/ready-0', 'w')\nwhile True: time.sleep(1)\n"
    start(attempt, {**GO, "train.py": runs}, ["./go.sh"])
    attempt.stop(EndReason.PAUSED, grace=3600)
    assert attempt.report().reason is EndReason.PAUSED
    assert attempt.running_processes() == []


def test_what_is_left_after_the_grace_is_killed(attempt: Attempt) -> None:
    start(attempt, GO, ["./go.sh"])
    attempt.stop(EndReason.PAUSED, grace=2)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused; killed after a grace of 2s")
    assert (attempt.run.job / "told-0").exists()
    assert attempt.running_processes() == []
