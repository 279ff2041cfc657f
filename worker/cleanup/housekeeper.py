"""Removes what is kept no longer, in a thread of its own."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
import logging
from pathlib import Path
import threading
import time

from store.worker.protocol import Folders
from torchyard.contract.cluster.devices import CachesReport
from torchyard.contract.errors import Unavailable
from worker.cleanup import removal
from worker.cleanup.caches import Caches
from worker.cleanup.folders import FolderSizes
from worker.cleanup.sweeper import RunDirSweeper
from worker.host.attempt_key import AttemptKey
from worker.host.datafolders import ENVIRONMENTS, UNPACKED
from worker.outage import level_of
from worker.sandbox.writable import WritableFolders
from worker.service import ClusterDuties
from worker.settings import Retention
from worker.troubles import Troubles
from worker.watch import Turns

_PASS_INTERVAL_S = 60.0
_SWEEP_LIMIT_S = 1.0
_REST_S = 10.0
_IDLE_FACTOR = 3
"""Idle time after a transaction or the removal of a directory, as a multiple of its duration."""

logger = logging.getLogger(__name__)


class Housekeeper:
    """`root`: the data directory. `asked`: says what may be removed there. `duties`: those of the cluster.

    `in_use` returns whether the run directory of an attempt must not be touched. The thread calls it.
    """

    def __init__(
        self,
        root: Path,
        asked: Folders,
        *,
        duties: ClusterDuties,
        retention: Retention,
        in_use: Callable[[AttemptKey], bool],
        troubles: Troubles,
        claiming: AbstractContextManager[object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`claiming`: as of `RunDirSweeper`."""
        self._asked = asked
        self._duties = duties
        self._retention = retention
        self._runs = root / "runs"
        self._removed = ""
        """The deleted job with whose run directories the last sweep ended."""
        self._sweeper = RunDirSweeper(
            self._runs,
            asked,
            keep=retention.runs,
            keep_folders=retention.folders,
            keep_bytes=retention.run_bytes,
            in_use=in_use,
            claiming=claiming,
        )
        self._folders = FolderSizes(self._runs, asked, clock=clock)
        folder = root.absolute()
        self._caches = Caches(WritableFolders(root).homes, folder / UNPACKED, folder / ENVIRONMENTS, asked)
        self._troubles = troubles
        self.turns = Turns("the pass of the housekeeping")
        """Those of the thread that makes a pass; while there is none, it counts as one that makes turns."""
        self._clock = clock
        self._next_pass = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def caches(self) -> CachesReport | None:
        """What this host keeps for the next jobs, as the last pass has measured it. Any thread may ask."""
        return self._caches.measured

    def sweep(self) -> None:
        """Removes what deleted jobs left, for at most a second, and starts a pass if one is due. Raises Unavailable."""
        end = self._clock() + _SWEEP_LIMIT_S
        self._removed = removal.remove_deleted_runs(
            self._runs, self._asked, after=self._removed, may_continue=lambda: self._clock() < end
        )
        self._duties.remove_unreferenced_blobs()
        self.start_pass_if_due()

    def start_pass_if_due(self) -> None:
        """Starts a pass if one is due and none runs. Does not wait for its end."""
        if self._thread is not None and self._thread.is_alive():
            return
        self.turns.note()
        if self._clock() < self._next_pass:
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
            with self._troubles.noted(self.turns.work):
                self._take_steps()
        except Unavailable as error:
            logger.log(level_of(error), "%s; housekeeping continues later", error.message)

    def _take_steps(self) -> None:
        began = time.monotonic()
        for _ in self._steps():
            if self._rests(_IDLE_FACTOR * (time.monotonic() - began)):
                return
            began = time.monotonic()

    def _rests(self, seconds: float) -> bool:
        """Waits for so long, which is no silence. Returns whether the pass is to stop."""
        end = time.monotonic() + seconds
        while not self._stopping.wait(min(_REST_S, max(0.0, end - time.monotonic()))):
            self.turns.note()
            if time.monotonic() >= end:
                return False
        return True

    def _steps(self) -> Generator[None]:
        yield from self._duties.clean()
        yield from self._sweeper.sweep()
        yield from self._folders.measure()
        yield from self._caches.remove_oldest(keep_bytes=self._retention.cache_bytes)
