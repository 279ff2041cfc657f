"""The newest report of a pool, asked again and again by one thread."""

import logging
import threading

from torchyard.contract.cluster.devices import PoolReport
from worker.engines.slurm.commands import Commands, NoAnswer
from worker.engines.slurm.pool import PoolSettings, read_pool, unknown_pool

_EVERY_S = 60.0
_AGAIN_S = 5.0
_FIRST_S = 10.0
"""How long the first call waits for the first answer."""

logger = logging.getLogger(__name__)


class PoolReports:
    """Its thread starts with the first use, and stays until `close`."""

    def __init__(self, commands: Commands, settings: PoolSettings) -> None:
        self._commands = commands
        self._settings = settings
        self._answered = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._newest = unknown_pool(settings, obstacle="Slurm has not described it yet")
        self._thread: threading.Thread | None = None

    def newest(self) -> PoolReport:
        """Returns the newest report. The first call waits a moment for an answer."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pool of Slurm", daemon=True)
                self._thread.start()
        self._answered.wait(_FIRST_S)
        return self._newest

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            answered = self._ask()
            self._answered.set()
            self._closing.wait(_EVERY_S if answered else _AGAIN_S)

    def _ask(self) -> bool:
        try:
            self._newest = read_pool(self._commands, self._settings)
        except Exception as error:  # the thread goes on whatever happens
            if not isinstance(error, NoAnswer):
                logger.exception("cannot read the description of the partition")
            newest, obstacle = self._newest, f"Slurm does not describe the partition: {error}"
            self._newest = PoolReport.from_dict({**newest.to_dict(), "obstacle": obstacle})
            return False
        return True
