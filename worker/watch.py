"""Finds threads that hang: each thread counts its turns, and another one compares the counts."""

from collections.abc import Iterable
import time

SILENT_S = 60.0
"""After so long without a turn, a thread counts as silent."""
LOST_S = 300.0
"""After so long, the attempt that it carries out is given up."""
_LONGEST_STEP_S = 20.0
"""At most so much silence is added from one look to the next: a program that was stopped is not silent."""


class Turns:
    """Counts the turns of one thread. `work` is its name in a sentence, such as `the housekeeping`."""

    def __init__(self, work: str) -> None:
        self.work = work
        self.count = 0

    def note(self) -> None:
        """Counts a turn, or a part of a long one that shows that it goes on."""
        self.count += 1


class Watch:
    """One thread looks. Others may ask."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()
        self._seen: dict[Turns, tuple[int, float]] = {}
        """The count of each at its last turn that was seen, and for how many seconds it has not changed."""

    def look(self, threads: Iterable[Turns]) -> None:
        """Looks at `threads`, and forgets all others."""
        now = time.monotonic()
        step, self._looked_at = min(now - self._looked_at, _LONGEST_STEP_S), now
        seen = self._seen
        self._seen = {turns: _seen(turns, seen.get(turns), step) for turns in threads}

    def silent_s(self, turns: Turns) -> float:
        """Returns for how long the thread has made no turn."""
        return self._seen.get(turns, (0, 0.0))[1]

    def silent(self) -> list[tuple[str, float]]:
        """Returns the names of all that are silent, each with for how long."""
        return [(turns.work, silent_s) for turns, (_, silent_s) in self._seen.items() if silent_s >= SILENT_S]


def _seen(turns: Turns, before: tuple[int, float] | None, step: float) -> tuple[int, float]:
    count = turns.count
    return (count, 0.0) if before is None or before[0] != count else (count, before[1] + step)
