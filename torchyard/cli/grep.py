"""Prints the lines of a log that a search found, with the lines around them, as grep does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
import sys

from torchyard.cli import output
from torchyard.client import Client
from torchyard.contract.telemetry.views import LogLine, LogMatch
from torchyard.host import terminal

_MATCH = "1;31"
_NUMBER = "32"


@dataclass(frozen=True)
class Nearby:
    """The lines around a line: up to `context` before it, and as many after it, of the same `rank` if one is given."""

    client: Client
    job_id: str
    rank: int | None
    context: int

    def before(self, line: int) -> Sequence[LogLine]:
        return self._lines(before=line)

    def after(self, line: int) -> Sequence[LogLine]:
        return self._lines(after=line)

    def _lines(self, *, before: int | None = None, after: int | None = None) -> Sequence[LogLine]:
        if not self.context:
            return []
        return [*self.client.jobs.logs(self.job_id, rank=self.rank, limit=self.context, before=before, after=after)]


class Place:
    """Shows in a terminal, on one line of stderr, how far a long search is. The next line of output takes its place."""

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, line: int) -> None:
        """Shows that the log is searched up to this line."""
        if sys.stderr.isatty():
            self._write(f"Searched up to line {line:,}")
            self._is_shown = True

    def clear(self) -> None:
        """Takes back what is shown."""
        if self._is_shown:
            self._write("")
            self._is_shown = False

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def print_matches(matches: Iterable[LogMatch], nearby: Nearby, place: Place, *, with_time: bool, as_json: bool) -> bool:
    """Prints each match and the lines around it once, with a line `--` between parts. Returns whether there was one."""
    try:
        return _print(matches, nearby, place, with_time=with_time, as_json=as_json)
    finally:
        place.clear()


def _print(matches: Iterable[LogMatch], nearby: Nearby, place: Place, *, with_time: bool, as_json: bool) -> bool:
    printed = 0
    following: Sequence[LogLine] = []

    def show(line: LogLine) -> None:
        nonlocal printed
        text = line.model_dump_json() if as_json else _text(line, with_rank=nearby.rank is None, with_time=with_time)
        terminal.write(text)
        sys.stdout.flush()
        printed = line.line

    def show_following(*, below: int | None = None) -> None:
        for line in following:
            if line.line > printed and (below is None or line.line < below):
                show(line)

    for match in matches:
        place.clear()
        show_following(below=match.line)
        preceding = [line for line in nearby.before(match.line) if line.line > printed]
        first = preceding[0].line if preceding else match.line
        if nearby.context and printed and first > printed + 1 and not as_json:
            terminal.write("--")
        for line in preceding:
            show(line)
        show(match)
        following = nearby.after(match.line)
    place.clear()
    show_following()
    return printed > 0


def _text(line: LogLine, *, with_rank: bool, with_time: bool) -> str:
    """Formats the line after its number, which a colon follows if the line matches."""
    if isinstance(line, LogMatch):
        number, shown = f"{line.line}:", line.model_copy(update={"text": _marked(line)})
    else:
        number, shown = f"{line.line}-", line
    number = terminal.paint(number, _NUMBER, sys.stdout)
    return f"{number}{output.log_line(shown, with_rank=with_rank, with_time=with_time)}"


def _marked(match: LogMatch) -> str:
    """Returns the text, with the matches coloured in a terminal."""
    parts: list[str] = []
    end = 0
    for start, stop in match.spans:
        parts += [match.text[end:start], terminal.paint(match.text[start:stop], _MATCH, sys.stdout)]
        end = stop
    return "".join([*parts, match.text[end:]])
