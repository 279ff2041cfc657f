"""Says which unfinished lines of an attempt are shown to who watches it: the newest text of each, once a second."""

from collections.abc import Mapping
import time
from typing import TypeAlias

Texts: TypeAlias = Mapping[tuple[int | None, str], str]
"""By rank and stream. Empty: the line has ended."""

_SPACE_S = 1.0
_AGAIN_S = 10.0
"""Seconds after which an unchanged text is sent again, for readers that connected later."""


class Showing:
    """The lines of one attempt."""

    def __init__(self) -> None:
        self._shown: dict[tuple[int | None, str], str] = {}
        self._next = self._all_at = 0.0

    def due(self, texts: Texts, *, final: bool = False) -> Texts:
        """Returns what to send now. `texts`: the lines as they are. `final`: the attempt has ended, and they too."""
        now = time.monotonic()
        if now < self._next and not final:
            return {}
        shown = {} if final else {key: text for key, text in texts.items() if text}
        again = now >= self._all_at
        due = {key: text for key, text in shown.items() if again or self._shown.get(key) != text}
        due |= {key: "" for key in self._shown if key not in shown}
        self._shown = shown
        if due:
            self._next = now + _SPACE_S
        if again:
            self._all_at = now + _AGAIN_S
        return due
