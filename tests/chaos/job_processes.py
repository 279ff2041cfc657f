"""Finds the processes of jobs on this host in `/proc`."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
import os
from pathlib import Path
import re
from typing import Literal

from torchyard.contract.attempts.rundir import Env

Role = Literal["supervisor", "torchrun", "rank", "other"]

_TITLE = re.compile(rb"torchyard[: ](job_[0-9a-z-]+) attempt ([0-9]+) (supervisor|rank [0-9]+)")
_JOB, _ATTEMPT = f"{Env.JOB_ID}=".encode(), f"{Env.ATTEMPT}=".encode()


@dataclass(frozen=True, order=True)
class JobProcess:
    """One running process of an attempt."""

    job_id: str
    attempt: int
    role: Role
    pid: int


def find(jobs: Collection[str]) -> list[JobProcess]:
    """Returns the running and stopped processes of the `jobs`, without zombies."""
    found = (_member(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdecimal())
    return sorted(process for process in found if process is not None and process.job_id in jobs)


def running_attempts(processes: Collection[JobProcess]) -> dict[str, set[int]]:
    """Returns the attempts of each job of which a rank runs."""
    running: dict[str, set[int]] = defaultdict(set)
    for process in processes:
        if process.role == "rank":
            running[process.job_id].add(process.attempt)
    return dict(running)


def warm_process_of(worker: int) -> int | None:
    """Returns the pid of the warm process of the worker with pid `worker`; None if it has none."""
    return next((pid for pid in children(worker) if _read(pid)[0].startswith(b"torchyard:warm")), None)


def children(pid: int) -> list[int]:
    """Returns the pids of the processes that any thread of a process has started, and that have not been reaped."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def naming(folder: Path) -> list[int]:
    """Returns other running processes whose command line or environment names `folder`."""
    needle, found = os.fsencode(folder), list[int]()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            command, environment = _read(int(entry.name))
            if (needle in command or needle in environment) and _runs(int(entry.name)):
                found.append(int(entry.name))
    return found


def _member(pid: int) -> JobProcess | None:
    command, environment = _read(pid)
    title = _TITLE.match(command)
    if title is not None:
        role: Role = "supervisor" if title[3] == b"supervisor" else "rank"
        process = JobProcess(title[1].decode(), int(title[2]), role, pid)
    else:
        values = dict(item.split(b"=", 1) for item in environment.split(b"\0") if item.startswith((_JOB, _ATTEMPT)))
        if len(values) < 2:
            return None
        role = "torchrun" if b"trainer.torchrun" in command else "other"
        process = JobProcess(values[_JOB[:-1]].decode(), int(values[_ATTEMPT[:-1]]), role, pid)
    return process if _runs(pid) else None


def _read(pid: int) -> tuple[bytes, bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b"", b""  # it has ended, or is another user's


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in b"ZXx"
