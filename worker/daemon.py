"""The daemon of one host: its parts put together, and one loop. Each attempt has a thread of its own."""

from collections.abc import Callable
from dataclasses import dataclass
import logging
from pathlib import Path
import socket
import threading
import time

from store.ids import new_id
from store.queue import WakeupListener
from store.store import Store
from torchyard.contract.errors import Unavailable
from torchyard.contract.record import Record
from torchyard.contract.recordfiles import read_record, write_record
from worker.attempts.effects import Host
from worker.attempts.roster import Roster
from worker.cleanup.housekeeper import Housekeeper
from worker.devices.health import Health
from worker.devices.watch import DeviceWatch
from worker.duties import Duties, Every
from worker.engines.base import Engine
from worker.leases import Leases
from worker.placement.scheduler import Scheduler
from worker.settings import Settings

_CLAIM_S = 2.0
_BELL_S = 1.0
_REST = 1
"""How much longer than a pass over the queue is the pause after it: half of the time belongs to others."""
_SHUTDOWN_S = 45.0
_LEAVE_S = 10.0

logger = logging.getLogger(__name__)


class Daemon:
    """One worker. `serve` returns when `leave` or `stop_jobs` was called and what they ask is done."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        *,
        health: Health | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        identity = settings.root.resolve() / "worker.json"
        self.id = _identity(identity)
        self.name = socket.gethostname()
        self._clock = clock
        self._store = Store.of(settings, program="torchyard-worker")
        self._freed = threading.Event()
        """Devices or a job may be free: an attempt has ended."""
        host = Host(self._store, engine, settings.runs, settings.allowed, health or Health(), self._freed)
        self._roster = Roster(host)
        self._devices = DeviceWatch(engine, self._roster, name=self.name, runs=settings.runs, clock=clock)
        self._leases = Leases(self._store, self._roster, worker_id=self.id, clock=clock)
        self._duties = Duties(
            self.id,
            name=self.name,
            identity=identity,
            store=self._store,
            devices=self._devices,
            leases=self._leases,
            housekeeper=Housekeeper(settings, self._store, in_use=self._roster.in_use, clock=clock),
            clock=clock,
        )
        self._scheduler = Scheduler(
            worker_id=self.id,
            name=self.name,
            store=self._store,
        )
        self._stopping = self._leaving = False

    def leave(self) -> None:
        """Stop, and let the jobs run under their supervisors. Safe in a signal handler."""
        self._leaving = True

    def stop_jobs(self) -> None:
        """Let the running jobs save and go back to the queue, claim nothing more, stop. Safe in a signal handler."""
        self._stopping = True

    def serve(self) -> None:
        """Works until told to stop."""
        bell = self._store.queue.listener()
        try:
            self._begin()
            self._loop(bell)
        finally:
            self._roster.detach(_LEAVE_S, clock=self._clock)
            self._duties.stop(_LEAVE_S)
            bell.close()
            self._store.close()

    def _begin(self) -> None:
        """Registers, waiting for the database, and adopts what an earlier daemon has left."""
        while not self._leaving and not self._stopping:
            try:
                claims = self._duties.register()
            except Unavailable as error:
                logger.warning("%s; trying again", error.message)
                self._freed.wait(_BELL_S)
                continue
            self._roster.adopt(claims)
            return

    def _loop(self, bell: WakeupListener) -> None:
        claim = Every(_CLAIM_S, self._clock)
        deadline: float | None = None
        while not self._leaving:
            self._duties.work()
            freed = self._reap()
            if self._stopping or self._duties.drained:
                self._roster.preempt(hurry=self._stopping)
            if self._stopping:
                deadline = deadline or self._clock() + _SHUTDOWN_S
                if not self._roster or self._clock() > deadline:
                    return
            elif claim.due(early=freed):
                self._claim()
            if self._listen(bell):
                claim.hurry()
                self._duties.hurry()

    def _reap(self) -> bool:
        """Forgets the attempts that are closed. True when devices or a job may have become free."""
        freed = self._freed.is_set()
        self._freed.clear()
        for use in self._roster.reap(_LEAVE_S):
            self._devices.note(use)
        return freed

    def _claim(self) -> None:
        began = self._clock()
        claimed = False
        try:
            waiting = self._scheduler.waiting()
            if waiting:
                for claim in self._scheduler.claims(waiting, self._devices.look(), may_claim=self._may_claim):
                    self._roster.start(claim)
                    claimed = True
        except Unavailable as error:
            logger.warning("%s", error.message)
            self._leases.database_was_away()
        if not claimed:
            # Each submission rings, and of many different requests a pass is long.
            self._freed.wait(min(_REST * (self._clock() - began), _BELL_S))

    def _may_claim(self) -> bool:
        if self._stopping or self._leaving or not self._leases.fresh or self._devices.trouble() is not None:
            return False
        return self._leases.look()

    def _listen(self, bell: WakeupListener) -> bool:
        """Waits for the bell, or for the end of an attempt. True when there may be something to claim."""
        try:
            rang = bell.wait(0.1 if self._stopping else _BELL_S) if not self._freed.is_set() else False
        except Unavailable as error:
            logger.warning("%s; polling the database instead", error.message)
            self._freed.wait(_BELL_S)
            self._roster.look()
            rang = False
        if rang:
            self._roster.look()
        return rang or self._freed.is_set()


def _identity(path: Path) -> str:
    """This worker's id: made once, and kept with the data, so that a restarted daemon finds its jobs again."""
    record = read_record(path, _Identity)
    if record is None:
        record = _Identity(id=new_id("wrk"))
        write_record(path, record)
    return record.id


@dataclass(frozen=True, kw_only=True)
class _Identity(Record):
    id: str
