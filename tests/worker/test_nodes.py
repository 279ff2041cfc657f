"""One attempt over several nodes: a supervisor for each, and one group of ranks."""

from collections.abc import Callable, Iterator
import signal

import pytest

from tests.worker.attempt import Attempt
from tests.worker.nodes import Nodes
from torchyard.contract.job import EndReason

JOINS = """
import os, pathlib, signal, sys, time
import torch, torch.distributed as dist
import torchyard
run = torchyard.init()
dist.init_process_group("gloo")
root, total = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), "rank", dist.get_rank(), "of", dist.get_world_size(), "here", run.local_rank, flush=True)
"""
STEPS = """
for step in range(1, 1_000_000):
    dist.all_reduce(torch.ones(1))
    if step == 5: (root / f"ready-{run.rank}").touch()
    if run.should_stop(): break
print("left at", step, flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def nodes_of(attempt: Attempt) -> Iterator[Callable[..., Nodes]]:
    made: list[Nodes] = []

    def make(*, nodes: int = 2, ranks: int = 1) -> Nodes:
        made.append(Nodes(attempt, nodes, ranks))
        return made[-1]

    yield make
    for nodes in made:
        for supervisor in nodes.supervisors:
            supervisor.kill()
            supervisor.wait()


def test_ranks_of_all_nodes_form_one_group(nodes_of: Callable[..., Nodes]) -> None:
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.start_job(JOINS + "dist.destroy_process_group()\n")
    assert [report.reason for report in nodes.reports()] == [EndReason.COMPLETED] * 2
    said = [nodes.attempt.log(f"rank-{rank}", "stdout") for rank in range(4)]
    assert said == [f"sum 4 rank {rank} of 4 here {rank % 2}\n" for rank in range(4)]
    assert nodes.attempt.running_processes() == []


def _ready(nodes: Nodes) -> None:
    for rank in range(nodes.nodes * nodes.ranks):
        nodes.attempt.wait_for_file(f"ready-{rank}")


def _left_at(nodes: Nodes) -> set[str]:
    ranks = range(nodes.nodes * nodes.ranks)
    return {nodes.attempt.log(f"rank-{rank}", "stdout").partition("left at ")[2] for rank in ranks}


@pytest.mark.parametrize(("number", "ranks"), [(2, 1), (2, 2)])
def test_at_a_stop_all_ranks_leave_at_the_same_step(nodes_of: Callable[..., Nodes], number: int, ranks: int) -> None:
    nodes = nodes_of(nodes=number, ranks=ranks)
    nodes.start_job(JOINS + STEPS)
    _ready(nodes)
    for node in range(number):
        nodes.told(node, EndReason.PAUSED)
    assert [(report.reason, report.message) for report in nodes.reports()] == [(EndReason.PAUSED, "paused")] * number
    (step,) = _left_at(nodes)
    assert int(step) > 5
    assert nodes.attempt.running_processes() == []


def test_sigterm_to_every_process_is_a_stop_that_the_ranks_agree_on(nodes_of: Callable[..., Nodes]) -> None:
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.start_job(JOINS + STEPS)
    _ready(nodes)
    nodes.signal_all(signal.SIGTERM)
    assert [report.reason for report in nodes.reports()] == [EndReason.PREEMPTED] * 2
    (step,) = _left_at(nodes)
    assert int(step) > 5
