"""Asks an attempt to stop, through the stop file of its run directory."""

from datetime import timedelta
import time

from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.engines.base import stronger

OVERDUE_S = 15.0
STUCK_S = 660.0
"""Longer than a supervisor tries to write its report to a full disk."""


class StopRequester:
    """Writes the stop requests of the attempt in `run`."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._deadline = float("inf")

    @property
    def overdue(self) -> bool:
        """Whether a working supervisor would have ended the attempt long ago."""
        return time.monotonic() > self._deadline + OVERDUE_S

    @property
    def stuck(self) -> bool:
        """Whether the supervisor, although it runs, cannot be working any more."""
        return time.monotonic() > self._deadline + STUCK_S

    def request(self, reason: EndReason, *, grace: timedelta) -> None:
        """Writes the request, unless the same was requested before.

        Of two requests, the stronger reason and the shorter grace count. Raises OSError.
        """
        known = read_untrusted(self._run.stop, StopRequest)
        request = StopRequest(reason=reason, grace=grace)
        if known is not None:
            request = StopRequest(reason=stronger(known.reason, reason), grace=min(known.grace, grace))
        self._deadline = min(self._deadline, time.monotonic() + request.grace.total_seconds())
        if request != known:
            write_record(self._run.stop, request)
