"""Spaces the checkpoints of an attempt that publishes very many: each is copied and leaves a row for ever."""

import time

_SPACE_S = 60.0


class Spacing:
    """Says which checkpoints are left out. `most`: after how many; None for never."""

    def __init__(self, most: int | None) -> None:
        self.newest: str | None = None
        """The newest that was left out. It is stored at the end of the attempt."""
        self.began = False
        """Whether one was left out."""
        self._most = most
        self._next = 0.0

    def is_over(self, count: int) -> bool:
        """Returns whether an attempt with so many checkpoints has more than are stored at will."""
        return self._most is not None and count >= self._most

    def leaves_out(self, name: str, *, count: int) -> bool:
        """Returns whether a checkpoint is left out, as the last one was stored within a minute."""
        if not self.is_over(count):
            return False
        now = time.monotonic()
        if now >= self._next:
            self._next, self.newest = now + _SPACE_S, None
            return False
        self.newest = name
        return True

    def notice(self) -> str | None:
        """Returns what to tell the owner, when the first is left out."""
        if self.began:
            return None
        self.began = True
        return (
            f"the attempt has published {self._most} checkpoints (TORCHYARD_MAX_CHECKPOINTS of the worker): from now on"
            " one a minute is stored, and the last one"
        )
