"""Keeps secrets out of what is stored: replaces their values in text that a job has written."""

from collections.abc import Iterable
from dataclasses import replace
import json
import re

from torchyard.contract.records import ExitReport

MASK = "***"
_LEAST_CHARACTERS = 8
"""A shorter value is not masked: it would hide innocent text."""
_LEAST_PART = 4
"""Characters of a value that are masked where the rest of it was cut off."""
_MOST_TRIES = 100
"""Of places where a cut value may begin or end. Beyond them, more is masked than needed."""
_FEW = 32
"""Up to so many parts are searched for one by one. Of more, only those whose first characters are in the text."""
_CUT = re.compile(r" … \[\d+ bytes cut\]$")


class Mask:
    """Replaces values by `***`, as they are and as JSON and Python write them. Also masks each line of a value."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        whole = list(values)
        lines = (line for value in whole for line in value.splitlines() if len(line) >= _LEAST_CHARACTERS)
        parts = {form for part in (*whole, *lines) for form in (part, *_escaped(part))}
        self._parts = sorted((part for part in parts if len(part) >= _LEAST_CHARACTERS), key=len, reverse=True)
        self._by_start: dict[str, list[str]] = {}
        for part in self._parts:
            self._by_start.setdefault(part[:_LEAST_CHARACTERS], []).append(part)

    def __bool__(self) -> bool:
        """Returns whether there is anything to replace."""
        return bool(self._parts)

    def finds(self, text: str) -> bool:
        """Returns whether the text has a secret."""
        return any(part in text for part in self._possible(text))

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
        # Each call of `replace` takes time by the length of the text, whatever the part; an expression would not.
        for part in self._possible(text):
            text = text.replace(part, MASK)
        return text

    def _possible(self, text: str) -> list[str]:
        """Returns the parts of which the text has the first characters, or all if they are few, the longest first."""
        if len(self._parts) <= _FEW:
            return self._parts
        starts = {text[at : at + _LEAST_CHARACTERS] for at in range(len(text) - _LEAST_CHARACTERS + 1)}
        found = (part for start in starts & self._by_start.keys() for part in self._by_start[start])
        return sorted(found, key=len, reverse=True)

    def _line(self, line: str) -> str:
        if len(line) >= _LEAST_CHARACTERS and any(line in part for part in self._parts):
            return MASK
        return self._without_begun(self._without_ended(line))

    def _without_begun(self, text: str) -> str:
        """Masks the beginning of a value at the end of the text."""
        starts = [start for part in self._parts if (start := _start_of(part, text)) is not None]
        return f"{text[: min(starts)]}{MASK}" if starts else text

    def _without_ended(self, text: str) -> str:
        """Masks the end of a value at the beginning of the text."""
        ends = [len(text) - start for part in self._parts if (start := _start_of(part[::-1], text[::-1])) is not None]
        return f"{MASK}{text[max(ends) :]}" if ends else text


def _escaped(value: str) -> tuple[str, ...]:
    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]


def _start_of(part: str, text: str) -> int | None:
    """Returns where in `text` the beginning of `part` starts that reaches to the end of the text."""
    start = max(0, len(text) - len(part) + 1)
    for _ in range(_MOST_TRIES):
        start = text.find(part[:_LEAST_PART], start)
        if start < 0:
            return None
        if part.startswith(text[start:]):
            return start
        start += 1
    return start
