"""The supervisor with real processes; a small program stands in for torchrun where torch is not the point."""

from collections.abc import Generator
import contextlib
from dataclasses import replace
import os
from pathlib import Path
import resource
import signal
import subprocess
import sys

import pytest

from tests.worker.attempt import EACH_LAUNCH, LAUNCHER, Attempt, wait_for
from torchyard.contract import failpoints
from torchyard.contract.events import Message, parse_line
from torchyard.contract.job import EndReason
from torchyard.contract.recordfiles import read_record, write_record
from torchyard.contract.records import ProcessIdentity, StopRequest
from worker.engines.local import process

READY = """
import os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
rank = os.environ["RANK"]
def ready(): (root / f"ready-{rank}").touch()
"""
FOREVER = READY + "ready()\nwhile True: time.sleep(1)\n"
SAVES_ON_TERM = (
    READY
    + """
def leave(*_):
    assert (root.parent / "ctl" / "stop.json").exists()
    (root / f"saved-{rank}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
ready()
while True: time.sleep(0.05)
"""
)
ASKS = READY + "import torchyard; run = torchyard.init(); ready()\nwhile not run.should_stop(): time.sleep(0.01)\n"
ASKS_NOBODY = (
    READY
    + """
import torchyard
torchyard.init()
woken, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
ready()
os.read(woken, 1)  # until SIGTERM
"""
)
REFUSED_SUPERVISOR = """
from datetime import timedelta
import pathlib, signal, sys
from worker.engines.local import process, supervisor
gate = pathlib.Path(sys.argv[1]) / "gate"
send = process.send
def refused(target, number):
    if number == signal.SIGKILL and not gate.exists():
        raise PermissionError("as for another user's process")
    return send(target, number)
process.send = refused
supervisor._STUBBORN = timedelta(seconds=0.2)
supervisor.main()
"""
"""One whose SIGKILLs have no effect until the gate is open."""
HIDDEN_GRANDCHILD = (
    READY
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        (root / "grandchild").write_text(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, "-c", "import time\\nwhile True: time.sleep(1)"], {})
    os._exit(0)
os.wait()
while not (root / "grandchild").exists(): time.sleep(0.01)
ready()
while True: time.sleep(1)
"""
)

DAEMONS = (
    READY
    + """
def daemon(name, *, deaf):
    if os.fork():
        return os.wait()
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir("/")
    said = root / name
    program = "import os, pathlib, signal, sys, time\\n"
    program += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n" if deaf else ""
    program += "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\\nwhile True: time.sleep(1)"
    os.execve(sys.executable, [sys.executable, "-c", program, str(said)], os.environ if deaf else {})
daemon("deaf", deaf=True)
daemon("nameless", deaf=False)
for name in ("deaf", "nameless"):
    while not ((root / name).exists() and (root / name).read_text()): time.sleep(0.01)
ready()
while True: time.sleep(1)
"""
)

STUCK = (
    READY
    + """
def stuck_here():
    ready()
    while rank == "0" and not (root / "ready-1").exists(): time.sleep(0.01)
    if rank == "0": (root / "events.jsonl").write_text("{}")
    while True: time.sleep(1)
stuck_here()
"""
)


STOPPED = (
    READY
    + """
def stuck_here():
    if rank == "1":
        ready()
        os.kill(os.getpid(), signal.SIGSTOP)
    while True: time.sleep(1)
stuck_here()
"""
)

LOADS = (
    READY
    + """
from torch.utils.data import DataLoader
class Stuck:
    def __len__(self): return 2
    def __getitem__(self, index):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (root / f"loader-{index}").write_text(str(os.getpid()))
        while True: time.sleep(1)
