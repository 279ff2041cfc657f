"""One attempt over several nodes: a supervisor for each, and one group of ranks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
import signal

import pytest

from tests.approved import Approved
from tests.processes import kill_attempt
from tests.trainer.runs import points, same, state
from tests.worker.attempt import Attempt, wait_for
from tests.worker.nodes import Nodes
from tests.worker.programs import WAITS_IN_C
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.attempts.records import ExitReport, ProcessIdentity
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record
from worker.engines.local.launchers.torchrun import TorchrunLauncher
from worker.engines.local.stacks import request_stacks, written_since
from worker.engines.local.supervisor.verdict import blames_a_peer
from worker.host import process

MakeNodes = Callable[..., Nodes]

JOINS = """
import os, pathlib, signal, sys, time
import torch, torch.distributed as dist
import torchyard
run = torchyard.init()
dist.init_process_group("gloo")
root, total = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), torch.ones(1)
dist.all_reduce(total)
said = f"sum {int(total)} rank {dist.get_rank()} of {dist.get_world_size()} here {run.local_rank}\\n"
os.write(1, said.encode())  # at once, as the ranks of a command share a file
"""
LISTENS = """
tables = [pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
listening = {line.split()[1] for table in tables for line in table if line.split()[3] == "0A"}
port = f":{int(os.environ['MASTER_PORT']):04X}"
print(sorted(address.removesuffix(port) for address in listening if address.endswith(port)), flush=True)
dist.barrier()
"""
STARTS = """
import os, pathlib, signal, time
os.environ.setdefault("WORLD_SIZE", "2")  # the stand-in for torchrun does not set it
import torchyard
run, root = torchyard.init(), pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
"""
"""Begins a job on two nodes of one rank that needs no torch."""
STEPS = """
for step in range(1, 1_000_000):
    dist.all_reduce(torch.ones(1))
    if step == 5: (root / f"ready-{run.rank}").touch()
    time.sleep(0.02)
    if run.should_stop(): break
print("left at", step, flush=True)
"""
ENDS = "dist.destroy_process_group()\n"
USES_THE_STORE = """
if run.rank == 1:
    while not (root / "go on").exists(): time.sleep(0.01)
    store = dist.distributed_c10d._get_default_store()
    store.set("mine", "kept")
    print(store.get("mine").decode(), flush=True)
os._exit(0)
"""


@pytest.fixture
def nodes_of(attempt: Attempt) -> Iterator[MakeNodes]:
    made: list[Nodes] = []

    def make(*, nodes: int = 2, ranks: int = 1, torch: bool = True) -> Nodes:
        made.append(Nodes(attempt, nodes, ranks, launcher=TorchrunLauncher() if torch else TorchrunStandIn()))
        return made[-1]

    yield make
    _end(made)


def _end(made: Sequence[Nodes]) -> None:
    for nodes in made:
        for supervisor in nodes.supervisors:
            supervisor.kill()
            supervisor.wait()


@dataclass(frozen=True)
class Paused:
    """What two nodes of one rank have left that torchrun starts, and that were asked to stop."""

    nodes: Nodes
    reports: Sequence[ExitReport]

    def said(self, rank: int) -> list[str]:
        return self.nodes.attempt.log(f"rank-{rank}", "stdout").splitlines()


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paused]:
    """Starts ranks for several tests, as their import of torch takes seconds of a processor.

    Rank 1 leaves the steps with rank 0, but ends long after it.
    """
    attempt = Attempt.create(tmp_path_factory.mktemp("paused"))
    nodes = Nodes(attempt, asks_nobody=True)
    try:
        nodes.start_job(JOINS + LISTENS + STEPS + USES_THE_STORE)
        _ready(nodes)
        rank = nodes.rank(0)
        for node in (0, 1):
            nodes.told(node, EndReason.PAUSED, grace=300)
        wait_for(lambda: not process.is_alive(rank), "the end of rank 0")
        wait_for(nodes.of(0).ended.joinpath("0").exists, "what the supervisor of node 0 says of it")
        (attempt.run.job / "go on").touch()
        yield Paused(nodes, nodes.reports())
    finally:
        _end([nodes])
        assert kill_attempt(attempt.job_id, attempt.number) == []


def test_ranks_of_two_nodes_form_one_group(paused: Paused, approved: Approved) -> None:
    assert [paused.said(rank)[0] for rank in (0, 1)] == [approved("said"), approved("sum rank here")]


def test_the_store_listens_where_the_nodes_reach_each_other_and_nowhere_else(paused: Paused) -> None:
    assert [paused.said(rank)[1] for rank in (0, 1)] == ["['0100007F']"] * 2


def test_at_a_stop_the_ranks_of_two_nodes_leave_at_the_same_step(paused: Paused) -> None:
    assert [(report.reason, report.message) for report in paused.reports] == [(EndReason.PAUSED, "paused")] * 2
    (step,) = {paused.said(rank)[2].removeprefix("left at ") for rank in (0, 1)}
    assert int(step) > 5
    assert paused.nodes.attempt.running_processes() == []


def test_the_store_outlives_the_ranks_of_its_node_at_a_stop(paused: Paused) -> None:
    assert paused.said(1)[3:] == ["kept"]


def test_torchrun_asks_no_name_server(paused: Paused) -> None:
    """It has started the ranks, and would have failed."""
    for node in (0, 1):
        launcher = paused.nodes.attempt.run.log(paused.nodes.of(node).launcher, "stderr")
        assert "a name server was asked" not in launcher.read_text()


@pytest.mark.thorough  # the quick run has two nodes of one rank, as above
def test_ranks_of_all_nodes_form_one_group(nodes_of: MakeNodes) -> None:
    ranks = 2
    nodes = nodes_of(nodes=2, ranks=ranks)
    nodes.start_job(JOINS + LISTENS + ENDS)
    assert [report.reason for report in nodes.reports()] == [EndReason.COMPLETED] * 2
    for rank in range(2 * ranks):
        joined, listens = nodes.attempt.log(f"rank-{rank}", "stdout").splitlines()
        assert joined == f"sum {2 * ranks} rank {rank} of {2 * ranks} here {rank % ranks}"
        assert listens == "['0100007F']", "the store is where the nodes reach each other, and nowhere else"
    ended = [{path.name for path in nodes.of(node).ended.iterdir()} for node in (0, 1)]
    assert ended == [{f"{node * ranks + rank}.finished" for rank in range(ranks)} for node in (0, 1)]
    assert nodes.attempt.running_processes() == []


def _ready(nodes: Nodes) -> None:
    for rank in range(nodes.nodes * nodes.ranks):
        nodes.attempt.wait_for_file(f"ready-{rank}")


def _left_at(nodes: Nodes) -> set[str]:
    ranks = range(nodes.nodes * nodes.ranks)
    return {nodes.attempt.log(f"rank-{rank}", "stdout").partition("left at ")[2] for rank in ranks}


@pytest.mark.thorough
def test_at_a_stop_all_ranks_leave_at_the_same_step(nodes_of: MakeNodes) -> None:
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.start_job(JOINS + STEPS + ENDS)
    _ready(nodes)
    for node in (0, 1):
        nodes.told(node, EndReason.PAUSED)
    assert [(report.reason, report.message) for report in nodes.reports()] == [(EndReason.PAUSED, "paused")] * 2
    (step,) = _left_at(nodes)
    assert int(step) > 5
    assert nodes.attempt.running_processes() == []


@pytest.mark.thorough
def test_sigterm_to_every_process_is_a_stop_that_the_ranks_agree_on(nodes_of: MakeNodes) -> None:
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.start_job(JOINS + STEPS + ENDS)
    _ready(nodes)
    nodes.signal_all(signal.SIGTERM)
    assert [report.reason for report in nodes.reports()] == [EndReason.PREEMPTED] * 2
    (step,) = _left_at(nodes)
    assert int(step) > 5


@pytest.mark.thorough
def test_a_recipe_learns_on_two_nodes_what_it_learns_on_one(nodes_of: MakeNodes, tmp_path: Path) -> None:
    spec = {
        "trainer": "image-classification",
        "config": {"data": {"source": "digits"}, "training": {"epochs": 2}},
        "env": {"OMP_NUM_THREADS": "1"},  # sums depend on it
    }
    nodes = nodes_of()
    nodes.start_spec(spec)
    assert [report.reason for report in nodes.reports()] == [EndReason.COMPLETED] * 2
    alone = Attempt.create(tmp_path / "alone")
    alone.start_spec(spec, world_size=2)
    assert alone.report().reason is EndReason.COMPLETED
    for key in ("train/loss", "val/loss", "val/accuracy"):
        curve = points(nodes.attempt.run, key)
        assert curve
        assert curve == points(alone.run, key)
    assert same(state(nodes.attempt.run, "epoch-0002"), state(alone.run, "epoch-0002"))


@pytest.mark.thorough
def test_sigterm_before_any_rank_runs_is_a_stop_too(nodes_of: MakeNodes) -> None:
    nodes = nodes_of()
    nodes.launcher = TorchrunStandIn(["/bin/sleep", "3600"])
    nodes.start_job("")
    for node in (0, 1):
        wait_for(nodes.of(node).supervisor.exists, "the supervisor")
        wait_for(nodes.attempt.run.log(nodes.of(node).launcher, "stderr").exists, "the launcher")
    nodes.signal_all(signal.SIGTERM)
    assert [report.reason for report in nodes.reports()] == [EndReason.PREEMPTED] * 2


@pytest.mark.thorough
def test_a_rank_that_fails_at_a_stop_keeps_no_other_node(nodes_of: MakeNodes) -> None:
    nodes = nodes_of()
    nodes.start_job(JOINS + STEPS + ENDS + "if run.rank == 1: raise OSError('no space for the checkpoint')\n")
    _ready(nodes)
    for node in (0, 1):
        nodes.told(node, EndReason.PAUSED, grace=3600)
    first, second = nodes.reports()
    assert (first.reason, first.message) == (EndReason.PAUSED, "paused")
    assert (second.reason, second.message) == (EndReason.PAUSED, "paused; OSError: no space for the checkpoint")


@pytest.mark.thorough
def test_an_exception_is_in_the_report_of_its_node_and_the_other_one_blames_its_peer(nodes_of: MakeNodes) -> None:
    fails = """
if run.rank == 2:
    try: raise ValueError("bad batch")
    finally: dist.destroy_process_group()
while True: dist.all_reduce(total)
"""
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.start_job(JOINS + fails)
    first, second = nodes.reports()
    assert (second.reason, second.rank, second.message) == (EndReason.USER_ERROR, 2, "ValueError: bad batch")
    assert second.traceback is not None
    assert "train.py" in second.traceback
    assert [blames_a_peer(report) for report in (first, second)] == [True, False]


@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["stand-in", "torchrun"])
def test_a_killed_rank_is_named_and_a_rank_of_another_node_that_waits_in_c_leaves(
    nodes_of: MakeNodes, *, torch: bool
) -> None:
    """The other node hears of it, by whoever looks after all nodes, but the ranks' own stop request is not there."""
    text = "(root / f'ready-{run.rank}').touch()\nif run.rank == 1: time.sleep(3600)\n" + WAITS_IN_C
    nodes = nodes_of(torch=torch)
    nodes.start_job(STARTS + text)
    _ready(nodes)
    process.send(nodes.rank(1), signal.SIGKILL)
    second = nodes.report(1)
    # unlike torchrun, the stand-in does not report which rank failed
    known = (EndReason.KILLED, 1, -signal.SIGKILL) if torch else (EndReason.USER_ERROR, None, None)
    assert (second.reason, second.rank, second.exit_code) == known
    assert {path.name for path in nodes.of(1).ended.iterdir()} == {"1"}
    nodes.told(0, EndReason.WORKER_LOST, grace=3600)
    assert nodes.report(0).reason is EndReason.WORKER_LOST
    assert "another rank has failed, and this one waits: it ends" in nodes.attempt.log("rank-0", "stderr")
    assert nodes.attempt.running_processes() == []


def test_a_hang_has_the_stacks_of_every_node_that_is_told_of_it(nodes_of: MakeNodes) -> None:
    text = """
def stuck_here():
    if run.rank == 0:
        run.log({"loss": 1.0}, step=1)
        run.flush()
    (root / f"ready-{run.rank}").touch()
    while True: time.sleep(1)
stuck_here()
"""
    nodes = nodes_of(torch=False)
    nodes.start_job(STARTS + text, stall=3)
    _ready(nodes)
    first = nodes.report(0)
    assert process.is_alive(nodes.rank(1)), "only the node of rank 0 sees that there is no progress"
    nodes.told(1, EndReason.HANG, grace=0)
    second = nodes.report(1)
    for rank, report in enumerate((first, second)):
        assert (report.reason, report.traceback and report.traceback.count("in stuck_here")) == (EndReason.HANG, 1)
        assert report.traceback is not None
        assert report.traceback.startswith(f"rank {rank}:\n")


@pytest.mark.thorough
def test_each_node_asks_its_own_ranks_for_their_stacks(nodes_of: MakeNodes) -> None:
    text = "def stuck_here():\n    (root / f'ready-{run.rank}').touch()\n    while True: time.sleep(1)\nstuck_here()\n"
    nodes = nodes_of(torch=False)
    nodes.start_job(STARTS + text)
    _ready(nodes)
    read_all = written_since(nodes.attempt.run, ranks=range(2))
    supervisor = read_record(nodes.of(1).supervisor, ProcessIdentity)
    assert supervisor is not None
    read = request_stacks(nodes.of(1), supervisor, ranks=[1])
    wait_for(lambda: "in stuck_here" in (read()[0].text or ""), "the stacks of rank 1")
    assert [item.text is None for item in read_all()] == [True, False]


@pytest.mark.thorough
def test_the_time_limit_ends_every_node(nodes_of: MakeNodes) -> None:
    nodes = nodes_of(torch=False)
    nodes.start_job("import time\ntime.sleep(3600)\n", time_limit=2, grace=2)
    assert [report.reason for report in nodes.reports()] == [EndReason.TIME_LIMIT] * 2


@pytest.mark.thorough
def test_a_command_is_started_on_each_node_with_what_torchrun_needs(nodes_of: MakeNodes) -> None:
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.attempt.script(JOINS + "dist.destroy_process_group()\n")
    config = {"code": f"file://{nodes.attempt.run.root}/code", "command": "torchrun", "args": ["train.py"]}
    nodes.start_spec({"trainer": "script", "config": config})
    assert [report.reason for report in nodes.reports()] == [EndReason.COMPLETED] * 2
    said = [nodes.attempt.log(f"rank-{rank}", "stdout").splitlines() for rank in (0, 2)]
    assert [sorted(lines) for lines in said] == [
        [f"sum 4 rank {rank} of 4 here {rank % 2}" for rank in ranks] for ranks in ((0, 1), (2, 3))
    ]


def test_a_command_that_fails_counts_as_the_first_rank_of_its_node(nodes_of: MakeNodes, approved: Approved) -> None:
    nodes = nodes_of(nodes=2, ranks=2)
    nodes.attempt.script("#!/bin/sh\n[ $NODE_RANK = 1 ] && exit 7\nexec sleep 3600\n", name="go.sh").chmod(0o700)
    config = {"code": f"file://{nodes.attempt.run.root}/code", "command": "go.sh"}
    nodes.start_spec({"trainer": "script", "config": config})
    report = nodes.report(1)
    assert (report.rank, report.exit_code, report.message) == (2, 7, approved("message"))
