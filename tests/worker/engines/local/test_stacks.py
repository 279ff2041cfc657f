"""Real ranks that are asked for their stacks, and jobs that forge what the worker reads."""

from collections.abc import Callable
from pathlib import Path
import signal
import subprocess

import pytest

from tests.worker.attempt import WARM_LAUNCH, Attempt, rank_of, wait_for
from tests.worker.programs import READY, RUNS_FOREVER
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.host.recordfiles import write_record
from worker.engines.base import RankStacks
from worker.engines.local.stacks import request_stacks
from worker.host import process

START = "warm"
"""Starts less than a cold start does."""
STUCK = (
    READY
    + """
import ctypes
ctypes.CDLL(None).prctl(15, bytes([255]))  # a name that is no UTF-8
def stuck_here():
    ready()
    while True: time.sleep(1)
stuck_here()
"""
)
BLOCKS = READY + "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMAX])\nready()\nwhile True: time.sleep(1)\n"
REMOVES_HANDLER = READY + "signal.signal(signal.SIGRTMAX, signal.SIG_DFL)\nready()\nwhile True: time.sleep(1)\n"
NOT_WRITTEN = RankStacks()


def started(attempt: Attempt, script: str, *, world_size: int = 1) -> None:
    attempt.start(script, world_size=world_size)
    for rank in range(world_size):
        attempt.wait_for_file(f"ready-{rank}")


def ask(attempt: Attempt) -> Callable[[], list[RankStacks]]:
    return request_stacks(attempt.run, attempt.supervisor, ranks=range(attempt.world_size))


def rank_0(attempt: Attempt) -> ProcessIdentity:
    return rank_of(attempt.run)


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[ProcessIdentity]:
    """The processes that a signal is sent to. None gets it. Name it after `attempt`, whose processes are killed."""
    found: list[ProcessIdentity] = []

    def note(target: ProcessIdentity, _: signal.Signals) -> bool:
        found.append(target)
        return True

    monkeypatch.setattr(process, "send", note)
    return found


@WARM_LAUNCH
def test_every_rank_writes_its_stacks_and_goes_on(attempt: Attempt) -> None:
    started(attempt, STUCK, world_size=2)
    for _ in range(2):
        read = ask(attempt)
        wait_for(lambda read=read: all("in stuck_here" in (found.text or "") for found in read()), "the stacks")
        assert [(found.text or "").count("in stuck_here") for found in read()] == [1, 1], "not those of before"
        assert [(found.text or "").count("rank.py") for found in read()] == [0, 0], "no frames of the service"
    assert process.is_alive(rank_0(attempt))
    assert "stuck_here" not in attempt.log("rank-0", "stderr")


def test_a_rank_without_the_handler_gets_no_signal(attempt: Attempt) -> None:
    started(attempt, REMOVES_HANDLER)
    (found,) = ask(attempt)()
    assert found.text is None
    assert "removed the handler" in (found.note or "")
    assert process.is_alive(rank_0(attempt))


def test_a_rank_that_blocks_the_signal_gets_it_once(attempt: Attempt) -> None:
    started(attempt, BLOCKS)
    assert ask(attempt)() == [NOT_WRITTEN]
    assert ask(attempt)() == [NOT_WRITTEN]
    status = Path(f"/proc/{rank_0(attempt).pid}/status").read_text()
    (queued,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd"))
    assert int(queued, 16) == 1 << (signal.SIGRTMAX - 1)


def test_a_stopped_rank_is_reported(attempt: Attempt, signalled: list[ProcessIdentity]) -> None:
    started(attempt, READY + "ready()\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: time.sleep(1)\n")
    wait_for(lambda: process.is_stopped(rank_0(attempt)), "the rank is stopped")
    assert ask(attempt)() == [RankStacks(note="is stopped by a signal")]
    assert signalled == []


def test_a_record_that_names_a_process_of_another_is_not_believed(
    attempt: Attempt, signalled: list[ProcessIdentity]
) -> None:
    started(attempt, RUNS_FOREVER)
    with subprocess.Popen(["/bin/sleep", "600"]) as unrelated:
        other = process.identity(unrelated.pid)
        assert other is not None
        write_record(attempt.run.ranks / "0.json", other)
        assert ask(attempt)() == [RankStacks(note="does not run")]
        (attempt.run.ranks / "0.json").write_text("{")
        assert ask(attempt)() == [RankStacks(note="does not run")]
        unrelated.kill()
    assert signalled == []


def test_no_rank_of_a_supervisor_that_has_ended_is_signalled(
    attempt: Attempt, signalled: list[ProcessIdentity]
) -> None:
    started(attempt, RUNS_FOREVER)
    ended = ProcessIdentity(pid=attempt.supervisor.pid, start_time=1, boot_id=attempt.supervisor.boot_id)
    assert request_stacks(attempt.run, ended, ranks=[0])() == [RankStacks(note="does not run")]
    assert signalled == []


@pytest.mark.parametrize("forged", ["link", "pipe", "folder"])
def test_only_a_regular_file_is_read(
    attempt: Attempt, signalled: list[ProcessIdentity], tmp_path: Path, forged: str
) -> None:
    started(attempt, RUNS_FOREVER)
    file = attempt.run.stacks / "0.txt"
    file.unlink()
    (tmp_path / "secret").write_text("of another")
    if forged == "link":
        file.symlink_to(tmp_path / "secret")
    elif forged == "folder":
        file.mkdir()
    else:
        subprocess.run(["mkfifo", file], check=True)
    assert ask(attempt)() == [NOT_WRITTEN]
    assert len(signalled) == 1


def test_a_forged_answer_is_cut_and_is_text_that_can_be_stored(
    attempt: Attempt, signalled: list[ProcessIdentity]
) -> None:
    started(attempt, RUNS_FOREVER)
    read = ask(attempt)
    (attempt.run.stacks / "0.txt").write_bytes(b"\0\xff" * 100_000)
    (found,) = read()
    assert found == RankStacks("\ufffd" * 65536, "only the last 65536 bytes")
    assert len(signalled) == 1
