"""Warnings about what an attempt wrote, for the job's owner."""

from datetime import datetime
import time

from store.worker.records import Batch, NewEvent

_MOST = 100
"""Warnings in one batch."""


def warn(batch: Batch, text: str, *, until: datetime | None = None) -> None:
    """Adds a warning to the batch, unless it has many.

    `until`: the time in its text, for who shows it in their zone.
    """
    if len(batch.events) < _MOST:
        data = {"level": "warning", "text": text} | ({} if until is None else {"until": until.isoformat()})
        batch.events.append(NewEvent("message", data, time.time_ns() // 1000, limited=True))
