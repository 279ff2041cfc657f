"""No job writes anything in `/proc`. CUDA can name its threads all the same."""

from dataclasses import replace
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

from tests.security import late_table
from tests.security.test_levels import HERE, LANDLOCK, MOUNTS, needs_landlock, needs_mounts, needs_pids
from tests.worker.attempt import WARM_LAUNCH, Attempt
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.states import EndReason
from worker.sandbox import levels

START = "warm"
ROOT = Path(__file__).parents[2]
WALK = Path(__file__).with_name("walk.py")
BASIC_WITH_PIDS = replace(HERE, level="basic")
EACH_LEVEL = pytest.mark.parametrize(
    "level",
    [
        pytest.param(HERE, marks=needs_pids, id="here"),
        pytest.param(LANDLOCK, marks=needs_landlock, id="landlock"),
        pytest.param(BASIC_WITH_PIDS, marks=[needs_pids, pytest.mark.thorough], id="basic"),
        pytest.param(MOUNTS, marks=[needs_mounts, pytest.mark.thorough], id="mounts"),
    ],
)
NAMES_ANOTHER = """
import ctypes, threading
other = threading.Thread(target=threading.Event().wait, daemon=True)
other.start()
print(ctypes.CDLL(None).pthread_setname_np(ctypes.c_ulong(other.ident), b"named"), flush=True)
"""
NAMES_IN_PROGRAMS = f"""
import json, os, subprocess, sys
program = [sys.executable, "-c", {NAMES_ANOTHER!r}]
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.dup2(writing, 1)
    if os.fork() == 0:
        os.execv(program[0], program)
    os._exit(0)
os.close(writing)
os.wait()
orphan = open(reading).read().strip()
print(json.dumps([subprocess.check_output(program, text=True).strip(), orphan]), flush=True)
"""
OPENS = """
import ctypes, errno, json, os, pathlib
libc = ctypes.CDLL(None, use_errno=True)
own = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "own")
def tried(path, flags=os.O_RDWR):
    try:
        with open(os.open(path, flags), "rb+", buffering=0) as file:
            file.write(b"x")
    except OSError as error:
        return errno.errorcode[error.errno]
    return "written"
own.write_text("")
os.chdir(own.parent)
found = [tried(own), tried("own"), tried(os.devnull), tried(own.parent / "missing"), tried("/etc/passwd")]
found.append(errno.errorcode[ctypes.get_errno()] if libc.open(ctypes.c_void_p(1), os.O_RDWR) < 0 else "opened")
libc.prctl(4, 0)
found.append(tried(own))
libc.prctl(4, 1)
print(json.dumps(found + [own.read_text(), tried("/proc/self/comm"), tried("/proc/self/oom_score_adj")]), flush=True)
"""
MOUNTS_ANOTHER = """
import ctypes, json, os, struct
libc = ctypes.CDLL(None, use_errno=True)
inside = not libc.unshare(0x10000000 | 0x20000 | 0x20000000)  # user, mount and pid namespaces
reading, writing = os.pipe()
if os.fork() == 0:
    place = os.environ["TMPDIR"].encode()
    mounted = [not libc.mount(b"proc", place, b"proc", flags, None) for flags in (0, 1)]
    libc.mount(b"/proc", place, None, 4096 | 16384, None)
    again = [not libc.mount(None, path, None, 32 | 4096, None) for path in (place, b"/proc")]  # remount, writable
    new = libc.syscall(430, b"proc", 0)  # fsopen, fsconfig, fsmount
    libc.syscall(431, new, 6, None, None, 0)
    apart = [libc.syscall(432, new, 0, flags) for flags in (0, 1)]
    writes = struct.pack("=QQQQ", 0, 1, 0, 0)
    unlocked = not libc.syscall(442, apart[1], b"", 0x1000, writes, len(writes))  # mount_setattr
    opened = []
    for path in ("/proc", place.decode(), *(f"/proc/self/fd/{number}" for number in apart if number >= 0)):
        for name in ("sys/kernel/core_pattern", "self/comm", "self/oom_score_adj"):
            try:
                descriptor = os.open(f"{path}/{name}", os.O_WRONLY)
            except OSError:
                continue
            opened += [f"{path}/{name}"] if os.readlink(f"/proc/self/fd/{descriptor}") != "/dev/null" else []
    os.write(writing, json.dumps([inside, mounted[0] or apart[0] >= 0 or unlocked, again, opened]).encode())
    os._exit(0)
os.close(writing)
print(open(reading).read(), flush=True)
"""

