"""Limits how often something is done."""


class Throttle:
    """Lets something be done once in `seconds`. The caller gives the time, in seconds of any one clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.done_at = 0.0

    @property
    def next_at(self) -> float:
        """The time from which it may be done again."""
        return self.done_at + self._seconds

    def begin(self, now: float) -> bool:
        """Returns whether it may be done now. If so, it counts as done."""
        if now < self.next_at:
            return False
        self.done_at = now
        return True
