"""What an expression that a user has written finds in a line of output. It takes time in proportion to the text."""

from collections.abc import Iterator
from dataclasses import dataclass
import re
import time
from typing import Any

from store.output.facts import MetricPoint
from torchyard.contract.spec.log_metrics import KEY, STEP, VALUE, key_of
from torchyard.contract.wire.text import METRIC_KEY_LENGTH, storable

LINE = 4096
"""Bytes of a line that are searched."""
_MOST_MEMORY = 1 << 20
"""Of one expression, in bytes: RE2 refuses what needs more, and forgets states beyond it."""
_MOST_MATCHES = 50
"""Of one expression in one line."""
_STEPS = 1 << 53
_AFTER_NUMBER = b",;:)]}%'\""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_COLOUR = re.compile(rb"\x1b\[[0-9;:?]{0,20}[@-~]")


@dataclass(frozen=True)
class LinePattern:
    """An expression. `key`: of its points, unless it has a group for that."""

    key: str
    expression: Any
    groups: dict[str, int]

    @classmethod
    def of(cls, pattern: str) -> "LinePattern":
        """Compiles the expression. Raises ValueError, which says what is wrong, if RE2 does not accept it."""
        import re2  # few processes need it

        options = re2.Options()
        options.max_mem, options.log_errors = _MOST_MEMORY, False
        try:
            expression: Any = re2.compile(pattern.encode(), options)
        except re2.error as error:
            reason = error.args[0]
            raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else reason) from None
        if VALUE.encode() not in expression.groupindex:  # for Python, it may have the group
            raise ValueError(f"it has no group {VALUE}")
        return cls(key_of(pattern), expression, {name.decode(): index for name, index in expression.groupindex.items()})

    def points(self, line: bytes, *, counted: int, now: int, ends: float) -> Iterator[MetricPoint]:
        """Yields what it finds in a line, until the thread has used processor time up to `ends`.

        `counted`: the step, where the line has none. `now`: the time of the points.
        """
        groups = self.groups
        for number, match in enumerate(self.expression.finditer(_COLOUR.sub(b"", line[:LINE]))):
            if number == _MOST_MATCHES or (number and time.thread_time() > ends):
                return
            value = _parse_number(match.group(groups[VALUE]))
            if value is None:
                continue
            step = _parse_step(match.group(groups[STEP])) if STEP in groups else counted
            name = _parse_key(match.group(groups[KEY])) if KEY in groups else self.key
            if step is not None and name:
                yield MetricPoint(name, step, value, now)


def _parse_number(raw: bytes | None) -> float | None:
    try:
        return float((raw or b"").rstrip(_AFTER_NUMBER))
    except ValueError:
        return None


def _parse_step(raw: bytes | None) -> int | None:
    digits = (raw or b"").replace(b",", b"")
    return int(digits) if digits.isdigit() and len(digits) < 17 and int(digits) < _STEPS else None


def _parse_key(raw: bytes | None) -> str:
    text = _CONTROL.sub("_", storable((raw or b"").decode("utf-8", "replace"))).strip()
    return text if len(text) <= METRIC_KEY_LENGTH else ""
