"""One thread does the duties: each at its interval, and all of them after a wake-up."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import logging
import math
import time

from controller.duty import Duty
from store.queue.announcing import WakeupListener
from store.store import Store
from torchyard.contract.errors import NotMigrated, Unavailable

_LONGEST_WAIT_S = 10.0
_POLL_S = 1.0
"""Seconds between two looks while Redis, which wakes this program, or the database does not answer."""
_REST_S = 5.0
"""Seconds for which a duty rests after it has failed. A wake-up does not shorten them."""
_LONGEST_PAUSE_S = 1.0
"""After a pass comes a pause as long as it took, but no longer: each end of a job wakes this program, and SQLite, which
has one writer at a time, lets nobody else write while this one goes on at once."""

logger = logging.getLogger(__name__)


class Controller:
    """`serve` returns after `stop` was called, at the end of the duty that it does at that moment."""

    def __init__(self, store: Store, duties: Sequence[Duty], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._turns = [_Turn(duty) for duty in duties]
        self._clock = clock
        self._stopping = self._waits = False
        self._redis_answers = True

    def stop(self) -> None:
        """Has `serve` return. For a signal handler of the thread that serves: it ends a wait."""
        self._stopping = True
        if self._waits:
            raise _Stopped

    def serve(self) -> None:
        """Works until asked to stop. Raises NotMigrated, and ConfigError if database and blobs are of two services."""
        wakeups = self._store.queue.controller_listener()
        try:
            self._wait_for_database()
            while True:
                began = self._clock()
                more = self._run_due()
                with self._waiting():
                    time.sleep(min(self._clock() - began, _LONGEST_PAUSE_S))
                    if not more:
                        self._wait_for_wakeup(wakeups)
        except _Stopped:
            return
        finally:
            wakeups.close()

    def _wait_for_database(self) -> None:
        message = ""
        while True:
            try:
                self._store.service()
            except NotMigrated:
                raise
            except Unavailable as error:
                if error.message != message:
                    logger.warning("%s; trying again", error.message)
                message = error.message
                with self._waiting():
                    time.sleep(_POLL_S)
            else:
                return

    def _run_due(self) -> bool:
        """Does each duty that is due once. Returns whether one has more to do at once."""
        more = False
        for turn in self._turns:
            if self._stopping:
                raise _Stopped
            now = self._clock()
            if turn.due_at <= now:
                turn.due_at = now + turn.duty.interval_s
                if self._does(turn):
                    turn.due_at, more = now, True
        return more

    def _does(self, turn: "_Turn") -> bool:
        """Does the duty. Returns whether it has more to do. One that fails holds up no other."""
        try:
            more = turn.duty.run()
        except Unavailable as error:
            if error.message != turn.said:
                logger.warning("%s: %s; trying again", turn.name, error.message)
            turn.said = error.message
            turn.due_at = self._clock() + _POLL_S
            return False
        except Exception:
            logger.exception("%s failed; trying again", turn.name)
            turn.due_at = turn.rests_until = self._clock() + max(_REST_S, turn.duty.interval_s)
            return False
        turn.said = ""
        return more

    def _wait_for_wakeup(self, wakeups: WakeupListener) -> None:
        soonest = min((turn.due_at for turn in self._turns), default=math.inf)
        try:
            woken = wakeups.wait(min(max(0.0, soonest - self._clock()), _LONGEST_WAIT_S))
            self._redis_answers = True
        except Unavailable as error:
            if self._redis_answers:
                logger.warning("%s; polling the database instead", error.message)
            self._redis_answers = False
            time.sleep(_POLL_S)
            woken = True
        if woken:
            for turn in self._turns:
                turn.due_at = min(turn.due_at, max(turn.rests_until, self._clock()))

    @contextmanager
    def _waiting(self) -> Generator[None]:
        """Lets `stop` end the block."""
        self._waits = True
        try:
            if self._stopping:
                raise _Stopped
            yield
        finally:
            self._waits = False


@dataclass
class _Turn:
    """A duty, and when it is due."""

    duty: Duty
    due_at: float = 0.0
    rests_until: float = 0.0
    said: str = ""
    """The last error that the log has of it."""

    @property
    def name(self) -> str:
        return type(self.duty).__name__


class _Stopped(BaseException):
    """The program was asked to stop."""
