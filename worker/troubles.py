"""Records errors of the daemon's own work. The worker's page, `doctor` and the log show them."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
import logging
import threading

from torchyard.contract.cluster.devices import TroubleReport
from torchyard.contract.errors import Unavailable
from torchyard.contract.wire.text import headline, printable

FAILING = 3
"""So many failures in a row are reported as `failing`, fewer as `failed`."""
_KEPT = timedelta(hours=1)
"""How long a failure is reported after its work has succeeded again."""
_LONGEST = 300
_SILENT = "what it calls does not return: a driver, a disk or a process hangs"

logger = logging.getLogger(__name__)


@dataclass
class _Failures:
    """The newest failures of one work, in a row."""

    since: datetime
    last: datetime
    problem: str
    times: int = 0
    over: bool = False
    """Whether the work has succeeded since."""


class Troubles:
    """Remembers what failed, by the name of the work. Any thread may call it."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._failures: dict[str, _Failures] = {}
        self._silent: list[TroubleReport] = []

    @contextmanager
    def noted(self, work: str) -> Generator[None]:
        """Notes an unexpected error of the block with its traceback, and ends it. Raises Unavailable alone."""
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:
            logger.exception("%s failed; trying again", work)
            self.note_failure(work, error)
        else:
            self.note_success(work)

    def note_failure(self, work: str, error: Exception) -> int:
        """Notes an error, which the caller logs. Returns how often the work has failed in a row."""
        now, text = self._now(), f"{type(error).__name__}: {printable(headline(str(error)))}"[:_LONGEST]
        with self._lock:
            found = self._failures.get(work)
            if found is None or found.over:
                found = self._failures[work] = _Failures(now, now, text)
            found.last, found.problem, found.times = now, text, found.times + 1
            return found.times

    def note_success(self, work: str) -> None:
        found = self._failures.get(work)
        if found is not None and not found.over:
            logger.info("%s works again", work)
            found.over = True

    def note_silent(self, silent: Sequence[tuple[str, float]]) -> None:
        """Notes which threads make no turn, each with for how many seconds. Those of the call before are forgotten."""
        before = {one.work for one in self._silent}
        for work, _ in silent:
            if work not in before:
                logger.error("%s hangs in a call", work)
        now = self._now()
        self._silent = [
            TroubleReport(work=work, state="silent", since=now - timedelta(seconds=seconds), problem=_SILENT)
            for work, seconds in silent
        ]

    def reports(self) -> list[TroubleReport]:
        """Returns what is silent or fails now, and what has failed within the last hour."""
        with self._lock:
            oldest = self._now() - _KEPT
            self._failures = {work: one for work, one in self._failures.items() if not one.over or one.last >= oldest}
            return [*self._silent, *(_report(work, one) for work, one in sorted(self._failures.items()))]


def _report(work: str, found: _Failures) -> TroubleReport:
    failing = found.times >= FAILING and not found.over
    return TroubleReport(
        work=work,
        state="failing" if failing else "failed",
        since=found.since if failing else found.last,
        problem=found.problem,
        times=found.times,
    )
