"""A rank that waits in C leaves an attempt that another rank has failed, and no other one."""

from datetime import timedelta
import os
from pathlib import Path
import signal

import pytest

from tests.forked import ForkedProgram
from tests.worker.attempt import wait_for
from tests.worker.programs import WAITS_IN_C
from torchyard.contract.attempts.records import ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record

BEGINS = """
import os, pathlib, signal, sys, threading, time
import torchyard
from torchyard.run import reactions
from torchyard.run.checkpoint_writer import PendingCheckpoint
reactions.PEER_GRACE_S = 0.0
reactions.record_collectives = lambda *_: (root / "heard").touch()
run = torchyard.init()
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
def ready(): (root / "ready").touch()
def wait(name):
    while not (root / name).exists(): time.sleep(0.01)
def was_heard():
    '''Returns once the thread has reacted to SIGTERM: it takes the signals one after the other.'''
    os.kill(os.getpid(), signal.SIGRTMIN)
    wait("heard")
"""
STAYS = "ready()\nwait('sent')\nassert run.stop_requested\nwas_heard()\n"
SAVES = """
def write():
    ready()
    wait("sent")
    (root / "written").touch()
run._checkpoints.write_in_background(lambda: PendingCheckpoint(1, write))
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


@pytest.fixture
def failed_peer(folder: RunDir) -> None:
    """Rank 1 has ended, and its program had not done its work."""
    write_record(folder.ranks / "1.json", ProcessIdentity(pid=2**22 + 1, start_time=1, boot_id="an earlier one"))


def end(folder: RunDir, text: str) -> int:
    """Runs rank 0 of 2, and sends it SIGTERM once it is ready. Then it finds the file `sent`. Returns its exit code."""
    env = {**os.environ, Env.RUN_DIR: str(folder.job), "RANK": "0", "WORLD_SIZE": "2"}
    program = ForkedProgram("tests.given", BEGINS + text, env=env, cwd=folder.job, log=folder.job / "said")
    try:
        wait_for((folder.job / "ready").exists, "the program")
        program.send_signal(signal.SIGTERM)
        (folder.job / "sent").touch()
        return program.wait(240)
    finally:
        program.kill()


@pytest.mark.usefixtures("failed_peer")
def test_a_rank_in_c_ends_as_by_sigterm(folder: RunDir) -> None:
    assert end(folder, "ready()\n" + WAITS_IN_C) == -signal.SIGTERM


@pytest.mark.usefixtures("failed_peer")
def test_a_checkpoint_that_is_being_written_is_whole_before(folder: RunDir) -> None:
    assert end(folder, SAVES + WAITS_IN_C) == -signal.SIGTERM
    assert (folder.job / "written").exists()


@pytest.mark.usefixtures("failed_peer")
def test_at_a_stop_the_program_decides_when_to_leave(folder: RunDir) -> None:
    write_record(folder.stop, StopRequest(reason=EndReason.PAUSED, grace=timedelta(seconds=30)))
    assert end(folder, STAYS) == 0


def test_a_program_that_was_told_to_stop_decides_though_a_rank_that_left_before_looks_failed(folder: RunDir) -> None:
    """Where other hosts see a stop request late, and a cluster and the supervisor both send SIGTERM."""
    text = """
os.kill(os.getpid(), signal.SIGTERM)
assert run.stop_requested
was_heard()
(root / "heard").unlink()
(root / "ranks" / "1.json").write_text('{"pid": 4194305, "start_time": 1, "boot_id": "an earlier one"}')
ready()
wait("sent")
was_heard()
"""
    assert end(folder, text) == 0


def test_without_a_failed_rank_the_program_decides(folder: RunDir) -> None:
    assert end(folder, STAYS) == 0


@pytest.mark.usefixtures("failed_peer")
def test_a_rank_that_had_done_its_work_has_not_failed(folder: RunDir) -> None:
    folder.finished(1).touch()
    assert end(folder, STAYS) == 0


@pytest.mark.usefixtures("failed_peer")
@pytest.mark.parametrize(
    ("own", "after"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: None)", "was_heard()"),
        ("reading, writing = os.pipe()\nos.set_blocking(writing, False)\nsignal.set_wakeup_fd(writing)", ""),
    ],
    ids=["handler", "wakeup"],
)
def test_a_program_with_a_handler_or_a_wakeup_descriptor_of_its_own_is_left_alone(
    folder: RunDir, own: str, after: str
) -> None:
    text = f"{own}\nready()\nwait('sent')\n{after}"
    assert end(folder, text) == 0


@pytest.mark.usefixtures("failed_peer")
def test_a_signal_of_a_forked_child_is_not_the_ranks(folder: RunDir) -> None:
    child = """
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.kill(os.getpid(), signal.SIGTERM)
    while True: time.sleep(1)
assert os.waitpid(child, 0)[1] == 0
assert threading.active_count() == 2
"""
    assert end(folder, child + "ready()\n" + WAITS_IN_C) == -signal.SIGTERM
