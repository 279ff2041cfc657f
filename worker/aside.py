"""A thread that repeats one step, which may hang: nobody waits for it for longer than it chooses."""

from collections.abc import Callable
from contextlib import nullcontext
import logging
import threading

from torchyard.contract.errors import Unavailable
from worker.outage import level_of
from worker.troubles import Troubles
from worker.watch import Turns

_PAUSE_S = 1.0
"""How often the step looks whether something is due."""

logger = logging.getLogger(__name__)


class Aside:
    """Calls `step` about once a second, and at once when it is asked. `step` gets whether it was asked.

    `troubles`: notes the errors of the step. None: it raises none. `after` is called after each step, once its error is
    noted, and `last` when the thread ends.
    """

    def __init__(
        self,
        turns: Turns,
        step: Callable[[bool], object],
        *,
        troubles: Troubles | None = None,
        after: Callable[[], object] = lambda: None,
        last: Callable[[], object] = lambda: None,
    ) -> None:
        self.turns = turns
        self._step = step
        self._after = after
        self._last = last
        self._troubles = troubles
        self._changed = threading.Condition()
        """Guards the next four attributes. Notified of each change."""
        self._asked = self._done = 0
        """How often it was asked, and how many of these questions a step has followed."""
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread, unless it was started before. Raises RuntimeError if the system has none left."""
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self.turns.work, daemon=True)
                thread.start()
                self._thread = thread

    def stop(self, timeout: float) -> None:
        """Has the thread end after its step. Waits at most `timeout` seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def ask(self, *, wait_s: float = 0.0) -> bool:
        """Has the step begin soon. Returns whether one that began after this call has ended within `wait_s`."""
        with self._changed:
            self._asked += 1
            asked = self._asked
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= asked or self._stopping, timeout=wait_s)

    def _run(self) -> None:
        while not self._stopping:
            with self._changed:
                asked, early = self._asked, self._asked > self._done
            try:
                with nullcontext() if self._troubles is None else self._troubles.noted(self.turns.work):
                    self._step(early)
            except Unavailable as error:
                logger.log(level_of(error), "%s: %s", self.turns.work, error.message)
            self._after()
            self.turns.note()
            with self._changed:
                self._done = asked
                self._changed.notify_all()
                self._changed.wait_for(lambda asked=asked: self._stopping or self._asked > asked, timeout=_PAUSE_S)
        self._last()
