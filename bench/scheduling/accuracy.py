"""Scores the estimates of waits, and compares the scores with the targets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.scheduling.forecast import HOUR_US, Outcome

LEAST_HELD, MOST_HELD = 0.75, 0.85
"""The share of intervals held, of all seeds."""
LEAST_OF_A_SEED, MOST_OF_A_SEED = 0.72, 0.88
MOST_ERROR = 0.25
"""The ratio of the median error to that of a replay by limits."""

HEADER = ("seed", "estimates", "held", "median error", "by limits", "ratio", "median width", "targets")


@dataclass(frozen=True)
class Accuracy:
    """Errors and widths are medians, in hours; errors of the estimates that have one by limits beside them."""

    seed: str
    estimates: int
    held: float
    """The share of the intervals in which the job did start."""
    error: float
    error_by_limits: float
    width: float
    in_all: bool = False

    @property
    def ratio(self) -> float:
        return self.error / self.error_by_limits if self.error_by_limits else float(self.error > 0)

    @property
    def met(self) -> bool:
        least, most = (LEAST_HELD, MOST_HELD) if self.in_all else (LEAST_OF_A_SEED, MOST_OF_A_SEED)
        return least <= self.held <= most and (not self.in_all or self.ratio <= MOST_ERROR)


def accuracy_of(seed: str, outcomes: Sequence[Outcome], *, in_all: bool = False) -> Accuracy:
    held = [one.held for one in outcomes if one.held is not None]
    widths = [one.width_us for one in outcomes if one.width_us is not None]
    compared = [(one.error_us, one.error_by_limits_us) for one in outcomes if one.error_by_limits_us is not None]
    return Accuracy(
        seed=seed,
        estimates=len(outcomes),
        held=sum(held) / max(1, len(held)),
        error=median(ours for ours, _ in compared) / HOUR_US if compared else 0.0,
        error_by_limits=median(by_limits for _, by_limits in compared) / HOUR_US if compared else 0.0,
        width=median(widths) / HOUR_US if widths else 0.0,
        in_all=in_all,
    )


def table_of(found: Iterable[Accuracy]) -> Iterator[tuple[str, ...]]:
    """Yields the cells of a table: one row of each seed, and one of all."""
    yield HEADER
    yield ("---",) * len(HEADER)
    for one in found:
        held, error, limits, width = f"{one.held:.1%}", f"{one.error:.2f} h", f"{one.error_by_limits:.1f} h", one.width
        said = "met" if one.met else "MISSED"
        yield one.seed, f"{one.estimates:,}", held, error, limits, f"{one.ratio:.2f}", f"{width:.1f} h", said
