"""What a worker does beside its jobs: it removes what is to be kept no longer, in a thread, at its leisure."""

from collections.abc import Callable, Generator
import logging
import threading
import time

from store.commands import cleanup
from store.rows.trimming import TrimLimits
from store.store import Store
from torchyard.contract.errors import Unavailable
from worker.cleanup import tidy
from worker.cleanup.rundirs import RunDirs
from worker.engines.base import AttemptKey
from worker.settings import Settings

_EVERY_S = 60.0
_TIDY_S = 1.0
_REST = 3
"""How much longer than a transaction, or the removal of a directory, is the pause after it."""

logger = logging.getLogger(__name__)


class Housekeeper:
    """`in_use` answers whether the run directory of an attempt may not be touched. It is asked in the thread."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        in_use: Callable[[AttemptKey], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep = TrimLimits(
            logs=settings.keep_logs,
            log_bytes=settings.keep_logs_bytes,
            events=settings.keep_events,
            event_bytes=settings.keep_events_bytes,
        )
        self._store = store
        self._run_dirs = RunDirs(
            settings.runs, store.database, keep=settings.keep_runs, keep_bytes=settings.keep_runs_bytes, in_use=in_use
        )
        self._runs = settings.runs
        self._clock = clock
        self._next = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def sweep(self) -> None:
        """Removes what deleted jobs left, for at most a second, and begins a pass. Raises Unavailable."""
        end = self._clock() + _TIDY_S
        tidy.remove_runs(self._runs, self._store, go_on=lambda: self._clock() < end)
        tidy.remove_blobs(self._store)
        self.nudge()

    def nudge(self) -> None:
        """Begins a pass if one is due and none is under way. Does not wait for it."""
        if self._clock() < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = self._clock() + _EVERY_S
        self._thread = threading.Thread(target=self._pass, name="housekeeping", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Breaks off the pass that is under way; the next worker makes up for it. Waits at most `timeout` seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _pass(self) -> None:
        try:
            began = time.monotonic()
            for _ in self._steps():
                if self._stopping.wait(_REST * (time.monotonic() - began)):
                    return
                began = time.monotonic()
        except Unavailable as error:
            logger.warning("%s; housekeeping goes on later", error.message)
        except Exception:
            logger.exception("housekeeping was broken off")

    def _steps(self) -> Generator[None]:
        yield from cleanup.trim_finished_jobs(self._store, self._keep)
        cleanup.delete_old_tombstones(self._store)
        yield
        yield from self._run_dirs.sweep()
