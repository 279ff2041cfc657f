"""Tells how large the working folders of jobs on this host are."""

from collections.abc import Callable, Generator
from pathlib import Path
import time

from store.worker.protocol import Folders
from torchyard.contract.attempts.rundir import WORK
from worker.host import rundirs, workfolders

_LEAST_S = 60.0
_SHARE = 200
"""Pause until all are measured again, as a multiple of the processor time that it took."""


class FolderSizes:
    """`runs`: has the folders of jobs. `told`: stores their sizes."""

    def __init__(self, runs: Path, told: Folders, *, clock: Callable[[], float]) -> None:
        self._runs = runs
        self._told = told
        self._clock = clock
        self._next = 0.0

    def measure(self) -> Generator[None]:
        """Measures all, if it is time, and stores what has changed. Yields after each folder. Raises Unavailable."""
        if self._clock() < self._next:
            return
        sizes: dict[str, int] = {}
        took = 0.0
        for job_id in rundirs.by_job(self._runs):
            if workfolders.exists(self._runs / job_id):
                began = time.thread_time()
                sizes[job_id] = rundirs.size(self._runs / job_id / WORK, unlock=False)
                took += time.thread_time() - began
                yield
        self._told.store_sizes(sizes)
        self._next = self._clock() + max(_LEAST_S, _SHARE * took)
        yield
