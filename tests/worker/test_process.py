"""Processes are identified, found and killed, but never another process that has the same pid."""

from collections.abc import Generator, Iterator, Mapping
import contextlib
from dataclasses import replace
from datetime import timedelta
import os
import signal
import subprocess
import sys
from typing import Any
import uuid

import pytest

from tests.processes import kill_attempt
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import Env, process_title
from worker.host import process

SLEEP = "import time\nwhile True: time.sleep(1)\n"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with _started(SLEEP, {}) as started:
        yield started


def _identity(pid: int) -> ProcessIdentity:
    found = process.identity(pid)
    assert found is not None
    return found


def test_a_process_is_alive_until_it_is_a_zombie(child: subprocess.Popen[bytes]) -> None:
    identity = _identity(child.pid)
    assert process.is_alive(identity)
    assert process.send(identity, signal.SIGKILL)
    wait_for(lambda: not process.is_alive(identity), "its end")
    assert process.identity(child.pid) == identity  # a zombie still has its pid
    child.wait()
    assert process.identity(child.pid) is None
    assert not process.send(identity, signal.SIGKILL)


@pytest.mark.parametrize("change", [{"start_time": 1}, {"boot_id": "another boot"}])
def test_a_reused_pid_is_another_process_and_is_never_signalled(
    child: subprocess.Popen[bytes], change: dict[str, Any]
) -> None:
    before = replace(_identity(child.pid), **change)
    assert not process.is_alive(before)
    assert not process.send(before, signal.SIGKILL)
    assert process.kill_all(lambda: [before] if process.is_alive(before) else [], timeout=timedelta(0)) == []
    assert process.is_alive(_identity(child.pid))


def test_the_caller_is_never_signalled() -> None:
    assert not process.send(_identity(os.getpid()), signal.SIGKILL)


def test_a_process_name_with_brackets_and_spaces_is_parsed() -> None:
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 (', 0, 0, 0)\nprint(flush=True)\n"
    with _started(rename + SLEEP, {}, stdout=subprocess.PIPE) as renamed:
        assert renamed.stdout is not None
        renamed.stdout.readline()
        assert _identity(renamed.pid) in process.descendants(os.getpid())


def test_an_attempt_is_found_by_environment_by_title_and_by_descent() -> None:
    job = f"job_{uuid.uuid4()}"
    titled = f"import setproctitle; setproctitle.setproctitle('{process_title(job, 1, 'rank 0')}')\n"
    nested = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}})\n"
    own: dict[str, str] = {Env.JOB_ID: job, Env.ATTEMPT: "1"}
    with (
        _started(nested + SLEEP, own) as by_environment,
        _started(titled + SLEEP, {"SOME": "thing"}) as by_title,
        _started(SLEEP, own | {Env.ATTEMPT: "2"}) as other_attempt,
    ):
        try:
            wait_for(lambda: len(process.find(job, 1)) == 3, "all three")
            found = {identity.pid for identity in process.find(job, 1)}
            assert {by_environment.pid, by_title.pid} < found
            assert other_attempt.pid not in found
        finally:
            assert kill_attempt(job, 1) == []
        assert process.find(job, 1) == []
        assert process.is_alive(_identity(other_attempt.pid))


def test_of_processes_that_began_before_an_attempt_none_is_taken_for_one_of_its_own() -> None:
    job = f"job_{uuid.uuid4()}"
    own: dict[str, str] = {Env.JOB_ID: job, Env.ATTEMPT: "1"}
    with _started(SLEEP, own) as named:
        wait_for(lambda: process.find(job, 1), "its environment")
        began = _identity(named.pid).start_time
        assert [found.pid for found in process.find(job, 1, since=began)] == [named.pid]
        assert process.find(job, 1, since=began + 1) == []
        assert kill_attempt(job, 1) == []


def test_descendants_of_a_process_are_found_whatever_they_are_named() -> None:
    job = f"job_{uuid.uuid4()}"
    with _started(SLEEP, {}) as below:
        assert _identity(below.pid) in process.find(job, 1, since=sys.maxsize, below=(os.getpid(),))
        assert process.find(job, 1, since=sys.maxsize) == []


@contextlib.contextmanager
def _started(program: str, env: Mapping[str, str], *, stdout: int | None = None) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=stdout) as child:
        try:
            yield child
        finally:
            child.kill()
