"""Milliseconds to enter an attempt's sandbox, in a fork: `python -m bench.sandbox`. The peer is bubblewrap."""

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import shutil
import subprocess
import time

from bench import table
from bench.service import scratch
from bench.table import Row
from torchyard.contract.attempts.records import Sandbox
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.host import inspection
from worker.host.attempt_key import AttemptKey
from worker.sandbox import entry, landlock, levels, namespaces, privileges
from worker.sandbox.policy import rules, sandbox_of
from worker.sandbox.writable import WritableFolders

REPEATS = 50
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc")
_MOUNTS = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm")
_BUBBLEWRAP = ("bwrap", *_NAMESPACES, *_MOUNTS, "/bin/true")


def measure() -> Iterator[Row]:
    with scratch() as folder:
        isolation = levels.level_of(levels.Isolation.AUTO)
        sandbox = _sandbox(folder, isolation)
        theirs = [_seconds_of_bubblewrap() * 1000 for _ in range(REPEATS)] if shutil.which("bwrap") else []
        peer = "bwrap, and the start of `true`" if theirs else "bwrap is not installed"
        what = f"entering the sandbox, level {isolation.level}"
        ours = _in_forks(
            lambda: entry.enter(sandbox, reaps=True, ended=print, stops=bool), make=lambda: entry.fork(sandbox)
        )
        yield Row(what, "ms", ours, peer=peer, theirs=theirs, at_most=5)
        yield Row("– mounts of its own", "ms", _in_forks(lambda: _make_mounts(sandbox)))
        yield Row("– privileges", "ms", _in_forks(privileges.drop))
        yield Row(
            f"– Landlock, {len(rules(sandbox))} rules", "ms", _in_forks(lambda: landlock.restrict(rules(sandbox)))
        )


def _sandbox(folder: Path, isolation: IsolationReport) -> Sandbox:
    run = RunDir(folder / "run")
    run.create()
    own_folders = WritableFolders(folder, temporary=folder).of(AttemptKey("job_x", 1), owner="ada")
    own_folders.create()
    found = sandbox_of(isolation, run=run, own_folders=own_folders, readable=(), writable=(), gpus=False)
    assert found is not None
    return found


def _make_mounts(sandbox: Sandbox) -> None:
    namespaces.unshare(pids=False)
    namespaces.make_mounts(sandbox.writable, pids=False)


def _in_forks(enter_it: Callable[[], None], *, make: Callable[[], int] = os.fork) -> list[float]:
    """Returns the milliseconds of each call, which a fork of its own makes. That fork is included."""
    return [_in_fork(enter_it, make) for _ in range(REPEATS)]


def _in_fork(enter_it: Callable[[], None], make: Callable[[], int]) -> float:
    reading, writing = os.pipe()
    began = time.perf_counter()
    child = make()
    if child == 0:
        try:
            inspection.permit()
            enter_it()
            os.write(writing, str((time.perf_counter() - began) * 1000).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        took = float(answer.read())
    os.waitpid(child, 0)
    return took


def _seconds_of_bubblewrap() -> float:
    began = time.perf_counter()
    subprocess.run(_BUBBLEWRAP, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    table.main(measure)
