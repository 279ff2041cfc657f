"""Who waits for the end of a process is told of it once, and no descriptor is left."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
import os
from pathlib import Path
import subprocess
import threading

from tests.worker.attempt import DEADLINE_S, wait_for
from torchyard.contract.records import ProcessIdentity
from worker.engines.local.endings import Endings


@contextmanager
def running() -> Generator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    """A process that ends when its input does."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None
        yield child, identity


def end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_it_is_told_once_that_a_process_ended() -> None:
    told: list[int] = []
    done = threading.Event()
    endings = Endings()
    with running() as (one, identity), running() as (_, other):
        endings.watch(identity, lambda: told.append(1))
        endings.watch(identity, done.set)
        endings.watch(other, lambda: told.append(2))
        end(one)
        assert done.wait(DEADLINE_S)
        wait_for(lambda: told, "the other watch of the same process")
        assert told == [1]


def test_who_watches_a_zombie_or_nobody_is_told_at_once() -> None:
    told: list[int] = []
    endings = Endings()
    with running() as (child, identity):
        end(child)
        endings.watch(identity, lambda: told.append(1))
    endings.watch(identity, lambda: told.append(2))
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    endings.watch(replace(me, start_time=me.start_time - 1), lambda: told.append(3))
    endings.watch(ProcessIdentity(pid=0, start_time=0, boot_id=""), lambda: told.append(4))
    assert told == [1, 2, 3, 4]


def test_ten_thousand_watches_leave_no_descriptor() -> None:
    told: list[int] = []
    endings = Endings()
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    endings.watch(me, lambda: None)()  # its own descriptor is open from now on
    before = open_descriptors()
    for _ in range(9_900):
        endings.watch(me, lambda: told.append(1))()
    for _ in range(100):
        done = threading.Event()
        with running() as (child, identity):
            take_back = endings.watch(identity, done.set)
            end(child)
            assert done.wait(DEADLINE_S)
            take_back()
    assert told == []
    assert open_descriptors() == before


def test_a_watch_that_is_taken_back_twice_takes_no_other_with_it() -> None:
    endings = Endings()
    done = threading.Event()
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    take_back = endings.watch(me, lambda: None)
    take_back()
    with running() as (child, identity):
        endings.watch(identity, done.set)  # it gets the same descriptor
        take_back()
        end(child)
        assert done.wait(DEADLINE_S)
