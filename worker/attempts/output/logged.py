"""Reads metrics from the lines of rank 0, by the patterns of the job spec, within a budget of processor time."""

from collections.abc import Iterator, Sequence
import re
import time
from typing import Any

from store.facts.output import Batch
from store.facts.telemetry import MetricPoint
from torchyard.contract.logmetrics import KEY, STEP, VALUE, key_of
from torchyard.contract.text import METRIC_KEY_LENGTH, storable
from worker.attempts.output.warnings import warn

LINE = 4096
"""Bytes of a line that are searched."""
CPU_S = 0.05
"""Processor time of one call. Lines beyond it are left out."""
_MOST_MEMORY = 1 << 20
"""Of one expression, in bytes: RE2 refuses what needs more, and forgets states beyond it."""
_MOST_MATCHES = 50
"""Of one expression in one line."""
_COUNTED = "patterns/"
"""Begins the name under which the row of the attempt keeps how many lines a pattern has matched."""
_STEPS = 1 << 53
_BEHIND = b",;:)]}%'\""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_COLOUR = re.compile(rb"\x1b\[[0-9;:?]{0,20}[@-~]")


class LoggedMetrics:
    """The patterns of one job."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [*patterns]
        self._compiled: list[tuple[str, str, Any]] | None = None
        self._has_said = False

    def read(self, lines: Sequence[bytes], batch: Batch, offsets: dict[str, int]) -> None:
        """Adds the points of the next lines to the batch, and counts the lines that match in the offsets."""
        if not self._patterns or not lines:
            return
        compiled = self._expressions(batch)
        ends, now = time.thread_time() + CPU_S, time.time_ns() // 1000
        for place, raw in enumerate(lines):
            line = _COLOUR.sub(b"", raw[:LINE])
            for counted, key, expression in compiled:
                if time.thread_time() > ends:
                    self._leave_out(len(lines) - place, batch)
                    return
                following = offsets.get(counted, 0) + 1
                if found := [*_points(line, key, expression, counted=following, now=now, ends=ends)]:
                    offsets[counted] = following
                    batch.logged += found

    def _expressions(self, batch: Batch) -> list[tuple[str, str, Any]]:
        """Returns the expressions with what counts their lines and their keys, and says which RE2 does not take."""
        if self._compiled is not None:
            return self._compiled
        import re2  # few jobs need it

        options = re2.Options()
        options.max_mem, options.log_errors = _MOST_MEMORY, False
        self._compiled = []
        for index, pattern in enumerate(self._patterns):
            try:
                expression: Any = re2.compile(pattern.encode(), options)
                if VALUE.encode() not in expression.groupindex:  # for Python, it may have the group
                    raise re2.error(f"it has no group {VALUE}")
                self._compiled.append((f"{_COUNTED}{index}", key_of(pattern), expression))
            except re2.error as error:
                said = error.args[0]
                text = said.decode(errors="replace") if isinstance(said, bytes) else said
                warn(batch, f"metrics.patterns.{index} is no expression of RE2, and finds nothing: {text}")
        return self._compiled

    def _leave_out(self, count: int, batch: Batch) -> None:
        if not self._has_said:
            self._has_said = True
            warn(batch, f"metrics.patterns take long to search: {count} lines were left out, and more may be")


def _points(line: bytes, key: str, expression: Any, *, counted: int, now: int, ends: float) -> Iterator[MetricPoint]:
    """Yields what an expression finds in a line, until the thread has used processor time up to `ends`."""
    groups: dict[str, int] = {name.decode(): number for name, number in expression.groupindex.items()}
    for number, match in enumerate(expression.finditer(line)):
        if number == _MOST_MATCHES or (number and time.thread_time() > ends):
            return
        value = _number(match.group(groups[VALUE]))
        if value is None:
            continue
        step = _step(match.group(groups[STEP])) if STEP in groups else counted
        name = _key(match.group(groups[KEY])) if KEY in groups else key
        if step is not None and name:
            yield MetricPoint(name, step, value, now)


def _number(raw: bytes | None) -> float | None:
    try:
        return float((raw or b"").rstrip(_BEHIND))
    except ValueError:
        return None


def _step(raw: bytes | None) -> int | None:
    digits = (raw or b"").replace(b",", b"")
    return int(digits) if digits.isdigit() and len(digits) < 17 and int(digits) < _STEPS else None


def _key(raw: bytes | None) -> str:
    text = _CONTROL.sub("_", storable((raw or b"").decode("utf-8", "replace"))).strip()
    return text if len(text) <= METRIC_KEY_LENGTH else ""
