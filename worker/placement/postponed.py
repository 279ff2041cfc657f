"""Decides when a worker stores why jobs wait, and keeps places for them. A pass that starts jobs may postpone this."""

QUIET_S = 0.1
"""What was postponed is due when no job has started for so long."""
_LONGEST_S = 0.5
"""No pass postpones it any further after so long. Many of the waiting jobs have started by then."""


class Postponed:
    """Whether passes have postponed this work. Times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._last_at: float | None = None

    @property
    def pending(self) -> bool:
        """Whether a pass has postponed it, and none has done it since."""
        return self._last_at is not None

    def may_postpone(self, now: float) -> bool:
        """Returns whether a pass that begins now may postpone it if it starts jobs."""
        return self._first_at is None or now - self._first_at < _LONGEST_S

    def is_due(self, now: float) -> bool:
        """Returns whether it is pending, and no job has started for `QUIET_S`."""
        return self._last_at is not None and now >= self._last_at + QUIET_S

    def note_postponed(self, now: float) -> None:
        self._first_at = now if self._first_at is None else self._first_at
        self._last_at = now

    def note_done(self) -> None:
        self._first_at = self._last_at = None
