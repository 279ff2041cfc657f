"""Commands that nobody waits for, one after the other, in a thread of their own."""

from collections.abc import Callable
import logging
import queue
import threading

from worker.engines.slurm.commands import NoAnswer

_MOST_WAITING = 10_000

logger = logging.getLogger(__name__)


class Errands:
    """Its thread starts with the first errand, and stays until `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        """None ends the thread."""
        self._thread: threading.Thread | None = None

    def do(self, command: Callable[[], object]) -> None:
        """Has the command called soon. One that gets no answer is not repeated: who wants it asks again."""
        if self._waiting.qsize() >= _MOST_WAITING:
            return
        self._waiting.put(command)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="commands of Slurm", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Has the thread end after what it was given by now."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (command := self._waiting.get()) is not None:
            try:
                command()
            except (NoAnswer, OSError) as error:
                logger.warning("a Slurm command did not answer: %s", error)
            except Exception:  # the next ones are called whatever happens
                logger.exception("a Slurm command failed")
