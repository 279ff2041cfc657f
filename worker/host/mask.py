"""Keeps secrets out of what is stored: replaces their values in text that a job has written."""

from collections.abc import Iterable
from dataclasses import replace
import json
import re

from torchyard.contract.attempts.records import ExitReport
from worker.host.beginnings import Beginnings

MASK = "***"
_LEAST_CHARACTERS = 8
"""A shorter value is not masked: it would hide innocent text."""
_LEAST_PART = 4
"""Characters of a value that are masked where the rest of it was cut off."""
_FEW = 32
"""Up to so many parts are searched for one by one."""
_CUT = re.compile(r" … \[\d+ bytes cut\]$")


class Mask:
    """Replaces values by `***`, as they are and as JSON and Python write them. Also masks each line of a value."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        whole = list(values)
        lines = (line for value in whole for line in value.splitlines() if len(line) >= _LEAST_CHARACTERS)
        parts = {form for part in (*whole, *lines) for form in (part, *_escaped(part))}
        self._parts = sorted((part for part in parts if len(part) >= _LEAST_CHARACTERS), key=len, reverse=True)
        self._lines = "\n".join({line for part in self._parts for line in part.split("\n")})
        self._whole = Beginnings(self._parts, least=_LEAST_CHARACTERS)
        self._begun = Beginnings(self._parts, least=_LEAST_PART)
        self._ended = Beginnings((part[::-1] for part in self._parts), least=_LEAST_PART)

    def __bool__(self) -> bool:
        """Returns whether there is anything to replace."""
        return bool(self._parts)

    def finds(self, text: str) -> bool:
        """Returns whether the text has a secret."""
        return next(self._whole.spans(text), None) is not None

    def text(self, text: str) -> str:
        """Returns the text with its secrets masked, also one that was cut in two at the end of a long line."""
        if not self._parts:
            return text
        masked = self._masked(text)
        cut = _CUT.search(masked)
        return masked if cut is None else f"{self._without_begun(masked[: cut.start()])}{cut[0]}"

    def report(self, report: ExitReport) -> ExitReport:
        """Returns the report with a masked message and traceback, which may have been cut anywhere, in any line."""
        traceback = None if report.traceback is None else self.quoted(report.traceback)
        return replace(report, message=self.quoted(report.message), traceback=traceback)

    def quoted(self, text: str) -> str:
        """Returns the text with its secrets masked. It may have been cut anywhere, in any line."""
        if not self._parts:
            return text
        return "\n".join(self._line(line) for line in self._masked(text).split("\n"))

    def _masked(self, text: str) -> str:
        if len(self._parts) <= _FEW:
            # Each call of `replace` takes time by the length of the text, whatever the part; an expression would not.
            for part in self._parts:
                text = text.replace(part, MASK)
            return text
        kept, end = list[str](), 0
        for start, stop in self._whole.spans(text):
            if start >= end:
                kept += (text[end:start], MASK)
            end = max(end, stop)
        return "".join([*kept, text[end:]])

    def _line(self, line: str) -> str:
        if len(line) >= _LEAST_CHARACTERS and line in self._lines:
            return MASK
        return self._without_begun(self._without_ended(line))

    def _without_begun(self, text: str) -> str:
        """Masks the beginning of a value at the end of the text."""
        start = self._begun.cut_off(text)
        return text if start is None else f"{text[:start]}{MASK}"

    def _without_ended(self, text: str) -> str:
        """Masks the end of a value at the beginning of the text."""
        start = self._ended.cut_off(text[::-1])
        return text if start is None else f"{MASK}{text[len(text) - start :]}"


def _escaped(value: str) -> tuple[str, ...]:
    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]
