"""Tells which tests have left processes running, and kills those."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
import os
from pathlib import Path
import time
from typing import Any, cast
import uuid

import pytest

from torchyard.contract.attempts.records import ProcessIdentity
from worker.host import process

_MARK = "TORCHYARD_TEST_RUN"
ENDING = timedelta(seconds=10)
"""How long what was told to end may take for it."""
_KILLING = timedelta(seconds=30)
_POLL_S = 0.25


@dataclass(frozen=True)
class Left:
    identity: ProcessIdentity
    command: str
    test: str
    """The test that started it, or set up what did. Else a path that names it."""


class Remains:
    """A plugin of the process that reports: it looks when all tests have been torn down.

    A process belongs to this run by a variable that it has inherited, or by a path in the run's temporary folder,
    among its arguments too.
    """

    def __init__(self) -> None:
        self._told: list[str] = []
        self._began = cast(ProcessIdentity, process.identity(os.getpid())).start_time
        os.environ[_MARK] = self._mark = uuid.uuid4().hex

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        temporary = str(cast(Any, session.config)._tmp_path_factory.getbasetemp())
        found = _settled(lambda: find(f"{_MARK}={self._mark}", temporary, since=self._began))
        self._told = [f"{left.test} left process {left.identity.pid} running: {left.command}" for left in found]
        process.kill_all(lambda: filter(process.is_alive, (left.identity for left in found)), timeout=_KILLING)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for told in self._told:
            terminalreporter.write_line(told, yellow=True)


def find(mark: str, temporary: str, *, since: int) -> list[Left]:
    """Finds the processes that have the variable `mark`, or name the folder, and began after this one."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
    found = (_look(pid, mark, temporary) for pid in pids if pid != os.getpid())
    return [left for left in found if left is not None and left.identity.start_time >= since]


def _settled(look: Callable[[], list[Left]]) -> list[Left]:
    """Looks until nothing is found, or what is found has had its time to end."""
    deadline = time.monotonic() + ENDING.total_seconds()
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _look(pid: int, mark: str, temporary: str) -> Left | None:
    folder = Path("/proc", str(pid))
    try:
        arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        places = [*arguments, *variables, str((folder / "cwd").readlink())]
    except OSError:  # it has ended, or is another user's
        return None
    inside = [place for place in places if f"{temporary}/" in place]
    identity = process.identity(pid)
    if identity is None or not (mark in variables or inside) or "from multiprocessing." in " ".join(arguments):
        return None
    current = [item.partition("=")[2] for item in variables if item.startswith("PYTEST_CURRENT_TEST=")]
    return Left(identity, " ".join(arguments).strip(), [*current, *inside, "a test"][0])
