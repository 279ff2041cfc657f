"""The verdict on a failed attempt, by what its launcher and its ranks left."""

from pathlib import Path

import pytest

from tests.approved import Approved
from tests.disks import mounted
from torchyard.contract.attempts.records import ExitReport, ProcessIdentity, RankError
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host import disk
from torchyard.host.recordfiles import write_record
from worker.engines.local.launchers.logtail import tail_of_stderr
from worker.engines.local.launchers.torchrun import parse_failures
from worker.engines.local.supervisor import verdict

LOST_PEER = "[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:38211"
FAILURE = """[{index}]:
  time      : 2026-11-21_07:27:34
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 9640)  (SIGNAL)
  error_file: <N/A>
  traceback : Signal received by PID 9640
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    created = RunDir(tmp_path)
    created.create()
    for rank in (0, 1):
        write_record(created.ranks / f"{rank}.json", ProcessIdentity(pid=1, start_time=1, boot_id="boot"))
    return created


def judge(run: RunDir, *, launcher_exit: int, world_size: int) -> ExitReport:
    """Judges with the failures in torchrun's summary."""
    seen = parse_failures(tail_of_stderr(run, "launcher"))
    return verdict.judge(run, launcher_exit=launcher_exit, ranks=range(world_size), failures=seen)


def _summary(run: RunDir, root: tuple[int, int], *others: tuple[int, int]) -> None:
    """Writes torchrun's summary, which names the root cause at the end."""
    blocks = [FAILURE.format(index=1, rank=rank, code=code) for rank, code in others]
    text = "Failures:\n" + "".join(blocks) + "-----\nRoot Cause (first observed failure):\n"
    run.log("launcher", "stderr").write_text(text + FAILURE.format(index=0, rank=root[0], code=root[1]) + "=====\n")


def _error(run: RunDir, rank: int, *, time: int, message: str, kind: str = "RuntimeError") -> None:
    record = RankError(
        rank=rank, time=time, reason=EndReason.USER_ERROR, type=kind, message=message, traceback=f"{kind}: {message}"
    )
    write_record(run.errors / f"{rank}.json", record)


def test_the_earliest_error_is_reported(run: RunDir) -> None:
    _error(run, 0, time=200, message="second", kind="KeyError")
    _error(run, 1, time=100, message="first", kind="ValueError")
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.rank, report.message, report.exit_code) == (1, "ValueError: first", 1)


def test_an_error_is_preferred_to_an_earlier_lost_peer_error(run: RunDir) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    _error(run, 1, time=200, message="the cause", kind="ValueError")
    assert judge(run, launcher_exit=1, world_size=2).message == "ValueError: the cause"


def test_a_killed_rank_is_preferred_to_a_lost_peer_error(run: RunDir) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    _summary(run, (0, 1), (1, -9))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank, report.exit_code) == (EndReason.KILLED, 1, -9)


def test_an_abort_after_an_error_is_not_the_cause(run: RunDir) -> None:
    _error(run, 1, time=100, message="the cause", kind="ValueError")
    _summary(run, (0, -6), (1, 1))
    assert judge(run, launcher_exit=1, world_size=2).rank == 1


def test_a_rank_that_torchrun_terminates_while_it_exits_with_an_error_has_exit_code_1(run: RunDir) -> None:
    _error(run, 1, time=100, message="the cause", kind="ValueError")
    _summary(run, (0, 1), (1, -15))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.rank, report.message, report.exit_code) == (1, "ValueError: the cause", 1)


def test_a_rank_that_torchrun_terminated_is_not_the_cause(run: RunDir) -> None:
    _summary(run, (1, 3), (0, -15))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank, report.exit_code) == (EndReason.USER_ERROR, 1, 3)


def test_a_rank_that_sigterm_killed_first_is_the_cause(run: RunDir, approved: Approved) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    _summary(run, (1, -15))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank, report.message) == (EndReason.KILLED, 1, approved("message"))


