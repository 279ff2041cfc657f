"""Compares what a run has cost with what is recorded in `costs.json`, at the pace at which most files ran.

Whatever slows a machine down slows most files alike, but no other work as much: on an idle machine, which runs a loop
in 2.4 ms, tests take nine tenths of what they take on a busy one, which runs it in 3.8 ms. So the median of the files'
own ratios is taken for the machine's, and what has grown beside it is seen: a file, a folder, the sum. What all tests
share is seen where that median is far from the ratio of the loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from statistics import median
import tomllib

from tests.running.costs import SERVERS, Costs

COSTS = Path(__file__).with_name("costs.json")
DEAR = Path(__file__).with_name("dear.toml")
DEAR_S = 2.0
"""A test that costs more has a reason in `dear.toml`."""
_TOLERANCE = 1.3
_WARNS = 1.1
_LEAST_S = 0.5
"""Of files that cost less, the ratio is taken of none."""
_APART = 2.0
"""How many times the ratio of the loop that of the files may be."""
_GROWN, _GROWN_S = 2.0, 3.0
"""A file that costs more than so many times its record, and so many seconds more, is told."""
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
    scale = _scale(costs, recorded)
    dear = [
        found for name, spent in sorted(costs.tests.items()) if (found := _dear(name, spent / scale, reasons, recorded))
    ]
    total, allowed = sum(costs.files.values()) / scale, recorded.total
    told = f"the tests cost {total:.0f} s of a processor, at the pace of the record, which says {allowed:.0f} s"
    above = [told] if total > allowed * _TOLERANCE else []
    warnings = [told] if not above and total > allowed * _WARNS else []
    warnings += [
        f"{name} costs {spent / scale:.1f} s of a processor, and {before:.1f} s at its record"
        for name, before in sorted(recorded.files.items())
        if (spent := costs.files.get(name, 0.0)) / scale > max(_GROWN * before, before + _GROWN_S)
    ]
    if scale > _APART * (loop := _pace(costs) / recorded.pace_s):
        above.append(
            f"most files cost {scale:.1f} times their record, and a loop {loop:.1f} times: what do they share?"
        )
    if (busy := median(passed / spent for spent, passed in costs.paces)) > _BUSY:
        note = f"the machine was busy: work took {busy:.1f} times its processor time, so costs fail nothing"
        return Verdict([], [*dear, *above, *warnings, *([note] if dear or above else [])])
    return Verdict(above, [*dear, *warnings])  # the first test that imports a package pays for it, whichever it is


def _scale(costs: Costs, recorded: Recorded) -> float:
    """Returns how many times its record the middle one of the files has cost."""
    ratios = [
        costs.files[name] / before
        for name, before in recorded.files.items()
        if before >= _LEAST_S and name != SERVERS and costs.files.get(name)
    ]
    return median(ratios) if ratios else 1.0


def _dear(name: str, spent: float, reasons: Mapping[str, str], recorded: Recorded) -> str | None:
    if name not in reasons:
        if spent <= DEAR_S * _TOLERANCE:
            return None
        return f"{name} costs {spent:.1f} s of a processor: make it cheaper, or say in dear.toml why it is not"
    allowed = max(recorded.tests.get(name, 0), DEAR_S) * _TOLERANCE
    return None if spent <= allowed else f"{name} costs {spent:.1f} s of a processor, of {allowed:.1f} s that it may"


def _pace(costs: Costs) -> float:
    return median(spent for spent, _ in costs.paces)
