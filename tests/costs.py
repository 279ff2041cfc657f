"""Tells which test files cost most, by processor time: on a busy machine tests take longer, but cost little more.

The processes that a test has started and waited for count; a server that many tests use counts with the one that
ends it.
"""

from collections import defaultdict
from collections.abc import Generator
import os

import pytest

_SHOWN = 15
_PROPERTY = "processor_s"


class Costs:
    """A plugin of pytest, in the processes that run tests and in the one that is told of them."""

    def __init__(self) -> None:
        self._used = _used()
        self._by_file: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        self._used = _used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        used = _used()
        report.user_properties.append((_PROPERTY, used - self._used))
        self._used = used
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._by_file[report.nodeid.partition("::")[0]] += sum(
            float(str(value)) for name, value in report.user_properties if name == _PROPERTY
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Shows the files that cost most, unless all are few."""
        if len(self._by_file) <= _SHOWN:
            return
        total = sum(self._by_file.values())
        terminalreporter.write_line(f"\nprocessor time: {total:.0f} s in {len(self._by_file)} files, most of it in")
        for path, spent in sorted(self._by_file.items(), key=lambda item: -item[1])[:_SHOWN]:
            terminalreporter.write_line(f"{spent:6.1f} s  {path}")


def _used() -> float:
    """Returns the processor time of this process and of the children that it has waited for, in seconds."""
    return sum(os.times()[:4])