def test_a_lost_peer_error_alone_is_reported(run: RunDir) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank) == (EndReason.USER_ERROR, 0)


def test_an_exit_code_given_by_the_script_is_kept(run: RunDir, approved: Approved) -> None:
    _error(run, 1, time=100, message="exited with code 5", kind="SystemExit")
    _summary(run, (1, 5))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.exit_code, report.message) == (5, approved("message"))


@pytest.mark.parametrize("said", ["train.py: error: unrecognized arguments: --lrr", "Error: No such option: --lrr"])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_wrong_argument_is_reported_in_the_programs_own_words(run: RunDir, said: str, recorded: bool) -> None:
    run.log("rank-1", "stderr").write_text(f"usage: train.py [-h]\n{said}\n")
    if recorded:
        _error(run, 1, time=100, message="exited with code 2", kind="SystemExit")
    _summary(run, (1, 2))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.exit_code, report.traceback) == (2, None)
    assert report.message == (f"rank 1: {said}" if recorded else f"rank 1 exited with code 2: {said}")


def test_the_report_of_a_crash_in_native_code_has_its_stack(run: RunDir, approved: Approved) -> None:
    run.log("rank-1", "stderr").write_text("step 1\nFatal Python error: Segmentation fault\n  File train.py line 3\n")
    _summary(run, (1, -11))
    report = judge(run, launcher_exit=1, world_size=2)
    assert report.message == approved("message")
    assert report.traceback == approved("traceback")


ECC = "CUDA error: uncorrectable ECC error encountered"
WATCHDOG = f"[rank1]:[E] [PG ID 0 Rank 1] Process group watchdog thread terminated with exception: {ECC}"


def test_a_device_fault_that_nccl_reports_is_not_a_lost_peer(run: RunDir) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    record = RankError(
        rank=1,
        time=200,
        reason=EndReason.DEVICE_FAULT,
        type="DistBackendError",
        message=f"NCCL error in: x.cpp\n{ECC}",
        traceback="",
    )
    write_record(run.errors / "1.json", record)
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank) == (EndReason.DEVICE_FAULT, 1)


def test_an_abort_after_a_device_fault_is_a_device_fault(run: RunDir, approved: Approved) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    run.log("rank-1", "stderr").write_text(f"step 1\n{WATCHDOG}\nException raised from c10_cuda_check\n")
    _summary(run, (1, -6), (0, 1))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank, report.exit_code) == (EndReason.DEVICE_FAULT, 1, -6)
    assert report.message == approved("message", watchdog=WATCHDOG)


def test_an_abort_after_an_illegal_address_is_not_a_device_fault(run: RunDir) -> None:
    text = "CUDA error: an illegal memory access was encountered\n"
    run.log("rank-1", "stderr").write_text(text)
    _summary(run, (1, -6))
    assert judge(run, launcher_exit=1, world_size=2).reason is EndReason.KILLED


TIMEOUT = (
    "[rank1]:[E1122 14:03:11.1 ProcessGroupNCCL.cpp:684] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=660000) ran for 660012 milliseconds"
)


def test_an_abort_after_a_collective_timeout_is_a_hang(run: RunDir, approved: Approved) -> None:
    run.log("rank-1", "stderr").write_text(f"step 1\n{TIMEOUT} before timing out.\nFatal Python error: Aborted\n")
    _summary(run, (1, -6), (0, -15))
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.rank, report.exit_code) == (EndReason.HANG, 1, -6)
    assert report.message == approved("message", timeout=TIMEOUT)


def test_a_collective_timeout_without_an_abort_is_not_a_hang(run: RunDir) -> None:
    run.log("rank-1", "stderr").write_text(f"{TIMEOUT}\n")
    _summary(run, (1, -9))
    assert judge(run, launcher_exit=1, world_size=2).reason is EndReason.KILLED


