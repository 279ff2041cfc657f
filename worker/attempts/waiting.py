"""Tells a job's owner why an attempt that a cluster has taken does not run yet, in the cluster's own words."""

from datetime import UTC, datetime
import time

from torchyard.contract.states import WAITING_IN_SLURM, Reason
from torchyard.contract.wire.text import headline, printable
from worker.attempts.records import AttemptRecords
from worker.engines.base import Waiting

_MINUTE = 60_000_000
_LATEST = 4_102_444_800_000_000
"""The year 2100: what a cluster expects later is not worth a word."""
_LONGEST = 300
_AGAIN_S = 30.0
"""So often at most, what is reported is corrected if only the expected start has changed."""


class WaitingReasons:
    """The reasons of one attempt. Writes one only when it changes."""

    def __init__(self, records: AttemptRecords, *, number: int) -> None:
        self._records = records
        self._number = number
        self._reported: Waiting | None = None
        self._next = 0.0

    def show(self, waiting: Waiting) -> None:
        """Raises what `AttemptRecords.set_reason` raises."""
        minute = waiting.eta // _MINUTE * _MINUTE if waiting.eta is not None and 0 < waiting.eta < _LATEST else None
        shown = Waiting(
            printable(headline(waiting.reason))[:_LONGEST], minute if waiting.queued else None, queued=waiting.queued
        )
        only_eta = self._reported is not None and (shown.reason, shown.queued) == (
            self._reported.reason,
            self._reported.queued,
        )
        if shown == self._reported or (only_eta and time.monotonic() < self._next):
            return
        self._records.set_reason(self._reason(shown))
        self._reported, self._next = shown, time.monotonic() + _AGAIN_S

    def _reason(self, waiting: Waiting) -> Reason:
        if not waiting.queued:
            return Reason("starting", f"attempt {self._number}: {waiting.reason}")
        expected = "" if waiting.eta is None else f"; expected to start {_moment(waiting.eta)}"
        why = f": {waiting.reason}" if waiting.reason else ""
        return Reason(WAITING_IN_SLURM, f"waits in Slurm{why}{expected}")


def _moment(eta: int) -> str:
    at = datetime.fromtimestamp(eta / 1_000_000, UTC)
    day = "" if at.date() == datetime.now(UTC).date() else f"on {at:%Y-%m-%d} "
    return f"{day}at {at:%H:%M} UTC"
