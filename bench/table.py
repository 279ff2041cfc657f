"""A row is one figure: what was measured, its spread, the peer beside it, and whether the target is met."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
import os
import platform
from statistics import median, quantiles
import sys
import time

_HEADER = ("figure", "torchyard", "peer", "ratio", "target")
_WIDTHS = (66, 38, 62, 5, 20)


@dataclass(frozen=True)
class Row:
    """`ours` and `theirs` hold one value of each repeat, in `unit`."""

    what: str
    unit: str
    ours: Sequence[float]
    peer: str = ""
    """Who `theirs` are of; without values, why there is none."""
    theirs: Sequence[float] = ()
    at_least: float | None = None
    at_most: float | None = None
    ratio_at_least: float | None = None
    """Of our median to the peer's."""
    ratio_at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the median meets its target; None where there is none to meet."""
        middle = median(self.ours)
        checks = [
            *([middle >= self.at_least] if self.at_least is not None else []),
            *([middle <= self.at_most] if self.at_most is not None else []),
            *([self.ratio >= self.ratio_at_least] if self.ratio_at_least is not None and self.ratio else []),
            *([self.ratio <= self.ratio_at_most] if self.ratio_at_most is not None and self.ratio else []),
        ]
        return all(checks) if checks else None

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.theirs) if self.theirs else None


def main(measure: Callable[[], Iterable[Row]]) -> None:
    """Prints each row as soon as it is measured, as Markdown; exits with 1 where a target is missed."""
    met = True
    _print(_HEADER)
    _print(tuple("-" * width for width in _WIDTHS))
    for row in measure():
        _print(_cells(row))
        met &= row.met is not False
    print(f"\nMedian (least to greatest of n repeats). {_machine()}")
    sys.exit(0 if met else 1)


def percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def _print(cells: tuple[str, ...]) -> None:
    print(f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))} |", flush=True)


def _cells(row: Row) -> tuple[str, ...]:
    peer = f"{row.peer}: {_spread(row.theirs, row.unit)}" if row.theirs else row.peer
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    return row.what, _spread(row.ours, row.unit), peer, ratio, _verdict(row)


def _spread(values: Sequence[float], unit: str) -> str:
    whole = f"{_number(median(values))} {unit}"
    return f"{whole} ({_number(min(values))} to {_number(max(values))}, n={len(values)})" if len(values) > 1 else whole


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _verdict(row: Row) -> str:
    targets = [
        *([f"≥ {row.at_least:,g}"] if row.at_least is not None else []),
        *([f"≤ {row.at_most:,g}"] if row.at_most is not None else []),
        *([f"ratio ≥ {row.ratio_at_least:g}"] if row.ratio_at_least is not None else []),
        *([f"ratio ≤ {row.ratio_at_most:g}"] if row.ratio_at_most is not None else []),
    ]
    said = {True: " met", False: " MISSED", None: ""}[row.met]
    return ", ".join(targets) + said


def _machine() -> str:
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{cores} cores, load {load:.1f} at the end, Python {platform.python_version()}, {today}."
