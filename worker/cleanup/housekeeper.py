"""Removes what the settings keep no longer, in a thread of its own."""

from collections.abc import Callable, Generator
import logging
import threading
import time

from store.commands import cleanup
from store.rows.trimming import TrimLimits
from store.store import Store
from torchyard.contract.errors import Unavailable
from worker.cleanup import removal
from worker.cleanup.caches import Caches
from worker.cleanup.sweeper import RunDirSweeper
from worker.host.attempt_key import AttemptKey
from worker.sandbox.places import ENVIRONMENTS, UNPACKED, WorkerPlaces
from worker.settings import Settings

_PASS_INTERVAL_S = 60.0
_SWEEP_LIMIT_S = 1.0
_IDLE_FACTOR = 3
"""Idle time after a transaction or the removal of a directory, as a multiple of its duration."""

logger = logging.getLogger(__name__)


class Housekeeper:
    """`in_use` returns whether the run directory of an attempt must not be touched. The thread calls it."""

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
        self._sweeper = RunDirSweeper(
            settings.runs, store.database, keep=settings.keep_runs, keep_bytes=settings.keep_runs_bytes, in_use=in_use
        )
        self._runs = settings.runs
        root = settings.root.absolute()
        homes = WorkerPlaces(settings.root).homes
        self._caches = Caches(homes, root / UNPACKED, root / ENVIRONMENTS, store.database)
        self._bundle_ttl = settings.bundle_ttl
        self._max_caches_bytes = settings.max_caches_bytes
        self._clock = clock
        self._next_pass = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def sweep(self) -> None:
        """Removes what deleted jobs left, for at most a second, and starts a pass if one is due. Raises Unavailable."""
        end = self._clock() + _SWEEP_LIMIT_S
        removal.remove_deleted_runs(self._runs, self._store, may_continue=lambda: self._clock() < end)
        removal.remove_unreferenced_blobs(self._store)
        self.start_pass_if_due()

    def start_pass_if_due(self) -> None:
        """Starts a pass if one is due and none runs. Does not wait for its end."""
        if self._clock() < self._next_pass or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_pass = self._clock() + _PASS_INTERVAL_S
        thread = threading.Thread(target=self._pass, name="housekeeping", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning("housekeeping waits: %s", error)
            return
        self._thread = thread

    def stop(self, timeout: float) -> None:
        """Stops the pass that runs; the next worker repeats it. Waits at most `timeout` seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _pass(self) -> None:
        try:
            began = time.monotonic()
            for _ in self._steps():
                if self._stopping.wait(_IDLE_FACTOR * (time.monotonic() - began)):
                    return
                began = time.monotonic()
        except Unavailable as error:
            logger.warning("%s; housekeeping continues later", error.message)
        except Exception:
            logger.exception("housekeeping failed")

    def _steps(self) -> Generator[None]:
        yield from cleanup.trim_finished_jobs(self._store, self._keep)
        cleanup.delete_old_tombstones(self._store)
        yield
        cleanup.delete_old_samples(self._store)
        yield
        removal.remove_unused_bundles(self._store, age=self._bundle_ttl)
        yield
        yield from cleanup.join_points(self._store)
        yield from self._sweeper.sweep()
        yield from self._caches.remove_oldest(keep_bytes=self._max_caches_bytes)
