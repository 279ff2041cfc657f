"""Reads the event log of an attempt, which its program writes by `torchyard.run`."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
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
_Event: TypeAlias = Metric | ProgressLine | Card | Message | Packages | Remeasured


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
        self._progress = Progress()
        self._stored_progress = self._progress

    def read(
        self, batch: Batch, offsets: dict[str, int], *, final: bool
    ) -> Generator[tuple[CheckpointSaved | Shown, int]]:
        """Adds the next events to the batch, and moves the offset behind them. Raises OSError.

        Yields each line that has files where it stands, and its offset. The caller may stop there.
        """
        self._progress = self._stored_progress
        offset = offsets.get(EVENTS, 0)
        result = self._reader.read(EVENTS, offset=offset, keep=CHUNK, final=final)
        for text in result.warnings:
            warn(batch, text)
        if result.offset != offset:
            offsets[EVENTS] = result.offset
        for line, cut, start in result.lines:
            if cut:
                warn(batch, f"a line of {EVENTS} is too long: {as_text(line[:200], cut + len(line) - 200)}")
                continue
            event = _parse_event(line, batch)
            if isinstance(event, CheckpointSaved | Shown):
                yield event, start
            elif event is not None:
                self._add(event, batch)

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
            case Remeasured():
                batch.remeasured = event
            case Message():
                data = {"level": event.level, "text": event.text}
                batch.events.append(NewEvent("message", data, event.time, limited=True))

    def _add_progress(self, event: ProgressLine, batch: Batch) -> None:
        known = self._progress
        self._progress = replace(known, first=known.first or event, newest=event)
        batch.progress = self._progress.as_json()
        if self._progress.should_announce():
            self.announce_progress(batch)


def _parse_event(raw: bytes, batch: Batch) -> _Event | CheckpointSaved | Shown | None:
    """Returns None, and adds a warning, if the line is not an event."""
    try:
        event = parse_line(raw)
    except ValueError:
        if raw.strip():
            quoted = as_text(raw[:_QUOTED_BYTES], cut=max(0, len(raw) - _QUOTED_BYTES))
            warn(batch, f"a line of {EVENTS} is not an event that this worker knows: {quoted}")
        return None
    batch.lag_us = max(batch.lag_us, time.time_ns() // 1000 - event.time)
    return event
