"""Compares what a run has cost with what is recorded in `costs.json`, at the pace of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from statistics import median
import tomllib

from tests.running.costs import Costs

COSTS = Path(__file__).with_name("costs.json")
DEAR = Path(__file__).with_name("dear.toml")
DEAR_S = 2.0
"""A test that costs more has a reason in `dear.toml`."""
_TOLERANCE = 1.3
_WARNS = 1.1
_BUSY = 4.0
"""Of a machine on which a piece of work takes so many times its processor time, no figure is a reason to fail."""


@dataclass(frozen=True)
class Recorded:
    pace_s: float
    """Processor seconds of the fixed piece of work, when this was recorded."""
    files: dict[str, float]
    lengths: dict[str, float]
    """Seconds of the clock by file, which only order the files."""
    tests: dict[str, float]
    """Those above `DEAR_S`."""

    @property
    def total(self) -> float:
        return sum(self.files.values())


@dataclass(frozen=True)
class Verdict:
    failures: list[str]
    warnings: list[str]


def read(path: Path = COSTS) -> Recorded | None:
    """Returns what is recorded, or None if nothing is."""
    return Recorded(**json.loads(path.read_text())) if path.is_file() else None


def read_reasons(path: Path = DEAR) -> dict[str, str]:
    """Returns the dear tests, each with its reason."""
    return tomllib.loads(path.read_text())["tests"]


def write(costs: Costs, path: Path = COSTS) -> None:
    """Records the costs of a run of all quick tests."""
    recorded = {
        "pace_s": round(_pace(costs), 5),
        "files": {name: round(spent, 1) for name, spent in sorted(costs.files.items())},
        "lengths": {name: round(passed, 1) for name, passed in sorted(costs.lengths.items())},
        "tests": {name: round(spent, 1) for name, spent in sorted(costs.tests.items()) if spent > DEAR_S},
    }
    path.write_text(json.dumps(recorded, indent=1) + "\n")


def compare(costs: Costs, recorded: Recorded | None, reasons: Mapping[str, str]) -> Verdict:
    """Says what costs more than it may."""
    if recorded is None:
        return Verdict(["no costs are recorded: make test-costs"], [])
    scale = _pace(costs) / recorded.pace_s
    dear = [
        found for name, spent in sorted(costs.tests.items()) if (found := _dear(name, spent / scale, reasons, recorded))
    ]
    total, allowed = sum(costs.files.values()) / scale, recorded.total
    told = f"the tests cost {total:.0f} s of a processor, at the pace of the record, which says {allowed:.0f} s"
    above = [told] if total > allowed * _TOLERANCE else []
    warnings = [told] if not above and total > allowed * _WARNS else []
    if (busy := median(passed / spent for spent, passed in costs.paces)) > _BUSY:
        note = f"the machine was busy: work took {busy:.1f} times its processor time, so costs fail nothing"
        return Verdict([], [*dear, *above, *warnings, *([note] if dear or above else [])])
    return Verdict(above, [*dear, *warnings])  # the first test that imports a package pays for it, whichever it is


def _dear(name: str, spent: float, reasons: Mapping[str, str], recorded: Recorded) -> str | None:
    if name not in reasons:
        if spent <= DEAR_S * _TOLERANCE:
            return None
        return f"{name} costs {spent:.1f} s of a processor: make it cheaper, or say in dear.toml why it is not"
    allowed = max(recorded.tests.get(name, 0), DEAR_S) * _TOLERANCE
    return None if spent <= allowed else f"{name} costs {spent:.1f} s of a processor, of {allowed:.1f} s that it may"


def _pace(costs: Costs) -> float:
    return median(spent for spent, _ in costs.paces)
