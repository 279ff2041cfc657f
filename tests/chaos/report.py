"""The result of a chaos run as text."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
import math


@dataclass(frozen=True)
class Report:
    seed: int
    minutes: float
    database: str
    kills: Mapping[str, int]
    faults: Mapping[str, int]
    impossible: Collection[str]
    """Faults that are not possible on this machine or database."""
    recovered: Mapping[str, Sequence[float]]
    """Seconds to the recovery, by what was killed."""
    unmeasured: int
    """Kills whose recovery was not seen."""
    ends: Mapping[str, int]
    attempts: Sequence[int]
    """The number of attempts of each job."""
    scored: int
    """Estimates of starts that came true or not."""
    polls: int
    violations: Sequence[str]

    def __str__(self) -> str:
        total = sum(self.kills.values())
        components = [
            f"chaos: seed {self.seed}, {self.minutes:g} min, {self.database}",
            f"kills: {total} ({_counts(self.kills)})",
            f"other faults: {sum(self.faults.values())} ({_counts(self.faults)})",
            *([f"not possible here: {', '.join(sorted(self.impossible))}"] if self.impossible else []),
            *self._recovery(),
            f"jobs: {sum(self.ends.values())} ({_counts(self.ends)}); attempts: {_attempts(self.attempts)}",
            f"scored estimates: {self.scored}; polls of the running service: {self.polls}",
            f"violations: {len(self.violations)}",
            *(f"  {violation}" for violation in self.violations),
            bound(kills=total, violations=len(self.violations)),
        ]
        return "\n".join(components)

    def _recovery(self) -> list[str]:
        everything = [seconds for found in self.recovered.values() for seconds in found]
        rows = [("all", everything), *sorted(self.recovered.items())]
        lines = [
            f"  {name:<10} p50 {percentile(found, 50):6.2f} s, p99 {percentile(found, 99):6.2f} s ({len(found)} kills)"
            for name, found in rows
            if found
        ]
        return ["time to recover:", *lines, *([f"  not seen: {self.unmeasured}"] if self.unmeasured else [])]


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the least value that `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def bound(*, kills: int, violations: int) -> str:
    """Returns the 95% bound on the probability that a kill breaks a promise, by the rule of three."""
    if violations or not kills:
        return "95% bound: none"
    return f"95% bound on the probability that a kill breaks a promise: {min(3 / kills, 1.0):.4f} (3 / {kills})"


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items(), key=lambda item: -item[1])) or "none"


def _attempts(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"{number} of {count} jobs" for number, count in sorted(Counter(numbers).items()))
    return f"{sum(numbers)} ({shown or 'none'})"
