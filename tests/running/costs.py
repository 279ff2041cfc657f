"""Tells what tests cost, by processor time: on a busy machine tests take longer, but cost little more.

The processes that a test has started and waited for count. Missed are those for which nobody waits in this process:
daemons, processes whose parent has ended, forks of the server of `tests/forks.py`. What tests share, such as a server,
counts with the file whose test has set it up, but not with the test; what a worker tears down at its end, such as the
servers of many files, counts with none of them, and neither does more than a test had time for: it has then waited for
a process that others had used.
"""

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from hashlib import sha256
import os
import re
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
import time
from typing import Any

import pytest

_OWN, _SHARED, _SERVERS, _PACE = "processor_s", "shared_processor_s", "servers_processor_s", "pace"
SERVERS = "what files share"
"""Counted like a file."""
_PACE_S = 10.0
"""How often the pace of the machine is measured."""
_ROUNDS = 12_000
_CORES = len(os.sched_getaffinity(0))


class Meter:
    """A plugin of the process that runs tests: it writes into each report what the test has cost."""

    def __init__(self) -> None:
        self._used = used()
        self._shared = 0.0
        self._depth = 0
        self._tears_down = _OWN
        self._measured = -_PACE_S

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Keeps apart what the outermost shared fixture costs."""
        if fixturedef.scope == "function" or self._depth:
            return (yield)
        self._depth += 1
        before = used()
        try:
            return (yield)
        finally:
            self._depth -= 1
            self._shared += used() - before

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: object) -> None:
        if isinstance(nextitem, pytest.Item) and nextitem.path == item.path:
            self._tears_down = _OWN
        else:
            self._tears_down = _SHARED if _goes_on(nextitem) else _SERVERS

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        spent = used() - self._used
        if report.when == "teardown" and self._tears_down != _OWN:
            report.user_properties.append((self._tears_down, round(spent, 4)))
        else:
            report.user_properties += [(_OWN, round(spent - self._shared, 4)), (_SHARED, round(self._shared, 4))]
        if report.when == "teardown" and time.monotonic() - self._measured > _PACE_S:
            report.user_properties.append((_PACE, pace()))
            self._measured = time.monotonic()
        self._used, self._shared = used(), 0.0
        return report


@dataclass
class Costs:
    """What is told in reports, in processor seconds."""

    files: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    lengths: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    """How long the tests of a file took, in seconds of the clock: they wait for processes that `files` misses."""
    tests: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    """Without what tests share. A test that runs on two databases is in here once, with the higher of its costs."""
    paces: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Seconds of a fixed piece of work: of the processor, and of the clock."""
    _running: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, report: pytest.TestReport) -> None:
        self.lengths[report.nodeid.partition("::")[0]] += report.duration
        for name, value in report.user_properties:
            match value:
                case float() if name == _SERVERS:
                    self.files[SERVERS] += value
                case float() if name in {_OWN, _SHARED}:
                    possible = min(value, report.duration * _CORES)
                    self.files[report.nodeid.partition("::")[0]] += possible
                    if value > possible:
                        self.files[SERVERS] += value - possible
                    own = possible if name == _OWN else 0.0
                    self._running[report.nodeid] = self._running.get(report.nodeid, 0) + own
                case (float() as spent, float() as passed) if name == _PACE:
                    self.paces.append((spent, passed))
                case _:
                    pass
        if report.when == "teardown":
            test = without_database(report.nodeid)
            self.tests[test] = max(self.tests[test], self._running.pop(report.nodeid, 0.0))


def _goes_on(following: Any) -> bool:
    """Says whether a test follows, as pytest asks what stands for one."""
    return following is not None and bool(following.listchain())


def used() -> float:
    """Returns the processor time of this process and of the children that it has waited for, in seconds."""
    own, children = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def pace() -> tuple[float, float]:
    """Does a fixed piece of work. Returns how many seconds it took: of the processor, and of the clock."""
    spent, passed = time.thread_time(), time.perf_counter()
    digest, number = sha256(), 0
    for step in range(_ROUNDS):
        number = (number * 31 + step) & 0xFFFFFFFF
        digest.update(number.to_bytes(4, "little"))
    return time.thread_time() - spent, time.perf_counter() - passed


def without_database(nodeid: str) -> str:
    """Returns the test's name without the parameter that says on which database it runs."""
    return re.sub(r"\[(sqlite|postgresql)(-|(?=\]))", "[", nodeid).removesuffix("[]")
