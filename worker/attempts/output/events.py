"""Reads the event log of an attempt, which its program writes by `torchyard.run`.

Lines that have files are read apart from the others, which do not wait until these files are stored.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
import re
import time
from typing import Any, TypeAlias

from store.worker.records import Batch, MetricPoint, NewEvent
from torchyard.contract.attempts.events import (
    Card,
    CheckpointSaved,
    Message,
    Metric,
    Packages,
    Remeasured,
    Shown,
    parse_line,
)
from torchyard.contract.attempts.events import Progress as ProgressLine
from worker.attempts.output.lines import CHUNK, LineReader, as_text
from worker.attempts.output.warnings import warn

EVENTS = "events.jsonl"
_QUOTED_BYTES = 200
_MIN_INTERVAL_US, _MAX_INTERVAL_US = 500_000, 60_000_000
"""The bounds of the time between two progress events of one epoch."""
_MANY_EVENTS = 5000
"""Beyond these, an attempt's progress becomes an event once in `_MAX_INTERVAL_US` of the worker's clock: what a script
says of its epoch and of the time no longer counts. An honest script has become as rare by then."""
_Event: TypeAlias = Metric | ProgressLine | Card | Message | Packages
FileLine: TypeAlias = CheckpointSaved | Shown | Remeasured
"""A line that has files, or follows one that has."""
_MAY_HAVE_FILES = re.compile(rb'"(checkpoint|media|remeasured)"|\\u')
"""In each such line: JSON has no other way to write these types."""


@dataclass(frozen=True)
class Progress:
    """The first progress line of an attempt, the newest, and the newest that became an event."""

    first: ProgressLine | None = None
    newest: ProgressLine | None = None
    announced: ProgressLine | None = None
    events: int = 0
    """How many lines became an event."""
    announced_at: float = 0.0
    """When the newest of them did, in seconds of the monotonic clock."""

    def should_announce(self) -> bool:
        """Returns whether the newest line becomes an event.

        The older the attempt, the rarer its events: otherwise a month of training would leave millions of them.
        """
        newest, announced = self.newest, self.announced
        if self.events >= _MANY_EVENTS:
            return (time.monotonic() - self.announced_at) * 1e6 >= _MAX_INTERVAL_US
        if announced is None or newest is None or self.first is None or newest.epoch != announced.epoch:
            return True
        age = newest.time - self.first.time
        return newest.time - announced.time >= min(max(age // 500, _MIN_INTERVAL_US), _MAX_INTERVAL_US)

    def with_newest_announced(self) -> "Progress":
        """Returns the progress after its newest line has become an event."""
        return replace(self, announced=self.newest, events=self.events + 1, announced_at=time.monotonic())

    def as_json(self) -> dict[str, Any]:
        """Returns the job's `progress`, with the fraction done and the estimated seconds left."""
        assert self.first is not None
        assert self.newest is not None
        line, total, eta = self.newest, self.newest.total_steps, None
        steps, elapsed_us = line.step - self.first.step, line.time - self.first.time
        if total and steps > 0 and elapsed_us > 0:
            eta = round(elapsed_us / 1e6 / steps * max(total - line.step, 0), 1)
        fraction = min(line.step / total, 1.0) if total else None
        return {
            "step": line.step,
            "total_steps": line.total_steps,
            "epoch": line.epoch,
            "epochs": line.epochs,
            "fraction": fraction,
            "eta_seconds": eta,
        }


class EventReader:
    """Reads the event log below `job`, the part of the run directory that the job may write."""

    def __init__(self, job: Path) -> None:
        self._reader = LineReader(job)
        self._file_reader = LineReader(job)
        self._progress = Progress()
        self._stored_progress = self._progress

    def read(self, batch: Batch, offsets: dict[str, int], *, final: bool) -> None:
        """Adds the next events that have no files to the batch, and moves the offset behind them. Raises OSError."""
        self._progress = self._stored_progress
        offset = offsets.get(EVENTS, 0)
        result = self._reader.read(EVENTS, offset=offset, keep=CHUNK, final=final)
        for text in result.warnings:
            warn(batch, text)
        if result.offset != offset:
            offsets[EVENTS] = result.offset
        for line, cut, _ in result.lines:
            if cut:
                warn(batch, f"a line of {EVENTS} is too long: {as_text(line[:200], cut + len(line) - 200)}")
                continue
            event = _parse_event(line, batch)
            if event is not None and not isinstance(event, FileLine):
                self._add(event, batch)

    def file_lines(self, start: int, *, end: int, final: bool) -> Generator[tuple[FileLine | None, int]]:
        """Yields each line from `start` to `end` that has files, and its offset. Raises OSError.

        None: the end of a line that is far too long was not found yet.
        """
        while start < end:
            result = self._file_reader.read(EVENTS, offset=start, keep=CHUNK, final=final)
            for line, cut, at in result.lines:
                if at < end and not cut and (found := _file_line(line)) is not None:
                    yield found, at
            if result.offset <= start:
                yield None, start
                return
            start = result.offset

    def stored(self) -> None:
        """Notes that what was read last is stored."""
        self._stored_progress = self._progress

    def announce_progress(self, batch: Batch) -> None:
        """Adds the newest progress as an event, unless it is one already."""
        newest = self._progress.newest
        if newest is not None and newest != self._progress.announced:
            batch.events.append(NewEvent("progress", self._progress.as_json(), newest.time))
            self._progress = self._progress.with_newest_announced()

    def _add(self, event: _Event, batch: Batch) -> None:
        match event:
            case Metric():
                batch.points += [MetricPoint(key, event.step, value, event.time) for key, value in event.values.items()]
            case ProgressLine():
                self._add_progress(event, batch)
            case Card():
                batch.card = event.values
            case Packages():
                batch.packages = event.values
            case Message():
                data = {"level": event.level, "text": event.text}
                batch.events.append(NewEvent("message", data, event.time, limited=True))

    def _add_progress(self, event: ProgressLine, batch: Batch) -> None:
        known = self._progress
        self._progress = replace(known, first=known.first or event, newest=event)
        batch.progress = self._progress.as_json()
        if self._progress.should_announce():
            self.announce_progress(batch)


def _file_line(raw: bytes) -> FileLine | None:
    if _MAY_HAVE_FILES.search(raw) is None:
        return None
    try:
        event = parse_line(raw)
    except ValueError:
        return None
    return event if isinstance(event, FileLine) else None


def _parse_event(raw: bytes, batch: Batch) -> _Event | FileLine | None:
    """Returns None, and adds a warning, if the line is not an event."""
    try:
        event = parse_line(raw)
    except ValueError:
        if raw.strip():
            quoted = as_text(raw[:_QUOTED_BYTES], cut=max(0, len(raw) - _QUOTED_BYTES))
            warn(batch, f"a line of {EVENTS} is not a valid event: {quoted}")
        return None
    batch.lag_us = max(batch.lag_us, time.time_ns() // 1000 - event.time)
    return event