def test_a_malformed_or_missing_summary_is_ignored(run: RunDir, approved: Approved) -> None:
    report = judge(run, launcher_exit=7, world_size=2)
    assert (report.reason, report.message) == (EndReason.USER_ERROR, approved("message"))
    run.log("launcher", "stderr").write_bytes(b"\xff\x00  rank      : x (local\n  exitcode  : -\n")
    (run.errors / "0.json").write_bytes(b"{not json")
    (run.errors / "1.json").symlink_to("/etc/passwd")
    report = judge(run, launcher_exit=-6, world_size=2)
    assert (report.reason, report.message) == (EndReason.WORKER_LOST, approved("launcher killed sigabrt"))


@pytest.mark.parametrize("came_up", [True, False])
def test_ranks_that_could_not_record_errors_on_a_full_disk_count_as_worker_lost(run: RunDir, came_up: bool) -> None:
    if not came_up:
        (run.ranks / "0.json").unlink()
        (run.ranks / "1.json").unlink()
    counted = EndReason.USER_ERROR if came_up else EndReason.LAUNCH_FAILED
    run.log("launcher", "stderr").write_text("")
    assert judge(run, launcher_exit=1, world_size=2).reason is counted
    small = RunDir(run.root / "small")
    small.root.mkdir()
    with mounted(small.root, kibibytes=64):
        small.create()
        (small.log("launcher", "stderr")).touch()
        (small.root / "ballast").write_bytes(bytes(48 * 1024))
        report = judge(small, launcher_exit=1, world_size=2)
        assert (report.reason, report.message[:29]) == (EndReason.WORKER_LOST, "a disk of the worker is full:")
        assert judge(small, launcher_exit=0, world_size=2).reason is EndReason.COMPLETED


def _claim_full_disk(run: RunDir) -> None:
    message = "a disk of the worker is full: [Errno 28] No space left on device"
    record = RankError(
        rank=0, time=1, reason=EndReason.WORKER_LOST, type="OSError", message=message, traceback="OSError"
    )
    write_record(run.errors / "0.json", record)


def test_a_full_disk_that_a_rank_claims_costs_a_restart_unless_the_disk_is_nearly_full(run: RunDir) -> None:
    if disk.is_short(run.root):
        pytest.skip("the disk of this machine is nearly full")
    _claim_full_disk(run)
    report = judge(run, launcher_exit=1, world_size=2)
    assert (report.reason, report.message[:29]) == (EndReason.USER_ERROR, "a disk of the worker is full:")
    small = RunDir(run.root / "small")
    small.root.mkdir()
    with mounted(small.root, kibibytes=1024):
        small.create()
        _claim_full_disk(small)
        assert judge(small, launcher_exit=1, world_size=2).reason is EndReason.WORKER_LOST


def test_a_killed_launcher_counts_as_worker_lost(run: RunDir) -> None:
    _error(run, 0, time=100, message=LOST_PEER)
    assert judge(run, launcher_exit=-9, world_size=2).reason is EndReason.WORKER_LOST
    for rank in (0, 1):
        (run.ranks / f"{rank}.json").unlink()
    (run.errors / "0.json").unlink()
    assert judge(run, launcher_exit=-9, world_size=2).reason is EndReason.WORKER_LOST, "before any rank came up"
    _error(run, 0, time=100, message="the cause", kind="ValueError")
    assert judge(run, launcher_exit=-9, world_size=2).reason is EndReason.USER_ERROR


def test_a_progress_bar_does_not_bury_what_a_rank_wrote_before_it(run: RunDir, approved: Approved) -> None:
    bar = "".join(f"\r{step:6}/9999 steps" for step in range(2000))
    run.log("rank-0", "stderr").write_text(f"warning: no data\r\n{bar}\nTraceback\n")
    assert tail_of_stderr(run, "rank-0") == approved("tail_of_stderr")


