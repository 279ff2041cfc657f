"""The progress of an attempt, and which of its progress lines become an event."""

from dataclasses import dataclass, replace
import time
from typing import Any

from torchyard.contract.events import Progress as ProgressLine

_MIN_INTERVAL_US, _MAX_INTERVAL_US = 500_000, 60_000_000
"""The bounds of the time between two progress events of one epoch."""
_MANY_EVENTS = 5000
"""Beyond these, an attempt's progress becomes an event once in `_MAX_INTERVAL_US` of the worker's clock: what a script
says of its epoch and of the time no longer counts. An honest script has become as rare by then."""


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
