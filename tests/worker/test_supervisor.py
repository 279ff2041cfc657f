"""The supervisor with real processes. A small program stands in for torchrun where torch is not needed."""

from pathlib import Path
import resource
import signal
import subprocess
import sys

import pytest

from tests.approved import Approved
from tests.worker.attempt import EACH_LAUNCH, WARM_LAUNCH, Attempt, wait_for
from tests.worker.programs import (
    LOSES_A_PEER,
    READY,
    RUNS_FOREVER,
    SAVES_ON_SIGTERM,
    rank_process,
)
from torchyard.contract.states import EndReason
from worker.host import process


@EACH_LAUNCH
def test_a_successful_attempt_is_completed_and_each_rank_has_its_logs(attempt: Attempt) -> None:
    attempt.start(
        READY + "print('out', rank); print('err', rank, file=sys.stderr); print(sys.stdin.read() == '')", world_size=2
    )
    assert attempt.report().reason is EndReason.COMPLETED
    assert [attempt.log(f"rank-{rank}", "stdout") for rank in (0, 1)] == ["out 0\nTrue\n", "out 1\nTrue\n"]
    assert [attempt.log(f"rank-{rank}", "stderr") for rank in (0, 1)] == ["err 0\n", "err 1\n"]
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_rank_that_runs_out_of_memory_is_reported(attempt: Attempt) -> None:
    attempt.start(READY + "if rank == '1': bytearray(1 << 50)\nwhile True: time.sleep(1)", world_size=2)
    report = attempt.report()
    assert (report.reason, report.rank) == (EndReason.OUT_OF_MEMORY, 1)
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_the_other_ranks_of_a_killed_one_can_save_before_they_end(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_SIGTERM.replace("    assert", "    #"), world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    process.send(rank_process(attempt, 1), signal.SIGKILL)
    report = attempt.report()
    # unlike torchrun, the stand-in does not report which rank failed
    known = (EndReason.USER_ERROR, None) if attempt.launcher == "torchrun" else (EndReason.KILLED, 1)
    assert (report.reason, report.rank) == known
    assert (attempt.run.job / "saved-0").exists()
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_rank_that_waits_in_c_for_a_failed_one_leaves_by_itself(attempt: Attempt, approved: Approved) -> None:
    attempt.start(LOSES_A_PEER, world_size=2)
    report = attempt.report()
    assert (report.reason, report.rank, report.message) == (EndReason.USER_ERROR, 1, "ValueError: the cause")
    assert attempt.log("rank-0", "stderr") == approved("log")
    assert attempt.running_processes() == []


@pytest.mark.parametrize("attempt", ["agent"], indirect=True)
def test_a_launcher_that_cannot_start_ends_as_launch_failed(attempt: Attempt) -> None:
    attempt.start_plan(attempt.plan(["/nowhere/torchrun"]))
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "/nowhere/torchrun" in report.message


@pytest.mark.parametrize("attempt", ["agent"], indirect=True)
def test_a_launch_without_ranks_reports_the_launchers_last_line(attempt: Attempt, approved: Approved) -> None:
    attempt.start_plan(attempt.plan([sys.executable, "-c", "import sys; sys.exit('no such flag')"]))
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert report.message == approved("message")


@WARM_LAUNCH
def test_a_data_error_is_reported_with_its_message(attempt: Attempt, approved: Approved) -> None:
    attempt.start("from torchyard.contract.errors import DataError\nraise DataError('there is no /data/x.npz')")
    report = attempt.report()
    assert (report.reason, report.message, report.rank) == (EndReason.DATA_ERROR, approved("message"), 0)
    assert report.traceback is not None
    assert "torchyard/run/rank.py" not in report.traceback


@WARM_LAUNCH
def test_a_report_that_a_full_disk_refuses_is_written_when_space_is_free(attempt: Attempt) -> None:
    attempt.start(READY + "ready()\nwhile not (root / 'gate').exists(): time.sleep(0.01)")
    attempt.wait_for_file("ready-0")
    supervisor = attempt.supervisor
    # No file of the supervisor may become larger, so it cannot write its records, as on a full disk.
    before = resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (20, before[1]))
    (attempt.run.job / "gate").touch()
    wait_for(lambda: attempt.run.supervisor_log.stat().st_size, "a refusal")
    assert process.is_alive(supervisor)
    assert not attempt.run.exit.exists()
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, before)
    assert attempt.report().reason is EndReason.COMPLETED


@WARM_LAUNCH
def test_a_second_supervisor_of_the_same_attempt_exits(attempt: Attempt, tmp_path: Path, approved: Approved) -> None:
    attempt.start(RUNS_FOREVER)
    attempt.wait_for_file("ready-0")
    command = [sys.executable, "-P", "-m", "worker.engines.local.supervisor", str(attempt.run.root)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert second.stderr == approved("errors", tmp_path=tmp_path)
    assert process.is_alive(attempt.supervisor)
    attempt.stop(grace=0)
    attempt.report()


def test_the_supervisor_is_small_and_does_not_import_torch(attempt: Attempt) -> None:
    attempt.start(RUNS_FOREVER)
    attempt.wait_for_file("ready-0")
    maps = Path(f"/proc/{attempt.supervisor.pid}/maps").read_text()
    status = Path(f"/proc/{attempt.supervisor.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert "torch/" not in maps
    assert "numpy" not in maps
    assert resident < 64 * 1024  # KiB
    attempt.stop(grace=0)
    attempt.report()
