"""A watch of a process is called once at its exit, and no descriptor is left."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
import gc
import os
from pathlib import Path
import subprocess
import threading

from tests.worker.attempt import DEADLINE_S, wait_for
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.host.identity import identity_of
from worker.engines.local.exits import ExitWatcher


@contextmanager
def running() -> Generator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    """A process that exits when its input is closed."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        identity = identity_of(child.pid)
        assert identity is not None
        yield child, identity


def end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_watch_is_called_once_when_its_process_exits() -> None:
    calls: list[int] = []
    done = threading.Event()
    watcher = ExitWatcher()
    with running() as (one, identity), running() as (_, other):
        watcher.watch(identity, lambda: calls.append(1))
        watcher.watch(identity, done.set)
        watcher.watch(other, lambda: calls.append(2))
        end(one)
        assert done.wait(DEADLINE_S)
        wait_for(lambda: calls, "the other watch of the same process")
        assert calls == [1]


def test_a_watch_of_a_zombie_or_of_no_process_is_called_at_once() -> None:
    calls: list[int] = []
    watcher = ExitWatcher()
    with running() as (child, identity):
        end(child)
        watcher.watch(identity, lambda: calls.append(1))
    watcher.watch(identity, lambda: calls.append(2))
    me = identity_of(os.getpid())
    assert me is not None
    watcher.watch(replace(me, start_time=me.start_time - 1), lambda: calls.append(3))
    watcher.watch(ProcessIdentity(pid=0, start_time=0, boot_id=""), lambda: calls.append(4))
    assert calls == [1, 2, 3, 4]


def test_thousands_of_watches_leave_no_descriptor() -> None:
    calls: list[int] = []
    watcher = ExitWatcher()
    me = identity_of(os.getpid())
    assert me is not None
    watcher.watch(me, lambda: None)()  # the watcher's own descriptor is open from now on
    gc.collect()  # what other tests have left open
    before = open_descriptors()
    for _ in range(1_980):
        watcher.watch(me, lambda: calls.append(1))()
    for _ in range(20):
        done = threading.Event()
        with running() as (child, identity):
            cancel = watcher.watch(identity, done.set)
            end(child)
            assert done.wait(DEADLINE_S)
            cancel()
    assert calls == []
    assert open_descriptors() <= before


def test_cancelling_a_watch_twice_does_not_cancel_another() -> None:
    watcher = ExitWatcher()
    done = threading.Event()
    me = identity_of(os.getpid())
    assert me is not None
    cancel = watcher.watch(me, lambda: None)
    cancel()
    with running() as (child, identity):
        watcher.watch(identity, done.set)  # it gets the same descriptor
        cancel()
        end(child)
        assert done.wait(DEADLINE_S)
