"""When that part of a pass is due which starts no job, and which passes that claim leave: why jobs wait, and places."""

QUIET_S = 0.1
_MOST_LEFT_S = 0.5
"""It is done when nothing has started for so long, or since so long passes have left it. Until then, many of the jobs
that wait have started."""


class Rest:
    """Moments are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._first_left_at: float | None = None
        self._last_left_at: float | None = None

    @property
    def left(self) -> bool:
        """Whether passes have left it, and none has done it since."""
        return self._last_left_at is not None

    def may_be_left(self, now: float) -> bool:
        """Returns whether a pass at this moment may leave it, if it claims."""
        return self._first_left_at is None or now - self._first_left_at < _MOST_LEFT_S

    def is_due(self, now: float) -> bool:
        """Returns whether it was left, and nothing has started for a while."""
        return self._last_left_at is not None and now >= self._last_left_at + QUIET_S

    def note_left(self, now: float) -> None:
        self._first_left_at = self._first_left_at or now
        self._last_left_at = now

    def note_done(self) -> None:
        self._first_left_at = self._last_left_at = None
