"""How an attempt is asked to stop, once or again, and when it is too late to hope that it does."""

from datetime import timedelta
import time

from torchyard.contract.job import EndReason
from torchyard.contract.recordfiles import write_record
from torchyard.contract.records import StopRequest
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_untrusted

_OVERDUE_S = 15.0
_WEIGHT = {EndReason.PREEMPTED: 0, EndReason.PAUSED: 1, EndReason.CANCELLED: 3}
_OTHER = 2  # the supervisor's own, such as the time limit


class Stops:
    """What is asked of the attempt in `run`, through its stop file."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._due = float("inf")

    @property
    def overdue(self) -> bool:
        """Whether a supervisor that works would have ended the attempt long ago."""
        return time.monotonic() > self._due + _OVERDUE_S

    def ask(self, reason: EndReason, *, grace: timedelta) -> None:
        """Writes it, or nothing where the same was asked before. Of two requests, the weightier reason and the shorter
        grace count. Raises OSError."""
        known = read_untrusted(self._run.stop, StopRequest)
        request = StopRequest(reason=reason, grace=grace)
        if known is not None:
            reason = max(known.reason, reason, key=lambda item: _WEIGHT.get(item, _OTHER))
            request = StopRequest(reason=reason, grace=min(known.grace, grace))
        self._due = min(self._due, time.monotonic() + request.grace.total_seconds())
        if request != known:
            write_record(self._run.stop, request)
