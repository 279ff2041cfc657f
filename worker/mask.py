"""Keeps secrets out of what is stored: replaces their values in text that a job has written."""

from collections.abc import Iterable
from dataclasses import replace
import re

from torchyard.contract.records import ExitReport

MASK = "***"
_LEAST_CHARACTERS = 8
"""A shorter value is not masked: it would hide innocent text."""
_LEAST_PREFIX = 4
"""Characters of a value that are masked where a long line was cut."""
_CUT = re.compile(r" … \[\d+ bytes cut\]$")


class Mask:
    """Replaces values by `***`. A value of several lines is masked line by line, too."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = {part for value in values for part in (value, *value.splitlines())}
        self._parts = sorted((part for part in parts if len(part) >= _LEAST_CHARACTERS), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._parts)))

    def __bool__(self) -> bool:
        """Returns whether there is anything to replace."""
        return bool(self._parts)

    def text(self, text: str) -> str:
        """Returns the text with its secrets masked, also one that was cut in two at the end of a long line."""
        if not self._parts:
            return text
        masked = self._pattern.sub(MASK, text)
        cut = _CUT.search(masked)
        if cut is None:
            return masked
        head = masked[: cut.start()]
        for part in self._parts:
            for length in range(len(part) - 1, _LEAST_PREFIX - 1, -1):
                if head.endswith(part[:length]):
                    return f"{head[:-length]}{MASK}{cut[0]}"
        return masked

    def report(self, report: ExitReport) -> ExitReport:
        """Returns the report with a masked message and traceback."""
        traceback = None if report.traceback is None else self.text(report.traceback)
        return replace(report, message=self.text(report.message), traceback=traceback)
