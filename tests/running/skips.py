"""Tells which skips are not listed in `skips.toml`: what is skipped unseen rots."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
import re
import tomllib

import pytest

SKIPS = Path(__file__).with_name("skips.toml")


@dataclass(frozen=True)
class Allowed:
    tests: str
    """A pattern of names, as a shell has it."""
    reason: str
    """A regular expression that the reason begins with."""
    because: str
    runs: str
    """Where the tests do run."""
    program: str | None = None
    """What must be installed. CI has it: there these tests may not be skipped."""

    def allows(self, nodeid: str, reason: str) -> bool:
        pattern = self.tests.replace("[", "[[]")
        return fnmatchcase(nodeid, pattern) and re.match(self.reason, reason) is not None


@dataclass(frozen=True)
class Verdict:
    failures: list[str]
    missing: list[str]
    """What was skipped for want of a program."""


def read(path: Path = SKIPS) -> list[Allowed]:
    return [Allowed(**each) for each in tomllib.loads(path.read_text())["skip"]]


def reason_of(report: pytest.TestReport) -> str:
    """Returns why the test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def judge(skipped: Mapping[str, str], allowed: Sequence[Allowed], *, in_ci: bool) -> Verdict:
    """Says which of the skipped tests, by name with their reason, are not listed, and what the others want."""
    failures: list[str] = []
    missing: Counter[str] = Counter()
    for nodeid, reason in sorted(skipped.items()):
        found = [each for each in allowed if each.allows(nodeid, reason)]
        if not any(each.program is None or not in_ci for each in found):
            failures.append(f"{nodeid} was skipped: {reason}")
        missing.update({each.program for each in found if each.program is not None and not in_ci})
    return Verdict(
        failures, [f"{count} tests need {name}, which is missing" for name, count in sorted(missing.items())]
    )
