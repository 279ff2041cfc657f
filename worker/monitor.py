"""Observes the devices of this worker, and says why one of them is not offered."""

from collections.abc import Callable
from dataclasses import replace
import logging
from pathlib import Path
import shutil
import time

from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.host.failpoints import failpoint
from worker.attempts.runners import AttemptRunners
from worker.devices.quarantine import DeviceUse, Quarantine
from worker.engines.base import Engine
from worker.host.attempt_key import AttemptKey
from worker.host.capacity import Capacity

MIN_FREE_BYTES = 64 << 20
"""No job starts if the disk of the run directories has fewer free bytes."""

logger = logging.getLogger(__name__)


class DeviceMonitor:
    """Only the thread of the observation may call it, but for `share_cpus`.

    `capacity`: what jobs may request of this host. None: they run on others.
    """

    def __init__(
        self,
        engine: Engine,
        runners: AttemptRunners,
        *,
        name: str,
        runs: Path,
        capacity: Capacity | None = Capacity(),  # noqa: B008 it is frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        """The worker's name as other users may read it."""
        self._engine = engine
        self._runners = runners
        self._sharing = (0, 1)
        """The index among the workers that share the host's CPUs, and their number."""
        self._runs = runs
        self._capacity = capacity
        self._quarantine = Quarantine(clock=clock)

    def observe_before_adoption(self) -> list[DeviceReport]:
        """Returns the devices before it is known which attempts use them, so without quarantine."""
        return self._engine.capacity()

    def observe(self) -> list[DeviceReport]:
        views = self._quarantine.judge(self._offered(), self._runners.device_uses())
        views = [_blocked(view, reason) if (reason := self._still_running(view)) else view for view in views]
        if (reason := self.obstacle()) is not None:  # shown on each device, so that other workers and the API know it
            views = [_blocked(view, reason) for view in views]
        return views

    def report(self) -> list[DeviceReport]:
        """Returns the devices as `observe` does, and for CPU slots what the jobs on them have used since this call."""
        usage = self._engine.usage()
        shares = {
            uuid: usage.get(AttemptKey(use.job_id, use.number))
            for use in self._runners.device_uses()
            for uuid in use.devices or ()
        }
        return [
            replace(view, utilization=shares.get(view.uuid)) if view.kind == "cpu" else view for view in self.observe()
        ]

    def look_for_stray_memory(self) -> None:
        """Has each attempt learn what its ranks hold on each other's devices."""
        self._runners.look_for_stray_memory()

    def share_cpus(self, *, index: int, workers: int) -> None:
        """Offers from now on each CPU slot whose index is `index` modulo `workers`, and those that jobs still hold."""
        if workers != self._sharing[1]:
            logger.info("%s workers of this service share the CPUs of this host", workers)
        self._sharing = (index, workers)

    def starts(self) -> StartsReport:
        """Returns how jobs on these devices start, and what of the host they may use together."""
        starts = replace(
            self._engine.starts(), environments=self._runners.environments(), folders=self._runners.folders()
        )
        if self._capacity is None:
            return starts
        try:
            workers = self._sharing[1]
            cpus, memory_gb = self._capacity.cpus_of(workers), self._capacity.memory_gb_of(workers)
        except (OSError, ValueError) as error:
            logger.warning("cannot read the CPUs and the memory of this host: %s", error)
            return starts
        return replace(starts, cpus=cpus, memory_gb=memory_gb)

    def note_use(self, use: DeviceUse) -> None:
        """Remembers that an attempt with these devices has ended."""
        self._quarantine.note_use(use)

    def obstacle(self) -> str | None:
        """Returns why this worker takes no jobs for now, or None."""
        if _free_bytes(self._runs) < MIN_FREE_BYTES:
            return f"worker {self.name} has no free disk space"
        return None

    def _offered(self) -> list[DeviceReport]:
        index, workers = self._sharing
        views, uses = self._engine.capacity(), self._runners.device_uses()
        if workers == 1 or any(use.devices is None for use in uses):
            return views
        held = {uuid for use in uses for uuid in use.devices or ()}
        return [view for view in views if view.kind != "cpu" or view.index % workers == index or view.uuid in held]

    def _still_running(self, view: DeviceReport) -> str | None:
        """Returns a reason if an attempt that was rescued may still run on the device."""
        for use in self._runners.abandoned_uses():
            if use.devices is None or view.uuid in use.devices:
                return f"worker {self.name} is stopping the processes of an attempt that was rescued"
        return None


def _blocked(view: DeviceReport, reason: str) -> DeviceReport:
    return replace(view, blocked=reason, returning=False)


def _free_bytes(runs: Path) -> int:
    failpoint("disk.space")
    try:
        existing = next(folder for folder in (runs, *runs.parents) if folder.exists())  # the first run makes `runs`
        return shutil.disk_usage(existing).free
    except OSError as error:
        logger.warning("cannot read the free space for run directories: %s", error)
        return 0
