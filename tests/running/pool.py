"""The workers, as the process sees them that has collected the tests and reports what they find."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
import os
from pathlib import Path
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.running import worker
from tests.running.groups import Group, Line
from tests.running.messages import Asked, Begun, Broken, Finished, Message, Wanted

_INTERRUPTED_S = 5.0
"""How long workers may take for a Ctrl-C of the terminal, before they are sent one. It reaches them too."""
_TEARDOWN_S = 60.0
"""How long they may then take for what their tests have started."""


@dataclass
class _Worker:
    name: str
    pid: int
    ended: int
    """A descriptor that can be read when the process has ended: its connection may be open in processes of tests."""
    connection: Connection
    group: Group
    left: deque[int]
    """The tests of its group that it has not begun."""
    running: int | None = None
    last: int | None = None
    told: list[str] = field(default_factory=list[str])
    """Why it has failed, in its own words."""


class Pool:
    def __init__(self, session: pytest.Session, groups: Sequence[Group], *, size: int) -> None:
        self._session = session
        self._hook = session.config.hook
        self._groups = Line(groups)
        self._size = size
        self._workers: list[_Worker] = []
        self._started = 0
        self._temporary = _temporary(session.config)
        self._broken: list[str] = []

    def run(self) -> None:
        """Runs all groups. Raises what pytest's own loop raises when it stops before the end."""
        try:
            self._run()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            self._kill()
        if self._broken:
            raise RuntimeError("\n".join(self._broken))
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _run(self) -> None:
        stopping = False
        while True:
            if self._stops() and not stopping:
                stopping = True
                self._groups.clear()
                for each in self._workers:
                    _send(each, None)
            while len(self._workers) < self._size and (group := self._next()) is not None:
                self._start(group)
            if not self._workers:
                return
            for each in self._ready(None):
                self._hear(each)

    def _stops(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop or self._broken)

    def _next(self, done: _Worker | None = None) -> Group | None:
        """Returns the next group. `done`: the worker that asks, whose own group has ended; None for a new worker."""
        return self._groups.take([each.group for each in self._workers if each is not done])

    def _start(self, group: Group) -> None:
        name, self._started = f"gw{self._started}", self._started + 1
        _flush(self._session.config)
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self._workers:
                other.connection.close()
                os.close(other.ended)
            worker.run(self._session, theirs, name=name, temporary=self._temporary, group=group.tests)
        theirs.close()
        self._workers.append(_Worker(name, pid, os.pidfd_open(pid), ours, group, deque(group.tests)))

    def _ready(self, timeout: float | None) -> list[_Worker]:
        """Waits until workers have said something or have ended. Returns them."""
        ready = wait([*(each.connection for each in self._workers), *(each.ended for each in self._workers)], timeout)
        return [each for each in self._workers if each.connection in ready or each.ended in ready]

    def _hear(self, each: _Worker) -> None:
        """Takes in what the worker has said, and its end."""
        has_ended = bool(wait([each.ended], 0))
        with suppress(EOFError, ConnectionError):
            while each.connection.poll():
                self._take(each, each.connection.recv())
            if not has_ended:
                return
        self._workers.remove(each)
        _, status = os.waitpid(each.pid, 0)
        each.connection.close()
        os.close(each.ended)
        self._end(each, os.waitstatus_to_exitcode(status))

    def _take(self, each: _Worker, message: Message) -> None:
        match message:
            case Wanted():
                group = self._next(each)
                each.group = group or each.group
                each.left.extend(group.tests if group else ())
                _send(each, group.tests if group else None)
            case Begun(test):
                each.left.remove(test)
                each.running = each.last = test
            case Finished(test):
                each.running = None
                self._replay(each, message)
            case Asked(reason):
                self._session.shouldstop = reason
            case Broken(text):
                each.told.append(text)

    def _replay(self, each: _Worker, finished: Finished) -> None:
        config = self._session.config
        for warned in finished.warned:
            self._hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warned.message(),
                    "when": warned.when,
                    "nodeid": warned.nodeid,
                    "location": warned.location,
                }
            )
        for data in finished.reports:
            report = self._hook.pytest_report_from_serializable(config=config, data=data)
            self._report(each, report)
        item = self._session.items[finished.test]
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _report(self, each: _Worker, report: pytest.TestReport) -> None:
        # As pytest knows it of pytest-xdist: it writes the worker's name where it names each test.
        cast(Any, report).node = SimpleNamespace(gateway=SimpleNamespace(id=each.name), _workerinfocache="")
        self._hook.pytest_runtest_logreport(report=report)

    def _end(self, each: _Worker, code: int) -> None:
        """Takes back what a worker has not run, and reports the test that has ended it."""
        self._broken += [f"{each.name} failed:\n{text}" for text in each.told]
        if each.told or (code == 0 and (each.running is None or self._session.shouldstop)):
            return
        test = each.last if each.running is None else each.running
        how = f"exited with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        if test is None:
            self._broken.append(f"{each.name} {how} before its first test")
            return
        item = self._session.items[test]
        when = "teardown" if each.running is None else "call"
        text = f"{each.name}, the process that ran the test, {how}"
        self._report(each, pytest.TestReport(item.nodeid, item.location, {}, "failed", text, when))
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if each.left and not self._stops():
            self._groups.put_back(Group([*each.left], each.group.waits))

    def _interrupt(self) -> None:
        """Has the workers tear down what their tests have started."""
        self._groups.clear()
        for each in self._workers:
            _send(each, None)
        self._wait(_INTERRUPTED_S)
        for each in self._workers:
            os.kill(each.pid, signal.SIGINT)
        self._wait(_TEARDOWN_S)

    def _wait(self, limit: float) -> None:
        deadline = time.monotonic() + limit
        while self._workers and (left := deadline - time.monotonic()) > 0:
            for each in self._ready(left):
                self._hear(each)

    def _kill(self) -> None:
        for each in self._workers:
            os.kill(each.pid, signal.SIGKILL)
            os.waitpid(each.pid, 0)


def _send(each: _Worker, group: Sequence[int] | None) -> None:
    with suppress(ConnectionError):  # its end is noticed
        each.connection.send(group)


def _temporary(config: pytest.Config) -> Path:
    return cast(Any, config)._tmp_path_factory.getbasetemp()


def _flush(config: pytest.Config) -> None:
    """Writes what is buffered: a fork would write it again."""
    config.get_terminal_writer().flush()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
