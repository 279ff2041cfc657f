"""Two Gloo ranks, launched as a script job is: with torchrun, and as forks of the warm process."""

import os
from pathlib import Path
import signal
import tempfile

import pytest

from tests.approved import Approved
from tests.worker.attempt import Attempt, rank_of, wait_for
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.states import EndReason
from worker.host import process

DDP = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, total = dist.get_rank(), torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), "threads", torch.get_num_threads())
def peers():
    while True:
        dist.all_reduce(total)
"""
LISTENERS = """
import os, pathlib
tables = [pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
inodes = {line.split()[9]: line.split()[1] for table in tables for line in table if line.split()[3] == "0A"}
def listeners(pid):
    try:
        links = [os.readlink(f) for f in pathlib.Path(f"/proc/{pid}/fd").iterdir() if f.is_symlink()]
    except PermissionError:  # the first process of the namespace: its store is found by its port
        links = []
    return {inodes[link[8:-1]] for link in links if link[8:-1] in inodes}
children = pathlib.Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
stores = {address for address in inodes.values() if address.endswith(f":{int(os.environ['MASTER_PORT']):04X}")}
assert stores
for address in stores.union(*map(listeners, (os.getpid(), os.getppid(), *children))):
    print("listens", address.rpartition(":")[0], flush=True)
"""
LISTENING = LISTENERS + "dist.barrier()\ndist.destroy_process_group()\n"
ALONE = (
    LISTENERS
    + """
import time
rank, run = int(os.environ["RANK"]), pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
(run / f"read-{rank}").touch()
while not (run / f"read-{1 - rank}").exists(): time.sleep(0.01)
if rank == 1: os.kill(os.getpid(), 9)
time.sleep(3600)
"""
)
"""Needs no torch, whose import takes seconds of a processor: the store is torchrun's."""
# The peer may fail first, as the group is destroyed before the error is raised.
FAILING = """
if rank == 1:
    try:
        raise ValueError("bad batch")
    finally:
        dist.destroy_process_group()
peers()
"""


EACH_WAY = pytest.mark.parametrize(
    "attempt", [*(pytest.param(way, marks=pytest.mark.thorough) for way in ("cold", "agent")), "warm"], indirect=True
)
"""torchrun as a program of its own, torchrun as a fork, forked ranks."""


def _rank(attempt: Attempt, rank: int) -> ProcessIdentity:
    return rank_of(attempt.run, rank)


@EACH_WAY
def test_two_ranks_use_loopback_only_and_leave_no_temporary_file(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = _own_temporary_folder(tmp_path, monkeypatch)
    attempt.start_job(DDP + LISTENING)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for rank in (0, 1):
        first, *listening = attempt.log(f"rank-{rank}", "stdout").splitlines()
        assert first == f"sum 2 threads {threads}"
        assert listening
        assert set(listening) == {"listens 0100007F"}
    assert attempt.running_processes() == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("attempt", ["agent"], indirect=True)
def test_torchrun_uses_loopback_only_and_says_which_rank_was_killed(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    temporary = _own_temporary_folder(tmp_path, monkeypatch)
    attempt.start_job(ALONE)
    report = attempt.report()
    assert (report.reason, report.rank, report.exit_code) == (EndReason.KILLED, 1, -signal.SIGKILL)
    assert report.message == approved("message")
    for rank in (0, 1):
        assert set(attempt.log(f"rank-{rank}", "stdout").splitlines()) == {"listens 0100007F"}
    assert attempt.running_processes() == []
    assert list(temporary.iterdir()) == []


def _own_temporary_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns an empty folder that programs use from now on."""
    temporary = folder / "tmp"
    temporary.mkdir()
    tempfile.gettempdir()  # Python keeps it: the places of the worker are not in the ranks' folder
    monkeypatch.setenv("TMPDIR", str(temporary))
    return temporary


@EACH_WAY
@pytest.mark.thorough
def test_an_exception_names_its_rank_and_traceback(attempt: Attempt) -> None:
    attempt.start_job(DDP + FAILING)
    report = attempt.report()
    assert (report.reason, report.rank, report.exit_code) == (EndReason.USER_ERROR, 1, 1)
    assert report.message == "ValueError: bad batch"
    assert report.traceback is not None
    assert report.traceback.startswith("Traceback (most recent call last):\n")
    assert "train.py" in report.traceback
    assert "torchyard/run/rank.py" not in report.traceback
    assert "ValueError: bad batch" in attempt.log("rank-1", "stderr")


@EACH_WAY
@pytest.mark.parametrize(
    ("way", "reason", "code", "message"),
    [
        pytest.param("os._exit(3)", EndReason.USER_ERROR, 3, "rank 1 exited with code 3", marks=pytest.mark.thorough),
        (
            "os.kill(os.getpid(), 9)",
            EndReason.KILLED,
            -signal.SIGKILL,
            "rank 1 was killed by SIGKILL (perhaps the host ran out of memory)",
        ),
    ],
)
def test_a_rank_that_ends_without_an_error_is_reported(
    attempt: Attempt, way: str, reason: EndReason, code: int, message: str
) -> None:
    attempt.start_job(DDP + f"if rank == 1: {way}\npeers()")
    report = attempt.report()
    assert (report.reason, report.rank, report.exit_code, report.message) == (reason, 1, code, message)
    assert attempt.running_processes() == []


@pytest.mark.parametrize("attempt", [pytest.param("cold", marks=pytest.mark.thorough), "agent"], indirect=True)
@pytest.mark.thorough
def test_killing_torchrun_leaves_no_rank(attempt: Attempt) -> None:
    attempt.start_job(DDP + "peers()")
    wait_for(lambda: attempt.run.log("rank-1", "stdout").exists() and attempt.log("rank-1", "stdout"), "the first step")
    ranks = [_rank(attempt, rank) for rank in (0, 1)]
    torchrun = process.identity(_parent(ranks[0].pid))
    assert torchrun is not None
    process.send(torchrun, signal.SIGKILL)
    report = attempt.report()
    assert report.reason is EndReason.WORKER_LOST
    assert not any(process.is_alive(rank) for rank in ranks)
    assert attempt.running_processes() == []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
