"""Spaces the checkpoints of an attempt that publishes very many: each is copied and leaves a row for ever."""

import time

_SPACE_S = 60.0
_DESCRIPTION = 1 << 12
"""Bytes of manifests that count as one checkpoint."""
_LONG_DESCRIPTION = 1 << 14
"""Bytes of a manifest. After one of twice as many the next checkpoint may come after two minutes, and so on."""


class Spacing:
    """Says which checkpoints are left out. `most`: after how many; None for never."""

    def __init__(self, most: int | None) -> None:
        self.newest: str | None = None
        """The newest that was left out. It is stored at the end of the attempt."""
        self.began = False
        """Whether one was left out."""
        self._most = most
        self._next = 0.0
        self._described = 0

    def is_over(self, count: int) -> bool:
        """Returns whether an attempt with so many checkpoints has more than are stored at will."""
        return self._most is not None and max(count, self._described // _DESCRIPTION) >= self._most

    def leaves_out(self, name: str, *, count: int) -> bool:
        """Returns whether a checkpoint is left out, as the last one was stored within a minute."""
        if not self.is_over(count):
            return False
        if time.monotonic() >= self._next:
            self.newest = None
            self._wait(1)  # also if it turns out to be none
            return False
        self.newest = name
        return True

    def begin(self, described: int) -> None:
        """Counts a checkpoint that is copied now. `described`: the bytes of its manifest, which its row has."""
        self._described += described
        self._wait(max(1, described // _LONG_DESCRIPTION))

    def notice(self) -> str | None:
        """Returns what to tell the owner, when the first is left out."""
        if self.began:
            return None
        self.began = True
        return (
            f"the attempt has published {self._most} checkpoints (TORCHYARD_MAX_CHECKPOINTS of the worker): from now on"
            " one a minute is stored, and the last one"
        )

    def _wait(self, spaces: int) -> None:
        self._next = max(self._next, time.monotonic() + spaces * _SPACE_S)
