"""Reads metrics from the lines of rank 0, by the patterns of the job spec, within a budget of processor time."""

from collections.abc import Sequence
import time

from store.worker.records import Batch, LinePattern
from worker.attempts.output.warnings import warn

CPU_S = 0.05
"""Processor time of one call. Lines beyond it are left out."""
_COUNTED = "patterns/"
"""Begins the name under which the row of the attempt keeps how many lines a pattern has matched."""


class LoggedMetrics:
    """The patterns of one job."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [*patterns]
        self._compiled: list[tuple[str, LinePattern]] | None = None
        self._has_said = False

    def read(self, lines: Sequence[bytes], batch: Batch, offsets: dict[str, int]) -> None:
        """Adds the points of the next lines to the batch, and counts the lines that match in the offsets."""
        if not self._patterns or not lines:
            return
        compiled = self._expressions(batch)
        ends, now = time.thread_time() + CPU_S, time.time_ns() // 1000
        for index, line in enumerate(lines):
            for counted, pattern in compiled:
                if time.thread_time() > ends:
                    self._leave_out(len(lines) - index, batch)
                    return
                following = offsets.get(counted, 0) + 1
                if points := [*pattern.points(line, counted=following, now=now, ends=ends)]:
                    offsets[counted] = following
                    batch.logged += points

    def _expressions(self, batch: Batch) -> list[tuple[str, LinePattern]]:
        """Returns the expressions with what counts their lines, and says which RE2 does not take."""
        if self._compiled is None:
            self._compiled = []
            for index, pattern in enumerate(self._patterns):
                try:
                    self._compiled.append((f"{_COUNTED}{index}", LinePattern.of(pattern)))
                except ValueError as error:
                    warn(batch, f"metrics.patterns.{index} is not an RE2 expression, and finds nothing: {error}")
        return self._compiled

    def _leave_out(self, count: int, batch: Batch) -> None:
        if not self._has_said:
            self._has_said = True
            warn(batch, f"metrics.patterns are slow: {count} lines were not searched, and more may follow")
