"""How often an attempt is polled: continuously while it starts, and ever more rarely while nothing changes.

The end of the attempt does not wait for the next poll: the engine reports it.
"""

import time

SHORTEST_S = 0.02
_LONGEST_WHILE_WRITING_S = 0.25
"""While a program prints all the time, each poll costs a transaction."""
_LONGEST_S = 0.5
BURST_S = 60.0
"""Seconds of the processor that an attempt may take at once."""
_SHARE = 0.1
"""The part of a processor that it may take in the long run."""


def pause_s(*, since_change: float, since_output: float) -> float:
    """Returns the seconds until the next poll.

    `since_change`: seconds since the attempt started, or since all its ranks came up. `since_output`: seconds since it
    last wrote something.
    """
    while_writing = min(max(since_change / 20, SHORTEST_S), _LONGEST_WHILE_WRITING_S)
    return min(max(while_writing, since_output / 8), _LONGEST_S)


class Pace:
    """Remembers when an attempt last changed and last wrote something."""

    def __init__(self) -> None:
        self._changed_at = self._output_at = time.monotonic()

    def state_changed(self) -> None:
        """The attempt was started, or all its ranks have come up."""
        self._changed_at = time.monotonic()

    def output_stored(self) -> None:
        self._output_at = time.monotonic()

    def pause_s(self) -> float:
        now = time.monotonic()
        return pause_s(since_change=now - self._changed_at, since_output=now - self._output_at)


class Share:
    """Meters the processor's time that one attempt takes of its worker, which has others."""

    def __init__(self) -> None:
        self._left_s = BURST_S
        self._refilled_at = time.monotonic()

    @property
    def used_up(self) -> bool:
        return self._left_s <= 0

    def take(self, seconds: float) -> None:
        """Counts what a turn took."""
        now = time.monotonic()
        self._left_s = min(self._left_s + (now - self._refilled_at) * _SHARE, BURST_S) - seconds
        self._refilled_at = now