@pytest.mark.parametrize(
    ("stderr", "code", "traceback"),
    [
        ("Traceback (most recent call last):\n  x\nKeyError: 'mask'\n", 1, True),
        ("python: No module named einops\n", 1, False),
        ("usage: x\nx: error: no --lr\n", 2, False),
        ("step 3\n", 7, False),
        ("KeyError: 1\n", -9, False),
    ],
)
def test_a_command_is_quoted_with_the_error_that_it_wrote_last(
    run: RunDir, stderr: str, code: int, traceback: bool, approved: Approved
) -> None:
    run.log("rank-0", "stderr").write_text(stderr)
    report = verdict.judge(run, launcher_exit=1, ranks=range(2), failures=[(0, code)], command=True)
    assert report.message == approved.of_row("message")
    assert (report.traceback == stderr.rstrip("\n")) if traceback else report.traceback is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (137, ", as a program that it ran was killed by SIGKILL (perhaps the host ran out of memory)"),
        (139, ", as a program that it ran was killed by SIGSEGV"),
        (130, ""),
        (255, ""),
    ],
)
def test_the_exit_code_of_a_shell_says_which_signal_killed_its_program(run: RunDir, code: int, said: str) -> None:
    report = verdict.judge(run, launcher_exit=code, ranks=range(1), failures=[(0, code)], command=True)
    assert report.message == f"the command exited with code {code}{said}"


HYDRA = "Error executing job with overrides: ['lr=1']\n"
HYDRA_ENDS = "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 4, in main\n    fit()\nValueError: no such layer\n'


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (f"{HYDRA}{TRACE}{HYDRA_ENDS}", "ValueError: no such layer"),
        (
            f"Could not override 'lrr'.\nTo append to your config use +lrr=1\nKey 'lrr' is not in struct\n{HYDRA_ENDS}",
            "Could not override 'lrr'. To append to your config use +lrr=1",
        ),
        (f"warning: slow\n{TRACE}wandb: run ended\n", "ValueError: no such layer"),
        (f"{TRACE}retries\nstep 1\nstep 2\nstep 3\nstep 4\n", "exited with code 1"),
        ("warning: slow\n", "exited with code 1"),
        ("", "exited with code 1"),
        (HYDRA_ENDS, "exited with code 1"),
    ],
)
def test_a_program_that_leaves_with_a_code_is_told_by_the_error_that_it_has_shown(
    run: RunDir, stderr: str, message: str
) -> None:
    run.log("rank-1", "stderr").write_text(stderr)
    _error(run, 1, time=100, message="exited with code 1", kind="SystemExit")
    _summary(run, (1, 1))
    report = judge(run, launcher_exit=1, world_size=2)
    assert report.message == f"rank 1: {message}"
    assert (report.traceback == TRACE.rstrip()) == (message == "ValueError: no such layer")


CALL = "Command '['python', 'child.py']' returned non-zero exit status 1."


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ("ModuleNotFoundError: No module named 'einops'", "rank 0: ModuleNotFoundError: No module named 'einops'"),
        ("all is well", f"CalledProcessError: {CALL}"),
    ],
)
def test_a_rank_whose_program_failed_is_told_by_that_programs_error(run: RunDir, shown: str, message: str) -> None:
    _error(run, 0, time=100, message=CALL, kind="CalledProcessError")
    trace = f'Traceback (most recent call last):\n  File "train.py", line 1\nsubprocess.CalledProcessError: {CALL}'
    run.log("rank-0", "stderr").write_text(f"{shown}\n{trace}\n")
    report = judge(run, launcher_exit=1, world_size=1)
    assert (report.message, report.traceback) == (message, f"CalledProcessError: {CALL}")


def test_what_a_program_says_by_its_exit_is_kept(run: RunDir) -> None:
    run.log("rank-1", "stderr").write_text(f"{TRACE}nothing to train\n")
    _error(run, 1, time=100, message="nothing to train", kind="SystemExit")
    _summary(run, (1, 1))
    assert judge(run, launcher_exit=1, world_size=2).message == "rank 1: nothing to train"