INSPECTS_THE_FIRST = """
import ctypes, json, os, pathlib
libc = ctypes.CDLL(None, use_errno=True)
def parent(pid): return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
first = parent(os.getppid())
folder, got = pathlib.Path(f"/proc/{first}"), []
reads = {"memory": lambda: (folder / "mem").open("rb"), "environ": (folder / "environ").read_bytes,
    "maps": (folder / "maps").read_bytes, "a descriptor": lambda: os.readlink(folder / "fd" / "1")}
for name, read in reads.items():
    try:
        read()
        got.append(name)
    except OSError:
        pass
pidfd = os.pidfd_open(first)
got += [f"descriptor {number}" for number in range(64) if libc.syscall(438, pidfd, number, 0) >= 0]  # pidfd_getfd
own = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
got += [name for name in own if "seccomp" in os.readlink(f"/proc/self/fd/{name}")]
print(json.dumps([(folder / "comm").read_text() != "", got]), flush=True)
"""
DIAGNOSES = """
import pathlib, sys, threading
from worker.doctor import isolation
from worker.sandbox.levels import Isolation
from worker.sandbox.threads import Names
isolation._DEVICES = pathlib.Path(sys.argv[1])
print(isolation.check_isolation(Isolation.AUTO).fact)
names = Names.begin()
threading.Thread(target=names.answer, daemon=True).start()
print(isolation.check_isolation(Isolation.AUTO).fact)
"""


@EACH_LEVEL
@pytest.mark.parametrize("gpus", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["gpus", "no-gpus"])
def test_a_job_writes_no_file_of_proc(attempt: Attempt, level: IsolationReport, gpus: bool) -> None:
    attempt.isolation, attempt.gpus = level, gpus
    assert _printed(attempt, WALK.read_text()) == {"named": gpus, "opened": []}


def test_the_walk_finds_what_a_job_without_a_sandbox_could_write(attempt: Attempt) -> None:
    attempt.isolation = levels.OFF
    opened = _printed(attempt, WALK.read_text())["opened"]
    assert {"/proc/self/comm", "/proc/thread-self/comm", "/proc/self/oom_score_adj"} <= set(opened)
    assert ("/proc/sys/kernel/core_pattern" in opened) == os.access("/proc/sys/kernel/core_pattern", os.W_OK)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a list of the firewall")
def test_a_job_cannot_write_a_list_of_the_firewall_that_is_made_while_it_runs(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", late_table.__name__, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, env=_with_ours())
    if done.returncode == late_table.CANNOT:
        pytest.skip(f"this host makes no list of the firewall: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], [], []]


@WARM_LAUNCH
@EACH_LEVEL
def test_programs_that_a_job_starts_can_name_threads(attempt: Attempt, level: IsolationReport) -> None:
    attempt.isolation, attempt.gpus = level, True
    assert _printed(attempt, NAMES_IN_PROGRAMS) == ["0", "0"]


@needs_landlock
def test_a_job_with_gpus_opens_everything_else_as_without(attempt: Attempt) -> None:
    attempt.gpus = True
    found = _printed(attempt, OPENS)
    denied = "EROFS" if HERE.own_mounts else "EACCES"
    theirs = denied if os.geteuid() == 0 else "EACCES"
    assert found[:7] == ["written", "written", "written", "ENOENT", theirs, "EFAULT", "written"]
    assert found[7:] == ["x", "written", denied]


@needs_pids
@pytest.mark.parametrize("level", [HERE, BASIC_WITH_PIDS], ids=["here", "basic"])
def test_a_job_that_may_make_namespaces_mounts_no_proc_to_write(attempt: Attempt, level: IsolationReport) -> None:
    attempt.isolation, attempt.gpus, attempt.namespaces = level, True, True
    inside, mounted, again, opened = _printed(attempt, MOUNTS_ANOTHER)
    assert inside
    assert not mounted
    assert again == [False, False]
    assert opened == []


@EACH_LEVEL
def test_a_job_cannot_inspect_the_process_that_answers_it(attempt: Attempt, level: IsolationReport) -> None:
    attempt.isolation, attempt.gpus = level, True
    assert _printed(attempt, INSPECTS_THE_FIRST) == [True, []]


@needs_landlock
def test_the_doctor_says_where_another_filter_keeps_jobs_from_cuda(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    argv = [sys.executable, "-P", "-c", DIAGNOSES, str(tmp_path)]
    found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, env=_with_ours())
    before, after = found.stdout.splitlines()
    assert "cannot use CUDA" not in before
    assert "jobs with GPUs cannot use CUDA" in after


def _printed(attempt: Attempt, script: str) -> Any:
    """Runs the script as a rank, and returns what it printed."""
    attempt.start(script)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, (report, attempt.log("rank-0", "stderr"))
    return json.loads(attempt.log("rank-0", "stdout"))


def _with_ours() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
