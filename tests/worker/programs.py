"""Programs of ranks with known behaviour, and the processes that they leave."""

from collections.abc import Generator
import contextlib
from pathlib import Path
import subprocess
import sys

from tests.worker.attempt import Attempt, named_inside, rank_of, wait_for
from torchyard.contract.attempts.records import ProcessIdentity
from worker.host import process

READY = """
import os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
rank = os.environ["RANK"]
def ready(): (root / f"ready-{rank}").touch()
"""
RUNS_FOREVER = READY + "ready()\nwhile True: time.sleep(1)\n"
SAVES_ON_SIGTERM = (
    READY
    + """
def leave(*_):
    assert (root.parent / "ctl" / "shown" / "stop.json").exists()
    (root / f"saved-{rank}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
ready()
while True: time.sleep(0.05)
"""
)
POLLS_SHOULD_STOP = (
    READY + "import torchyard; run = torchyard.init(); ready()\nwhile not run.should_stop(): time.sleep(0.01)\n"
)
FINISHES_ON_SIGTERM = (
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
SUPERVISOR_THAT_CANNOT_KILL = """
from datetime import timedelta
import pathlib, signal, sys
from worker.host import process
from worker.engines.local.supervisor import processes, supervisor
gate = pathlib.Path(sys.argv[1]) / "gate"
send = process.send
def refuse(target, number):
    if number == signal.SIGKILL and not gate.exists():
        raise PermissionError("as for another user's process")
    return send(target, number)
process.send = refuse
processes.KILL_TIMEOUT = timedelta(seconds=0.2)
supervisor.main()
"""
"""A supervisor whose SIGKILLs fail until the gate is open."""
HAS_HIDDEN_GRANDCHILD = (
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

HAS_DAEMONS = (
    READY
    + """
def daemon(name, *, keeps_environment):
    if os.fork():
        return os.wait()
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir("/")
    path = root / name
    program = "import os, pathlib, signal, sys, time\\n"
    program += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n" if keeps_environment else ""
    program += "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\\nwhile True: time.sleep(1)"
    os.execve(sys.executable, [sys.executable, "-c", program, str(path)], os.environ if keeps_environment else {})
daemon("named", keeps_environment=True)
daemon("nameless", keeps_environment=False)
for name in ("named", "nameless"):
    while not ((root / name).exists() and (root / name).read_text()): time.sleep(0.01)
ready()
while True: time.sleep(1)
"""
)

HANGS = (
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

HANGS_IN_A_COLLECTIVE = (
    READY
    + """
import torch
from torch import distributed
import torchyard
run = torchyard.init()
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
distributed.init_process_group("gloo")
distributed.all_reduce(torch.ones(3))
if rank == "0":
    run.log({"loss": 1.0}, step=1)
    run.flush()
    distributed.all_reduce(torch.ones(5, 2))
while True: time.sleep(1)
"""
)
"""Rank 0 waits for its second collective in C, where Python calls no handler. Rank 1 never begins it."""
WAITS_IN_C = """
import ctypes
lock = ctypes.create_string_buffer(64)
take = ctypes.CDLL(None).pthread_mutex_lock
take(lock)
take(lock)
"""
"""Waits without end in C, as for NCCL: no signal ends the wait, and Python calls no handler."""
LOSES_A_PEER = (
    READY
    + """
import torchyard
os.environ["WORLD_SIZE"] = "2"  # the stand-in for torchrun does not set it
run = torchyard.init()
if rank == "1":
    while not (root / "ready-0").exists(): time.sleep(0.01)
    raise ValueError("the cause")
if rank == "0": ready()
"""
    + WAITS_IN_C
)


STOPS_ONE_RANK = (
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

USES_DATA_LOADER = (
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


def descendant(attempt: Attempt, name: str = "grandchild") -> ProcessIdentity:
    """Waits for a file with a pid that a rank's program writes, and returns the process."""
    path = attempt.run.job / name
    found: list[str] = []

    def read() -> bool:
        found[:] = [path.read_text()] if path.exists() else []  # another rank's program may write it anew
        return any(found)

    wait_for(read, "the descendant's pid")
    return named_inside(int(found[0]), attempt.supervisor)


def rank_process(attempt: Attempt, rank: int) -> ProcessIdentity:
    return rank_of(attempt.run, rank)


def launcher_process(attempt: Attempt) -> ProcessIdentity:
    children = process.descendants(attempt.supervisor.pid)
    return next(child for child in children if parent_pid(child.pid) == attempt.supervisor.pid)


def parent_pid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


@contextlib.contextmanager
def unrelated_process() -> Generator[ProcessIdentity]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        try:
            identity = process.identity(child.pid)
            assert identity is not None
            yield identity
        finally:
            child.kill()
