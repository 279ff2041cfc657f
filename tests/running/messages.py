"""What a worker tells the process that has forked it. That one answers `Wanted` by the tests of a group, or by None."""

from dataclasses import dataclass
from typing import Any
import warnings


@dataclass(frozen=True)
class Wanted:
    """The worker has run its group, but not torn down its last test."""


@dataclass(frozen=True)
class Begun:
    test: int
    """Its index among the collected ones."""


@dataclass(frozen=True)
class Warned:
    """A recorded warning, in parts that can be pickled."""

    text: str
    category: str
    file: str
    line: int
    when: str
    nodeid: str
    location: tuple[str, int, str] | None

    def message(self) -> warnings.WarningMessage:
        category: type[Warning] = type(self.category, (Warning,), {})
        return warnings.WarningMessage(self.text, category, self.file, self.line)


@dataclass(frozen=True)
class Finished:
    test: int
    reports: list[dict[str, Any]]
    """As `pytest_report_to_serializable` returns them."""
    warned: list[Warned]


@dataclass(frozen=True)
class Asked:
    """A test has called `pytest.exit`."""

    reason: str


@dataclass(frozen=True)
class Broken:
    """The worker itself has failed, or the teardown of what its tests have shared."""

    traceback: str


Message = Wanted | Begun | Finished | Asked | Broken
