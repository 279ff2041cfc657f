"""How many bytes of event files are read: so many in a second, and once more when the attempt has ended."""

import time

BYTES_PER_SECOND = 1 << 19
FINAL_BYTES = 1 << 26
"""Bytes that are read after the attempt has ended."""


class Budget:
    """The bytes that may be read now. They grow with time, up to what one second gives."""

    def __init__(self) -> None:
        self.left = float(BYTES_PER_SECOND)
        """Below 0 after a read of more than was left."""
        self._refilled_at = time.monotonic()
        self._final = False

    def refill(self, *, final: bool) -> None:
        """Adds what the time since the last call gives. `final`: sets what is left after the end, once."""
        now = time.monotonic()
        if not final:
            self.left = min(self.left + (now - self._refilled_at) * BYTES_PER_SECOND, BYTES_PER_SECOND)
        elif not self._final:
            self.left = FINAL_BYTES
        self._refilled_at, self._final = now, final
