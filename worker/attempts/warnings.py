"""Warnings about what an attempt wrote, for the job's owner."""

import time

from store.facts.output import Batch, NewEvent

_MOST = 100
"""Warnings in one batch."""


def warn(batch: Batch, text: str) -> None:
    """Adds a warning to the batch, unless it has many."""
    if len(batch.events) < _MOST:
        data = {"level": "warning", "text": text}
        batch.events.append(NewEvent("message", data, time.time_ns() // 1000, limited=True))
