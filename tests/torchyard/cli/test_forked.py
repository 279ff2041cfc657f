"""Programs that one process forks after it has imported what they share."""

from collections.abc import Generator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import signal
import sys
from typing import Any

import psutil
import pytest

from tests.e2e.service import until
from tests.processes import Children
from torchyard.cli.up.forked import Forked, Starter

PROGRAM = """
import json, os, signal, sys, threading
from pathlib import Path

mask = os.umask(0)
print(json.dumps({
    "name": __name__, "arguments": sys.argv[1:], "parent": os.getppid(), "session": os.getsid(0) == os.getpid(),
    "environment": dict(os.environ), "umask": mask, "tasks": len(os.listdir("/proc/self/task")),
    "files": sorted(os.readlink(f"/proc/self/fd/{number}").partition(":")[0] for number in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{number}")),
    "shared": "store.store" in sys.modules, "started": Path("/proc/self/cmdline").read_text().rstrip("\\0"),
    "default": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
}), flush=True)
while "WAIT" in os.environ:
    signal.pause()
sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text(PROGRAM)
    return tmp_path


@contextmanager
def starting(folder: Path) -> Generator[Starter]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
    starter = Starter(("one", "two", "three"), env=env, log=folder / "starter.log")
    try:
        yield starter
    finally:
        starter.close()


def start(starter: Starter, folder: Path, name: str, **variables: str) -> Forked:
    with (folder / f"{name}.log").open("ab") as log, (folder / "kept").open("ab") as kept:
        return starter.start(name, env=variables, log=log.fileno(), keep=kept.fileno())


def told(folder: Path, name: str) -> dict[str, Any]:
    log = folder / f"{name}.log"
    return json.loads(until(lambda: log.read_text() or None, what="it says what it found"))


def test_each_finds_what_a_program_finds_that_was_started_and_nothing_of_others(folder: Path) -> None:
    children = Children("store.forks")
    with starting(folder) as starter:
        forking = _suspended(children)
        stopped = start(starter, folder, "three")
        stopped.send_signal(signal.SIGTERM)  # before it was forked
        forking.resume()
        secret = "s3cret" * 100_000  # more than a socket holds
        programs = [start(starter, folder, "one", TOKEN=secret), start(starter, folder, "two", OTHER="2")]
        assert [program.wait(120) for program in programs] == [7, 7]
        assert stopped.wait(120) == -signal.SIGTERM
    assert (folder / "three.log").read_text() == ""
    for name, variables in (("one", {"TOKEN": secret}), ("two", {"OTHER": "2"})):
        found = told(folder, name)
        assert found.pop("environment") == variables
        files = found.pop("files")
        assert [file for file in files if file.startswith(("socket", "pipe", "anon"))] == []
        assert {*files} == {"/dev/null", str(folder / f"{name}.log"), str(folder / "kept")}
        assert found == {
            "name": "__main__",
            "arguments": [],
            "parent": os.getpid(),
            "session": True,
            "umask": _umask(),
            "tasks": 1,
            "shared": True,
            "started": f"{sys.executable} -P -m {name}",
            "default": True,
        }


@pytest.mark.thorough
def test_its_failpoints_are_those_of_its_own_variables(folder: Path) -> None:
    (folder / "two.py").write_text("from torchyard.host.failpoints import failpoint\nfailpoint('store.claim.after')")
    with starting(folder) as starter:
        programs = [
            start(starter, folder, "one"),
            start(starter, folder, "two", TORCHYARD_FAILPOINTS="store.claim.after=kill"),
        ]
        assert [program.wait(120) for program in programs] == [7, -signal.SIGKILL]


@pytest.mark.thorough
def test_one_that_runs_is_stopped_by_a_signal(folder: Path) -> None:
    with starting(folder) as starter:
        program = start(starter, folder, "one", WAIT="1")
        assert told(folder, "one")["parent"] == os.getpid()
        assert program.poll() is None
        program.send_signal(signal.SIGTERM)
        assert program.wait(120) == -signal.SIGTERM == program.returncode


def test_one_that_was_never_forked_has_ended(folder: Path) -> None:
    children = Children("store.forks")
    with starting(folder) as starter:
        forking = _suspended(children)
        program = start(starter, folder, "one")
        forking.kill()
        assert program.wait(120) == 1
        assert (folder / "one.log").read_text() == ""


def _suspended(children: Children) -> psutil.Process:
    """Returns the process that will fork, which does not go on before it is told to."""
    (forking,) = until(lambda: children.running() or None, what="the process that will fork has started")
    forking.suspend()
    return forking


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
