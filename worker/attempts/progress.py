"""How far an attempt is, and which of its lines that say so are worth an event."""

from dataclasses import dataclass
from typing import Any

from torchyard.contract.events import Progress as Line

_PAUSE_US = (500_000, 60_000_000)
"""The least and the most time between two events of progress."""


@dataclass(frozen=True)
class Progress:
    """How far the attempt is: the first line that said so, the newest, and the newest that became an event."""

    first: Line | None = None
    newest: Line | None = None
    told: Line | None = None

    def is_news(self) -> bool:
        """Whether the newest is worth an event: the older the attempt, the fewer, or a month of training would leave
        millions of them."""
        if self.told is None or self.newest is None or self.first is None or self.newest.epoch != self.told.epoch:
            return True
        age = self.newest.time - self.first.time
        return self.newest.time - self.told.time >= min(max(age // 500, _PAUSE_US[0]), _PAUSE_US[1])

    def shown(self) -> dict[str, Any]:
        assert self.first is not None
        assert self.newest is not None
        event, total, eta = self.newest, self.newest.total_steps, None
        steps, took = event.step - self.first.step, event.time - self.first.time
        if total and steps > 0 and took > 0:
            eta = round(took / 1e6 / steps * max(total - event.step, 0), 1)
        fraction = min(event.step / total, 1.0) if total else None
        return {
            "step": event.step,
            "total_steps": event.total_steps,
            "epoch": event.epoch,
            "epochs": event.epochs,
            "fraction": fraction,
            "eta_seconds": eta,
        }
