"""Observes the devices and the disk in a thread of its own, because a driver or a disk may hang.

Other threads read the newest observation, or ask for a new one and wait for at most two seconds.
"""

from collections import deque
from collections.abc import Callable
import contextlib
from dataclasses import dataclass, replace
import os
from pathlib import Path
import time

from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from worker.aside import Aside
from worker.devices.quarantine import DeviceUse
from worker.duties import Interval
from worker.monitor import DeviceMonitor
from worker.troubles import Troubles
from worker.watch import Turns

_EVERY_S = 5.0
_WAIT_S = 2.0
"""How long a pass over the queue waits for a new observation of the devices."""
_FIRST_WAIT_S = 20.0
STALE_S = 30.0
"""An older observation does not tell which devices are free."""
_NOT_SEEN_YET = "its devices were not seen yet"


@dataclass(frozen=True)
class Seen:
    """One observation."""

    devices: list[DeviceReport]
    starts: StartsReport
    obstacle: str | None
    """Why this worker takes no jobs for now, or None."""
    at: float


class Observation:
    """Any thread may call it. `looked` is called after each observation that is reported.

    `identity`: the file whose modification time tells a health check that this worker is alive.
    """

    def __init__(
        self,
        monitor: DeviceMonitor,
        *,
        identity: Path,
        troubles: Troubles,
        looked: Callable[[], object],
        clock: Callable[[], float],
    ) -> None:
        self._monitor = monitor
        self._identity = identity
        self._looked = looked
        self._troubles = troubles
        self._interval = Interval(_EVERY_S, clock)
        self._uses: deque[DeviceUse] = deque()
        """Of attempts that have ended, for the next look."""
        self._adopted = False
        self._reported: Seen | None = None
        """The last look for a report."""
        self._newest: Seen | None = None
        self._failed = self._has_news = False
        self._hung_after: Seen | None = None
        """The newest look when one did not end in time: until there is a newer one, nobody waits again."""
        self.aside = Aside(Turns("the observation of the devices"), self._look, troubles=troubles, after=self._tell)

    def adopted(self) -> None:
        """Notes that the attempts are known: from now on a device that none of them uses is free."""
        self._adopted = True

    def note_use(self, use: DeviceUse) -> None:
        """Has the next look know that an attempt with these devices has ended."""
        self._uses.append(use)

    def first(self) -> list[DeviceReport]:
        """Returns the devices before the adoption. Waits for a while; returns none if they cannot be seen."""
        self.aside.start()
        self.aside.ask(wait_s=_FIRST_WAIT_S)
        return [] if self._newest is None else self._newest.devices

    def look_now(self) -> list[DeviceReport] | None:
        """Returns the devices as they are now, or None if no new look ends within a moment."""
        before = self._newest
        hangs = before is not None and before is self._hung_after
        if not self.aside.ask(wait_s=0.0 if hangs else _WAIT_S):
            self._hung_after = before
            return None
        return None if self._failed or self._newest is None else self._newest.devices

    def known(self) -> list[DeviceReport]:
        """Returns the devices as they were seen last."""
        return [] if self._newest is None else self._newest.devices

    def is_stale(self) -> bool:
        """Returns whether the devices were not seen for a while."""
        return self._newest is not None and time.monotonic() - self._newest.at > STALE_S

    @property
    def obstacle(self) -> str | None:
        """Why this worker takes no jobs for now, or None."""
        if self._newest is None:
            return f"worker {self._monitor.name}: {_NOT_SEEN_YET}"
        return self._unseen_words() if self._failed or self.is_stale() else self._newest.obstacle

    def report(self) -> tuple[list[DeviceReport], StartsReport]:
        """Returns what to tell of the devices. None is offered while they cannot be seen."""
        seen = self._reported or self._newest
        if seen is None:
            return [], StartsReport(mode="cold", why=_NOT_SEEN_YET)
        if not self._failed and not self.is_stale():
            return seen.devices, seen.starts
        return [_unseen(view, self._unseen_words()) for view in seen.devices], seen.starts

    def _unseen_words(self) -> str:
        return f"worker {self._monitor.name} cannot see its devices: its page says why"

    def _look(self, early: bool) -> None:
        due = self._interval.due()
        if not early and not due:
            return
        try:
            self._take(whole=due)
            self._failed = False
        except BaseException:
            self._failed = True
            raise
        finally:
            if due:
                self._has_news = True
                with contextlib.suppress(OSError):
                    os.utime(self._identity)
        if due:
            with self._troubles.noted("the look for memory of one rank on the GPU of another"):
                self._monitor.look_for_stray_memory()

    def _tell(self) -> None:
        if self._has_news:
            self._has_news = False
            self._looked()

    def _take(self, *, whole: bool) -> None:
        while self._uses:
            self._monitor.note_use(self._uses[0])
            self._uses.popleft()
        if not self._adopted:
            devices = self._monitor.observe_before_adoption()
        else:
            devices = self._monitor.report() if whole else self._monitor.observe()
        seen = Seen(devices, self._monitor.starts(), self._monitor.obstacle(), time.monotonic())
        self._newest = seen
        if whole:
            self._reported = seen


def _unseen(view: DeviceReport, reason: str) -> DeviceReport:
    unknown = replace(view, memory_used_bytes=None, utilization=None, power_watts=None, processes=[])
    return replace(unknown, blocked=reason, returning=False)