next(iter(DataLoader(Stuck(), num_workers=2)))
"""
)


def _grandchild(attempt: Attempt, name: str = "grandchild") -> ProcessIdentity:
    said = attempt.run.job / name
    wait_for(said.exists, "the grandchild")
    wait_for(said.read_text, "its pid")
    found = process.identity(int(said.read_text()))
    assert found is not None
    return found


def _rank(attempt: Attempt, rank: int) -> ProcessIdentity:
    found = read_record(attempt.run.ranks / f"{rank}.json", ProcessIdentity)
    assert found is not None
    return found


def _launcher(attempt: Attempt) -> ProcessIdentity:
    children = process.descendants(attempt.supervisor.pid)
    return next(child for child in children if _parent(child.pid) == attempt.supervisor.pid)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


@contextlib.contextmanager
def _sleeper() -> Generator[ProcessIdentity]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        try:
            identity = process.identity(child.pid)
            assert identity is not None
            yield identity
        finally:
            child.kill()


@EACH_LAUNCH
def test_success_is_completed_and_each_rank_has_its_logs(attempt: Attempt) -> None:
    attempt.start(
        READY + "print('out', rank); print('err', rank, file=sys.stderr); print(sys.stdin.read() == '')", world_size=2
    )
    assert attempt.report().reason is EndReason.COMPLETED
    assert [attempt.log(f"rank-{rank}", "stdout") for rank in (0, 1)] == ["out 0\nTrue\n", "out 1\nTrue\n"]
    assert [attempt.log(f"rank-{rank}", "stderr") for rank in (0, 1)] == ["err 0\n", "err 1\n"]
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_stop_lets_every_rank_save_within_its_grace(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_TERM, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    attempt.stop(EndReason.PAUSED, grace=60)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")
    assert (attempt.run.job / "saved-0").exists()
    assert (attempt.run.job / "saved-1").exists()
    assert attempt.left() == []


@EACH_LAUNCH
@pytest.mark.parametrize("asked", [EndReason.PAUSED, EndReason.CANCELLED])
def test_a_program_that_comes_to_its_end_in_the_grace_has_finished_unless_it_was_cancelled(
    attempt: Attempt, asked: EndReason
) -> None:
    attempt.start(ASKS_NOBODY, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    attempt.stop(asked, grace=60)
    report = attempt.report()
    assert report.reason is (asked if asked is EndReason.CANCELLED else EndReason.COMPLETED)


def test_ranks_that_have_finished_are_not_run_again_for_a_stop_before_their_launcher_leaves(attempt: Attempt) -> None:
    slow = (
        'root=$1; shift; "$@"; touch "$root/over"; until [ -e "$root/../ctl/stop.json" ]; do sleep 0.02; done; sleep 1'
    )
    ranks = [sys.executable, "-P", str(LAUNCHER), "1", str(attempt.script(READY))]
    attempt.start_plan(attempt.plan(["/bin/sh", "-c", slow, "sh", str(attempt.run.job), *ranks]))
    attempt.wait_for_file("over")
    attempt.stop(EndReason.PREEMPTED, grace=60)
    assert attempt.report().reason is EndReason.COMPLETED


@EACH_LAUNCH
def test_a_program_that_leaves_as_it_was_asked_to_is_as_it_was_asked(attempt: Attempt) -> None:
    attempt.start(ASKS)
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PAUSED, grace=60)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")


@EACH_LAUNCH
def test_a_rank_that_leaves_before_its_supervisor_has_seen_the_stop_is_as_it_was_asked(attempt: Attempt) -> None:
    attempt.start(ASKS)
    attempt.wait_for_file("ready-0")
    rank = _rank(attempt, 0)
    process.send(attempt.supervisor, signal.SIGSTOP)
    attempt.stop(EndReason.PAUSED, grace=60)
    wait_for(lambda: not process.is_alive(rank), "the rank's end")
    process.send(attempt.supervisor, signal.SIGCONT)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")


@EACH_LAUNCH
def test_a_rank_that_runs_out_of_memory_says_so(attempt: Attempt) -> None:
    attempt.start(READY + "if rank == '1': bytearray(1 << 50)\nwhile True: time.sleep(1)", world_size=2)
    report = attempt.report()
    assert (report.reason, report.rank) == (EndReason.OUT_OF_MEMORY, 1)
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_killed_rank_ends_the_others_which_may_save_first(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_TERM.replace("    assert", "    #"), world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    process.send(_rank(attempt, 1), signal.SIGKILL)
    report = attempt.report()
    # the stand-in does not say, as torchrun does, who failed
    known = (EndReason.USER_ERROR, None) if attempt.launcher == "torchrun" else (EndReason.KILLED, 1)
    assert (report.reason, report.rank) == known
    assert (attempt.run.job / "saved-0").exists()
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_save_that_fails_at_a_stop_is_told(attempt: Attempt) -> None:
    attempt.start(ASKS + "raise OSError('no room for the checkpoint')")
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PAUSED, grace=60)
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused; OSError: no room for the checkpoint")
    assert report.traceback is not None


def test_the_owner_is_told_of_what_cannot_be_killed(attempt: Attempt) -> None:
    argv = [sys.executable, "-P", str(LAUNCHER), "1", str(attempt.script(FOREVER))]
    write_record(attempt.run.launch, attempt.plan(argv))
    with subprocess.Popen([sys.executable, "-P", "-c", REFUSED_SUPERVISOR, str(attempt.run.root)]) as supervisor:
        try:
            attempt.wait_for_file("ready-0")
            rank = _rank(attempt, 0)
            attempt.run.events.write_text('{"half a line')
            attempt.stop(grace=0)
            wait_for(lambda: attempt.run.events.read_text().endswith("}\n"), "the message")
            assert not attempt.run.exit.exists()
        finally:
            (attempt.run.root / "gate").touch()
        assert supervisor.wait() == 0
    half, line = attempt.run.events.read_text().splitlines()
    message = parse_line(line)
    assert isinstance(message, Message)
    assert (half, message.level) == ('{"half a line', "warning")
    assert message.text.startswith("these processes cannot be killed, and keep the devices of the attempt")
    assert str(rank.pid) in message.text
    assert attempt.report().reason is EndReason.CANCELLED


def test_a_stop_while_the_launcher_starts_up_does_not_wait_for_the_grace(attempt: Attempt) -> None:
    attempt.start_plan(attempt.plan(["/bin/sleep", "600"]))
    wait_for(lambda: attempt.run.log("launcher", "stderr").exists(), "the launcher")
    attempt.stop(grace=3600)
    assert attempt.report().reason is EndReason.CANCELLED
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_later_stop_request_changes_the_reason_and_cuts_the_grace(attempt: Attempt) -> None:
    attempt.start(READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: time.sleep(1)")
    attempt.wait_for_file("ready-0")
    attempt.stop(EndReason.PREEMPTED, grace=3600)
    attempt.stop(EndReason.CANCELLED, grace=0)
    assert attempt.report().reason is EndReason.CANCELLED


@EACH_LAUNCH
def test_nothing_survives_a_stop_not_even_a_grandchild_in_its_own_session(attempt: Attempt) -> None:
    attempt.start(HIDDEN_GRANDCHILD, world_size=2)
    attempt.wait_for_file("ready-0")
    grandchild = _grandchild(attempt)
    attempt.stop(grace=1)
    report = attempt.report()
    assert report.reason is EndReason.CANCELLED
    assert "killed after a grace of 1s" in report.message
    assert not process.is_alive(grandchild)
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_grandchild_left_behind_by_a_successful_rank_is_ended(attempt: Attempt) -> None:
    attempt.start(HIDDEN_GRANDCHILD.rpartition("while True")[0])
    grandchild = _grandchild(attempt)
    assert attempt.report().reason is EndReason.COMPLETED
    assert not process.is_alive(grandchild)


def test_a_killed_launcher_leaves_nothing_and_is_reported(attempt: Attempt) -> None:
    attempt.start(HIDDEN_GRANDCHILD, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    grandchild = _grandchild(attempt)
    process.send(_launcher(attempt), signal.SIGKILL)
    report = attempt.report()
    assert report.reason is EndReason.WORKER_LOST
    assert "the launcher was killed by SIGKILL" in report.message
    assert not process.is_alive(grandchild)
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_killed_supervisors_attempt_is_found_and_ended(attempt: Attempt) -> None:
    attempt.start(
        READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: time.sleep(1)", world_size=2
    )
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    supervisor = attempt.supervisor
    assert supervisor in attempt.left()
    process.send(supervisor, signal.SIGKILL)
    wait_for(lambda: not process.is_alive(supervisor), "the supervisor's end")
    assert len(attempt.left()) == (3 if attempt.launcher == "torchrun" else 2)  # the ranks go on, and their launcher
    assert process.kill_attempt(attempt.job_id, attempt.number) == []
    assert attempt.left() == []
    assert not attempt.run.exit.exists()


@EACH_LAUNCH
def test_daemons_of_a_rank_end_with_it_deaf_or_nameless(attempt: Attempt) -> None:
    attempt.start(DAEMONS)
    attempt.wait_for_file("ready-0")
    daemons = [_grandchild(attempt, name) for name in ("deaf", "nameless")]
    process.send(_rank(attempt, 0), signal.SIGKILL)
    assert attempt.report().reason in {EndReason.KILLED, EndReason.USER_ERROR}
    assert not any(process.is_alive(daemon) for daemon in daemons)


@EACH_LAUNCH
def test_the_workers_of_a_killed_ranks_data_loader_end_with_it(attempt: Attempt) -> None:
    attempt.start(LOADS)
    workers = [_grandchild(attempt, name) for name in ("loader-0", "loader-1")]
    process.send(_rank(attempt, 0), signal.SIGKILL)
    assert attempt.report().reason in {EndReason.KILLED, EndReason.USER_ERROR}
    assert not any(process.is_alive(worker) for worker in workers)
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_daemon_outlives_its_killed_supervisor_and_rank_only_until_it_is_searched_for(attempt: Attempt) -> None:
    attempt.start(DAEMONS)
    attempt.wait_for_file("ready-0")
    deaf, nameless = (_grandchild(attempt, name) for name in ("deaf", "nameless"))
    try:
        for victim in (attempt.supervisor, _rank(attempt, 0)):
            process.send(victim, signal.SIGKILL)
        assert deaf in attempt.left()
        assert process.kill_attempt(attempt.job_id, attempt.number) == []
        assert not process.is_alive(deaf)
    finally:
        process.kill_all(lambda: [nameless] if process.is_alive(nameless) else [], timeout=None)


@EACH_LAUNCH
def test_a_hand_sent_sigterm_preempts_and_sigint_is_ignored(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_TERM)
    attempt.wait_for_file("ready-0")
    process.send(attempt.supervisor, signal.SIGINT)
    process.send(attempt.supervisor, signal.SIGHUP)
    process.send(attempt.supervisor, signal.SIGTERM)
    assert attempt.report().reason is EndReason.PREEMPTED
    assert (attempt.run.job / "saved-0").exists()


@EACH_LAUNCH
def test_the_time_limit_is_a_graceful_stop(attempt: Attempt) -> None:
    attempt.start(SAVES_ON_TERM, time_limit=5)  # longer than a rank takes to come up
    assert attempt.report().reason is EndReason.TIME_LIMIT
    assert (attempt.run.job / "saved-0").exists()
    request = read_record(attempt.run.stop, StopRequest)
    assert request is not None
    assert request.reason is EndReason.TIME_LIMIT


@EACH_LAUNCH
def test_a_stall_ends_as_a_hang_with_every_ranks_stacks(attempt: Attempt) -> None:
    attempt.start(STUCK, world_size=2, stall=1)
    report = attempt.report()
    assert report.reason is EndReason.HANG
    assert "in stuck_here" in attempt.log("rank-0", "stderr")
    assert "in stuck_here" in attempt.log("rank-1", "stderr")
    assert report.traceback is not None
    assert report.traceback.count("in stuck_here") == 2


@EACH_LAUNCH
def test_a_rank_that_is_stopped_before_the_first_event_is_a_hang_and_is_named(attempt: Attempt) -> None:
    attempt.start(STOPPED, world_size=2, stall=3, reports=True)  # longer than a rank takes to come up
    report = attempt.report()
    assert report.reason is EndReason.HANG
    assert report.message == (
        "no progress for 3s; stopped by a signal: rank 1; each other rank's stderr ends with its stacks"
    )
    assert report.traceback is not None
    assert "rank 1 is stopped; it wrote no stacks" in report.traceback
    assert "in stuck_here" in report.traceback
    assert "in stuck_here" in attempt.log("rank-0", "stderr")
    assert attempt.log("rank-1", "stderr") == ""
    assert attempt.left() == []


def test_a_launcher_that_brings_no_rank_up_is_a_hang(attempt: Attempt) -> None:
    plan = attempt.plan(["/bin/sleep", "600"], stall=1)
    attempt.start_plan(replace(plan, reports=True))
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.HANG, "no progress for 1s; no rank runs")
    assert report.traceback == "rank 0 does not run; it wrote no stacks"
    assert attempt.left() == []


@EACH_LAUNCH
def test_a_program_whose_events_a_full_disk_refuses_does_not_stall(attempt: Attempt) -> None:
    lives = "for _ in range(25):\n    time.sleep(0.1)\n    os.utime(root / 'events.jsonl')"
    attempt.start(READY + f"(root / 'events.jsonl').write_text('first')\n{lives}", stall=1)
    assert attempt.report().reason is EndReason.COMPLETED


@EACH_LAUNCH
def test_a_script_that_reports_nothing_never_stalls(attempt: Attempt) -> None:
    attempt.start(READY + "time.sleep(2.5)", stall=1)
    assert attempt.report().reason is EndReason.COMPLETED


def test_a_launcher_that_cannot_start_ends_as_launch_failed(attempt: Attempt) -> None:
    attempt.start_plan(attempt.plan(["/nowhere/torchrun"]))
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "/nowhere/torchrun" in report.message


def test_ranks_that_never_came_up_show_the_launchers_last_words(attempt: Attempt) -> None:
    attempt.start_plan(attempt.plan([sys.executable, "-c", "import sys; sys.exit('no such flag')"]))
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert report.message == "the ranks never came up: the launcher exited with code 1: no such flag"


@EACH_LAUNCH
def test_a_data_error_is_told_in_its_own_words(attempt: Attempt) -> None:
    attempt.start("from torchyard.contract.errors import DataError\nraise DataError('there is no /data/x.npz')")
    report = attempt.report()
    assert (report.reason, report.message, report.rank) == (EndReason.DATA_ERROR, "there is no /data/x.npz", 0)
    assert report.traceback is not None
    assert "torchyard/run/rank.py" not in report.traceback


def test_a_record_that_names_a_stranger_is_not_believed(attempt: Attempt) -> None:
    with _sleeper() as stranger:
        write_record(attempt.run.ranks / "1.json", stranger)
        os.mkfifo(attempt.run.ranks / "2.json")
        attempt.world_size = 3
        argv = [sys.executable, "-P", str(Path(__file__).with_name("launcher.py")), "1"]
        attempt.start_plan(attempt.plan([*argv, str(attempt.script(FOREVER))]))
        attempt.wait_for_file("ready-0")
        attempt.stop(grace=5)
        assert attempt.report().reason is EndReason.CANCELLED
        assert process.is_alive(stranger)


@EACH_LAUNCH
def test_control_files_forged_in_the_jobs_folder_have_no_effect(attempt: Attempt) -> None:
    forges = "os.mkfifo(root / 'stop.json')\n(root / 'exit.json').write_text('{\"reason\": \"preempted\"}')\n"
    attempt.start(READY + forges + "ready()\nwhile True: time.sleep(1)")
    attempt.wait_for_file("ready-0")
    attempt.stop(grace=0)
    assert attempt.report().reason is EndReason.CANCELLED


@EACH_LAUNCH
def test_a_pipe_in_place_of_the_stop_request_blocks_nobody(attempt: Attempt) -> None:
    attempt.start(READY + "os.mkfifo(root.parent / 'ctl' / 'stop.json')\nready()\nwhile True: time.sleep(1)")
    attempt.wait_for_file("ready-0")
    assert attempt.report().reason is EndReason.KILLED


def test_a_full_or_unwritable_run_directory_leaves_no_process(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "record.exit.fsync=error:EACCES;record.stop.fsync=error:EACCES")
    attempt.start(SAVES_ON_TERM)
    attempt.wait_for_file("ready-0")
    supervisor = attempt.supervisor
    process.send(supervisor, signal.SIGTERM)
    wait_for(lambda: not process.is_alive(supervisor), "the supervisor's end")
    assert attempt.left() == []
    assert "cannot be written" in attempt.run.supervisor_log.read_text()


@EACH_LAUNCH
def test_an_end_that_a_full_disk_refuses_is_recorded_when_there_is_room(attempt: Attempt) -> None:
    attempt.start(READY + "ready()\nwhile not (root / 'gate').exists(): time.sleep(0.01)")
    attempt.wait_for_file("ready-0")
    supervisor = attempt.supervisor
    # No file of the supervisor may grow beyond it: its records cannot be written, as on a full disk.
    before = resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (20, before[1]))
    (attempt.run.job / "gate").touch()
    wait_for(lambda: attempt.run.supervisor_log.stat().st_size, "a refusal")
    assert process.is_alive(supervisor)
    assert not attempt.run.exit.exists()
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, before)
    assert attempt.report().reason is EndReason.COMPLETED


@EACH_LAUNCH
def test_a_second_supervisor_of_the_same_attempt_refuses(attempt: Attempt) -> None:
    attempt.start(FOREVER)
    attempt.wait_for_file("ready-0")
    command = [sys.executable, "-P", "-m", "worker.engines.local.supervisor", str(attempt.run.root)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "has, or had, a supervisor" in second.stderr
    assert process.is_alive(attempt.supervisor)
    attempt.stop(grace=0)
    attempt.report()


def test_the_supervisor_is_small_and_has_no_torch(attempt: Attempt) -> None:
    attempt.start(FOREVER)
    attempt.wait_for_file("ready-0")
    maps = Path(f"/proc/{attempt.supervisor.pid}/maps").read_text()
    status = Path(f"/proc/{attempt.supervisor.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert "torch/" not in maps
    assert "numpy" not in maps
    assert resident < 64 * 1024  # KiB
    attempt.stop(grace=0)
    attempt.report()
