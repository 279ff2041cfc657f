"""Judges a run of all quick tests, by what it cost and what it skipped."""

from collections import defaultdict
import os

import pytest

from tests.running import budget, skips
from tests.running.costs import SERVERS, Costs

_SHOWN = 15


class Verdicts:
    """A plugin of the process that reports. It judges only where `whole`."""

    def __init__(self, *, whole: bool, records: bool) -> None:
        self._whole = whole
        self._records = records
        self._costs = Costs()
        self._skipped: dict[str, str] = {}
        self._failures: list[str] = []
        self._told: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._costs.add(report)
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[report.nodeid] = skips.reason_of(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails the run that has passed otherwise."""
        if not self._whole or not self._costs.files:
            return
        if self._records:
            budget.write(self._costs)
            self._told.append(f"the costs are recorded in {budget.COSTS}")
        if session.exitstatus != pytest.ExitCode.OK:
            return
        skipped = skips.judge(self._skipped, skips.read(), in_ci=os.environ.get("CI", "") not in {"", "false"})
        self._failures += [f"{told}\nIt is not listed in tests/running/skips.toml." for told in skipped.failures]
        self._told += skipped.missing
        reasons = budget.read_reasons()
        cost = budget.compare(self._costs, budget.read(), reasons)
        self._failures += cost.failures
        self._told += cost.warnings
        if self._failures:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Shows the files that cost most, unless all are few, and why the run fails although its tests passed."""
        files = self._costs.files
        if len(files) > _SHOWN:
            total = sum(files.values())
            terminalreporter.write_line(f"\nprocessor time: {total:.0f} s in {len(files)} files, most of it in")
            for path, spent in sorted(files.items(), key=lambda item: -item[1])[:_SHOWN]:
                terminalreporter.write_line(f"{spent:6.1f} s  {path}")
            for folder, spent in sorted(_by_folder(files).items()):
                terminalreporter.write_line(f"{spent:6.1f} s  {folder}/")
        for told in self._told:
            terminalreporter.write_line(told, yellow=True)
        for failure in self._failures:
            terminalreporter.write_line(f"FAILED, though all tests passed: {failure}", red=True)


def _by_folder(files: dict[str, float]) -> dict[str, float]:
    folders: defaultdict[str, float] = defaultdict(float)
    for path, spent in files.items():
        if path == SERVERS:
            continue
        folders["/".join(path.split("/")[:2][: max(1, path.count("/"))])] += spent
    return folders
