"""How long to wait before a failed request is sent again."""

import time

from torchyard.contract.errors import TorchyardError

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Backoff:
    """Gives pauses, each twice as long as the last, until `seconds` have passed since it was made."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE_S

    def next_pause(self, error: TorchyardError) -> float:
        """Returns the seconds to wait before the next try, not fewer than `error` asks for.

        Raises `error` if that is after the deadline.
        """
        pause = max(self._pause, error.retry_after or 0)
        if time.monotonic() + pause > self._deadline:
            raise error
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return pause
