"""What a job can do to its door, and a user who comes in by it to all else: nothing."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import socket
import subprocess
import sys

import pytest

from tests.security.test_levels import HERE, LANDLOCK, needs_landlock
from tests.worker.attempt import Attempt, wait_for
from tests.worker.programs import READY, RUNS_FOREVER
from tests.worker.reaching import Reached
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.reach.orders import LONGEST_CALL, Call
from torchyard.contract.states import EndReason
from torchyard.host.unix_sockets import address_of
from worker.engines.local import entrance

START = "warm"
ATTACKS = """
import ctypes, json, os, pathlib, signal, socket, struct, time
libc = ctypes.CDLL(None, use_errno=True)
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]).parent
def tried(function, *arguments):
    try: return repr(function(*arguments))
    except OSError: return "refused"
def enter():
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(run / "ctl" / "door"))
        end.sendall(bytes(32) + struct.pack("!I", 2) + b"{}")
        if not end.recv(100): raise PermissionError
def called(number, *arguments): return "refused" if libc.syscall(number, *arguments) < 0 else "done"
def name(pid):
    try: return pathlib.Path(f"/proc/{pid}/cmdline").read_text().rstrip("\\0")
    except OSError: return ""
own = f"torchyard:{os.environ['TORCHYARD_JOB_ID']} "
def find(*roles):
    found = {int(pid): name(pid) for pid in filter(str.isdecimal, os.listdir("/proc"))}
    return [pid for pid, name in found.items() if name.startswith(own) and name.endswith(roles)]
while not (doors := find(" door")): time.sleep(0.01)  # a rank may be there earlier
(door,), foreign = doors, find(" supervisor")
folder, ptrace = pathlib.Path(f"/proc/{door}"), 101 if os.uname().machine == "x86_64" else 117
print(json.dumps({
    "enter": tried(enter), "key": tried((run / "ctl" / "door.key").read_bytes),
    "what is open": tried(os.readlink, folder / "fd" / "0"), "memory": tried(open, folder / "mem"),
    "variables": tried((folder / "environ").read_bytes), "ptrace": called(ptrace, 16, door, 0, 0),
    "descriptor": called(438, os.pidfd_open(door), 3, 0),
    **{f"signal {pid}": tried(os.kill, pid, signal.SIGCONT) for pid in foreign},
    **{f"priority {pid}": tried(os.setpriority, os.PRIO_PROCESS, pid, 5) for pid in foreign},
}), flush=True)
"""
"""Run by a rank, and by a user's program: both have the same rights."""
KILLS_THE_DOOR = """
import os, pathlib, time
for pid in filter(str.isdecimal, os.listdir("/proc")):
    if pathlib.Path(f"/proc/{pid}/cmdline").read_text().rstrip("\\0").endswith(" door"): os.kill(int(pid), 9)
time.sleep(600)
"""
ALONE = """
import os, socket, sys
from worker.sandbox.door import door
door.MOST = int(sys.argv[1])
place = door.Place(job_id="job_1", attempt=1, variables=lambda _: os.environ, first=os.getpid())
door.Door(place, socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])).serve()
"""


@pytest.mark.parametrize("level", [pytest.param(HERE, id="here"), pytest.param(LANDLOCK, id="landlock alone")])
@needs_landlock
def test_neither_a_job_nor_a_program_beside_it_gets_at_the_door_or_at_others(
    attempt: Attempt, reach: Callable[[], Reached], level: IsolationReport
) -> None:
    attempt.isolation = level
    attempt.start(ATTACKS + READY + "ready()\ntime.sleep(600)\n")
    attempt.wait_for_file("ready-0")
    beside = reach().start(["python", "-c", ATTACKS])
    assert beside.exit_code() == 0, beside.text(1)
    for found in (json.loads(attempt.log("rank-0", "stdout")), json.loads(beside.text())):
        assert {name: result for name, result in found.items() if result != "refused"} == {}
        assert level.own_pids or any(name.startswith("signal") for name in found)


def test_a_job_that_kills_its_door_harms_itself_alone(attempt: Attempt, reach: Callable[[], Reached]) -> None:
    attempt.start(RUNS_FOREVER)
    attempt.wait_for_file("ready-0")
    reached = reach().start(["python", "-c", KILLS_THE_DOOR])
    with pytest.raises(AssertionError):  # what it started has ended with it
        reached.exit_code()
    wait_for(lambda: "it ended the process that starts them" in reach().start(["true"]).error(), "the refusal")
    attempt.stop(grace=0)
    assert attempt.report().reason is EndReason.CANCELLED


@pytest.fixture
def entered(attempt: Attempt) -> Iterator[tuple[entrance.Entrance, socket.socket]]:
    """An entrance without an attempt, and what its door would get."""
    opened = entrance.Entrance(attempt.run)
    with opened.pair() as calls:
        calls.setblocking(False)
        yield opened, calls
    opened.close()


def test_only_who_has_the_key_comes_in_and_nobody_waits_for_the_others(
    attempt: Attempt, entered: tuple[entrance.Entrance, socket.socket]
) -> None:
    opened, calls = entered
    key = attempt.run.door_key.read_bytes()
    assert attempt.run.door_key.stat().st_mode & 0o777 == attempt.run.door.stat().st_mode & 0o777 == 0o600
    said = [
        b"",
        key[:31],
        bytes(32) + b"\0\0\0\2{}",
        key + b"\0\0\0\0",
        key + (LONGEST_CALL + 1).to_bytes(4, "big") + b"{}",
        key + b"\0\0\0\2{",
    ]
    callers = [_call(attempt, content) for content in (*said, key + b"\0\0\0\2{}")]
    for _ in range(3):
        opened.let_in()
    assert socket.recv_fds(calls, 100, 2)[0] == b"{}"
    with pytest.raises(BlockingIOError):
        calls.recv(1)
    assert [_is_closed(each) for each in callers[:-1]] == [False, False, True, True, True, False]
    for each in callers:
        each.close()


def test_there_are_so_many_programs_at_once_and_no_more(tmp_path: Path) -> None:
    with _door_for(2, folder=tmp_path) as connect:
        first, second, third, fourth = (Reached(connect) for _ in range(4))
        first.start(["sleep", "600"])
        second.start(["cat"])
        assert third.start(["true"]).error() == (
            "there are 2 shells, programs and forwards in this job, the most that it may have"
        )
        second.end_input()
        second.read_until(lambda: second.last is not None)
        second.cut()  # so that it waits, with what nobody has read
        assert fourth.start(["true"]).exit_code() == 0
        for each in (first, third, fourth):
            each.cut()


@contextmanager
def _door_for(most: int, *, folder: Path) -> Generator[Callable[[Call], socket.socket]]:
    """Runs a door alone, in a process of its own. Yields what connects to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends, lasts = os.pipe()

    def connect(call: Call) -> socket.socket:
        near, far = socket.socketpair()
        with far:
            socket.send_fds(ours, [call.to_json().encode()], [far.fileno()])
        return near

    with ours, theirs:
        numbers = [theirs.fileno(), ends]
        program = [sys.executable, "-P", "-c", ALONE, str(most), *map(str, numbers)]
        with subprocess.Popen(program, pass_fds=numbers, cwd=folder) as door:
            try:
                yield connect
            finally:
                os.close(lasts)
                os.close(ends)
            assert door.wait() == 0


def _call(attempt: Attempt, content: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    with address_of(attempt.run.door) as address:
        connection.connect(address)
    connection.sendall(content)
    connection.setblocking(False)
    return connection


def _is_closed(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
