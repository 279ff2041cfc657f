"""The loader processes of a rank: how many there are, how long they live, and what ends them."""

import atexit
from collections.abc import Iterator
import multiprocessing
from multiprocessing.connection import Connection
import multiprocessing.util
import os
from pathlib import Path
import select
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.data import _utils

from tests import forks
from tests.trainer.ranks import DEADLINE_S
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import DataError
from trainer.data.loading import load_batches, loader_count

CPU = torch.device("cpu")


def squares(numbers: list[int]) -> tuple[int, list[int]]:
    """Returns who has answered, and the answer."""
    if numbers == [99]:
        raise DataError("99 is no number")
    return os.getpid(), [number**2 for number in numbers]


def asked(*requests: list[int], workers: int = 2) -> Iterator[tuple[int, list[int]]]:
    return load_batches(squares, requests, workers=workers, device=CPU)


def test_the_same_processes_answer_for_the_whole_run() -> None:
    first = [*asked(*([number] for number in range(8)))]
    later = [*asked(*([number] for number in range(8, 16)))]
    assert [answer for _, answer in first + later] == [[number**2] for number in range(16)]
    processes = {process for process, _ in first}
    assert len(processes) == 2
    assert {process for process, _ in later} == processes
    assert os.getpid() not in processes
    assert {process for process, _ in asked([1], [2], workers=0)} == {os.getpid()}


def test_requests_that_nobody_waits_for_any_more_have_no_answer() -> None:
    left = asked([1], [2], [3], [4], [5], [6])
    assert next(left)[1] == [1]
    assert [answer for _, answer in asked([7], [8])] == [[49], [64]]
    with pytest.raises(AssertionError, match="a later call"):
        next(left)


ASKS = "from trainer.data.loaders import answers; asked = answers(abs, [-1, 2, -3] * 9, workers=2, pinned=False)"
LEAVES = "import sys; sys.exit(f'{next(asked)} left')"


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["", LEAVES])
def test_a_program_that_ends_with_loader_processes_says_nothing_of_them(ending: str) -> None:
    program = f"{ASKS}; print(next(asked), flush=True); {ending or 'list(asked)'}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("1\n", "2 left\n" if ending else "")


def test_a_fork_that_ends_as_a_program_does_says_nothing_of_its_loader_processes(tmp_path: Path) -> None:
    """It has imported torch: a program takes seconds of a processor for that."""
    said = tmp_path / "said"
    process = forks.context.Process(target=end_as_a_program, args=(f"{ASKS}; next(asked); {LEAVES}", said))
    process.start()
    process.join(DEADLINE_S)
    assert (process.exitcode, said.read_text()) == (0, "2 left\n")


def end_as_a_program(program: str, said: Path) -> None:
    """Runs the program, and then what Python calls at an exit for torch and for our module."""
    for descriptor in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
    sys.stdout, sys.stderr = forks.open_output(1, "<stdout>"), forks.open_output(2, "<stderr>")
    at_exit: Any = atexit
    at_exit._clear()  # what the tests' own process does at its exit
    for function in (multiprocessing.util._exit_function, _utils._set_python_exit_flag):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        atexit.register(function)
    sys.modules.pop("trainer.data.loaders", None)
    try:
        exec(program, {"__name__": "__main__"})
    except SystemExit as end:
        print(end.code, file=sys.stderr)  # noqa: T201 as Python does
    at_exit._run_exitfuncs()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_is_raised_here_and_the_processes_go_on(workers: int) -> None:
    with pytest.raises(DataError, match=r"^99 is no number$"):
        list(asked([1], [99], workers=workers))
    assert [answer for _, answer in asked([3], workers=workers)] == [[9]]


def test_requests_are_made_when_they_are_needed() -> None:
    made: list[int] = []

    def requests() -> Iterator[list[int]]:
        for number in range(1000):
            made.append(number)
            yield [number]

    next(load_batches(squares, requests(), workers=2, device=CPU))
    assert len(made) < 10


def six_cpus(_: int) -> set[int]:
    return set(range(6))


@pytest.mark.parametrize(
    ("cpus", "local_size", "batches", "count"),
    [(None, 1, 100, 6), (None, 2, 100, 3), (None, 12, 100, 1), ("2", 1, 100, 2), ("50", 2, 100, 3), (None, 1, 4, 4)],
)
def test_auto_is_the_ranks_share_of_the_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: str | None, local_size: int, batches: int, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", six_cpus)
    monkeypatch.delenv(Env.CPUS, raising=False)
    if cpus is not None:
        monkeypatch.setenv(Env.CPUS, cpus)
    assert loader_count("auto", local_size=local_size, batches=batches) == count
    assert loader_count(5, local_size=local_size, batches=batches) == min(5, batches)


def rank(pipe: Connection) -> None:
    pipe.send([process for process, _ in asked([1], [2], [3], [4])])
    pipe.recv()


def test_the_processes_end_with_a_rank_that_is_killed() -> None:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=rank, args=(theirs,))
    process.start()
    assert ours.poll(DEADLINE_S)
    loaders = [os.pidfd_open(loader) for loader in set(ours.recv())]
    assert len(loaders) == 2
    process.kill()
    process.join()
    for loader in loaders:
        assert select.select([loader], [], [], DEADLINE_S)[0], "a loader process goes on without its rank"
        os.close(loader)
