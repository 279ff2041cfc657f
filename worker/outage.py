"""What the log tells while something that a worker asks does not answer: a line at first, and one when it is over."""

from collections.abc import Callable
import logging
import threading
import time

from torchyard.contract.errors import TorchyardError, Unavailable

logger = logging.getLogger(__name__)


class KnownOutage(Unavailable):
    """Of this the log tells already."""


def level_of(error: TorchyardError) -> int:
    """Returns at which level it is logged what fails by this error."""
    return logging.DEBUG if isinstance(error, KnownOutage) else logging.WARNING


class Outage:
    """`meanwhile`: what the worker does, says the log. `over`: how its line of the end begins. Threads may share it."""

    def __init__(self, *, meanwhile: str, over: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._meanwhile = meanwhile
        self._over = over
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether it has begun, and has not ended."""
        return self._since is not None

    def note(self, error: Unavailable) -> KnownOutage:
        """Notes that a try failed. Returns the error to raise."""
        if isinstance(error, KnownOutage):
            return error
        with self._lock:
            if self._since is None:
                self._since = self._clock()
                logger.warning("%s; %s", error.message, self._meanwhile)
        return KnownOutage(error.message)

    def end(self) -> None:
        """Notes that a try succeeded."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            logger.info("%s, after %.0f s", self._over, self._clock() - since)
