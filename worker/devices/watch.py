"""The devices of this worker as they are now, and why one of them is not offered."""

from collections.abc import Callable
import logging
from pathlib import Path
import shutil
import time

from torchyard.contract.views import DeviceView, StartsView
from worker.attempts.roster import Roster
from worker.devices.quarantine import Quarantine, Use
from worker.engines.base import Engine

LEAST_FREE = 64 << 20
"""Bytes on the disk of the run directories without which no job starts."""

logger = logging.getLogger(__name__)


class DeviceWatch:
    """For the daemon's thread. `name` is the worker's, in words that other users may read."""

    def __init__(
        self, engine: Engine, roster: Roster, *, name: str, runs: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._roster = roster
        self._name = name
        self._runs = runs
        self._quarantine = Quarantine(clock=clock)

    def first_look(self) -> list[DeviceView]:
        """Before it is known which attempts have which: nothing is concluded from what they use."""
        return self._engine.capacity()

    def look(self) -> list[DeviceView]:
        views = self._quarantine.judge(self._engine.capacity(), self._roster.uses())
        views = [_blocked(view, why) if (why := self._left_behind(view)) else view for view in views]
        if (trouble := self.trouble()) is not None:  # told as the devices', so that the other workers and the API know
            views = [_blocked(view, trouble) for view in views]
        return views

    def starts(self) -> StartsView:
        """How jobs on these devices start."""
        return self._engine.starts()

    def note(self, use: Use) -> None:
        """An attempt has ended that had these devices."""
        self._quarantine.note(use)

    def trouble(self) -> str | None:
        """Why this worker takes no jobs for now, if so."""
        if _free_bytes(self._runs) < LEAST_FREE:
            return f"worker {self._name} has no room on its disk"
        return None

    def _left_behind(self, view: DeviceView) -> str | None:
        """Whether an attempt that was rescued may still run on the device."""
        for use in self._roster.abandoned():
            if use.devices is None or view.uuid in use.devices:
                return f"worker {self._name} stops what is left of an attempt that was rescued"
        return None


def _blocked(view: DeviceView, why: str) -> DeviceView:
    return view.model_copy(update={"blocked": why, "returning": False})


def _free_bytes(runs: Path) -> int:
    try:
        there = next(folder for folder in (runs, *runs.parents) if folder.exists())  # it is made with the first run
        return shutil.disk_usage(there).free
    except OSError as error:
        logger.warning("the disk of the run directories does not answer: %s", error)
        return 0
