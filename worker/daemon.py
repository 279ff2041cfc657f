"""The daemon: one loop that sees the devices, renews the leases, sweeps, and claims; each attempt has its Runner."""

from collections.abc import Callable
import contextlib
import logging
import os
from pathlib import Path
import shutil
import socket
import threading
import time

from store.commands import workers
from store.ids import new_id
from store.queue import Bell
from store.rows import attempts
from store.rows import workers as rows
from store.rows.attempts import LEASE, Claim
from store.store import Store
from torchyard.errors import Unavailable
from torchyard.rundir import Record, read_record, write_record
from torchyard.views import DeviceView
from worker.attempts.runner import Host, Runner
from worker.cleanup import tidy
from worker.cleanup.housekeeper import Housekeeper
from worker.devices.inventory import Inventory
from worker.devices.quarantine import Quarantine
from worker.engines.local import process
from worker.engines.local.strays import kill_strays
from worker.placement.scheduler import Scheduler
from worker.settings import Settings

_BEAT_S = 5.0
_RENEW_S = 10.0
_SWEEP_S = 10.0
_CLAIM_S = _DRAIN_S = 2.0
_TIDY_S = 1.0
_BELL_S = 1.0
_REST = 3
"""How much longer than a pass over the queue is the pause after it."""
_SHUTDOWN_S = 45.0
_LEAVE_S = 10.0
LEAST_FREE = 64 << 20
"""Bytes on the disk of the run directories without which no job starts."""

logger = logging.getLogger(__name__)


class Daemon:
    """One worker. `serve` returns when `leave` or `stop_jobs` was called and what they ask is done."""

    def __init__(
        self, settings: Settings, inventory: Inventory, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._identity = settings.root / "worker.json"
        self.id = _identity(self._identity)
        self.name = socket.gethostname()
        self._inventory = inventory
        self._clock = clock
        self._store = Store.of(settings, program="torchyard-worker")
        self._host = Host(store=self._store, runs=settings.runs, allowed=settings.allowed, slots=len(inventory.devices))
        self._runners: dict[int, Runner] = {}
        self._devices: list[DeviceView] = []
        self._quarantine = Quarantine(clock=clock)
        self._scheduler = Scheduler(
            worker_id=self.id,
            name=self.name,
            store=self._store,
            observe=self._look,
            may_claim=self._may_claim,
            start=self._start,
        )
        self._housekeeper = Housekeeper(settings, self._store, busy=self._in_hand, clock=clock)
        self._ended = threading.Event()
        self._stopping = self._leaving = self._drained = False
        self._answers_since: float | None = None

    def leave(self) -> None:
        """Stop, and let the jobs run under their supervisors. Safe in a signal handler."""
        self._leaving = True

    def stop_jobs(self) -> None:
        """Let the running jobs save and go back to the queue, claim nothing more, stop. Safe in a signal handler."""
        self._stopping = True

    def serve(self) -> None:
        """Works until told to stop."""
        bell = self._store.queue.bell()
        try:
            self._insist(self._register)
            self._loop(bell)
        finally:
            self._finish()
            bell.close()
            self._store.close()

    def _loop(self, bell: Bell) -> None:
        beat, renew, sweep, claim, drain = (
            _Every(seconds, self._clock) for seconds in (_BEAT_S, _RENEW_S, _SWEEP_S, _CLAIM_S, _DRAIN_S)
        )
        deadline: float | None = None
        while not self._leaving:
            duties = ((renew, self._renew), (beat, self._beat), (sweep, self._sweep), (drain, self._look_for_drain))
            for timer, work in duties:
                if timer.due():
                    self._try(work)
            ended = self._reap()
            if self._stopping or self._drained:
                for runner in self._runners.values():
                    runner.preempt(hurry=self._stopping)
            if self._stopping:
                deadline = deadline or self._clock() + _SHUTDOWN_S
                if not self._runners or self._clock() > deadline:
                    return
            elif claim.due(early=ended):
                began = self._clock()
                self._try(self._scheduler.claim)
                # Each submission rings, and a pass over a long queue is long: most of the time belongs to others.
                self._ended.wait(min(_REST * (self._clock() - began), _BELL_S))
            if self._listen(bell):
                claim.hurry()
                drain.hurry()

    def _listen(self, bell: Bell) -> bool:
        """Waits for the bell, or for the end of an attempt; true when there may be something to claim."""
        try:
            rang = bell.wait(0.1 if self._stopping else _BELL_S) if not self._ended.is_set() else False
        except Unavailable as error:
            logger.warning("%s; polling the database instead", error.message)
            self._ended.wait(_BELL_S)
            rang = False
        if rang:
            for runner in self._runners.values():
                runner.wake()
        return rang or self._ended.is_set()

    def _register(self) -> None:
        self._devices = self._inventory.observe(ours=set())
        views = [view.model_dump(mode="json") for view in self._devices]
        adopted = workers.register(self._store, self.id, name=self.name, devices=views)
        kill_strays(self._host.runs, adopted)
        for claim in adopted:
            logger.info("%s: attempt %d is adopted", claim.job_id, claim.number)
            self._start(claim)

    def _look_for_drain(self) -> None:
        with self._store.read() as session:
            drained = rows.drains(session, self.id)
        if drained != self._drained:
            self._drained = drained
            logger.info("this worker %s", "drains: it gives its jobs back" if drained else "takes jobs again")

    def _beat(self) -> None:
        self._look()
        workers.heartbeat(self._store, self.id, devices=[view.model_dump(mode="json") for view in self._devices])
        with contextlib.suppress(OSError):
            os.utime(self._identity)  # a health check needs no database to see that this worker lives

    def _renew(self) -> None:
        if not self._runners:
            return
        ours = workers.renew(self._store, self.id, self._runners)
        for attempt_id, runner in self._runners.items():
            if attempt_id not in ours and not runner.done:
                runner.abandon()

    def _sweep(self) -> None:
        with self._store.read() as session:
            late = attempts.expired(session)
        # A database that was away for everybody must not look like workers that are gone.
        self._answers_since = self._answers_since or self._clock()
        if self._clock() - self._answers_since > LEASE.total_seconds():
            for claim in late:
                if claim.attempt_id not in self._runners:
                    self._rescue(claim)
        if self._store.rebuild_queue():
            self._ended.set()
        end = self._clock() + _TIDY_S
        tidy.remove_runs(self._host.runs, self._store, go_on=lambda: self._clock() < end)
        tidy.remove_blobs(self._store)
        self._housekeeper.nudge()

    def _rescue(self, claim: Claim) -> None:
        if workers.rescue(self._store, claim):
            logger.warning("%s: attempt %d was rescued: its lease had expired", claim.job_id, claim.number)
            self._ended.set()

    def _may_claim(self) -> bool:
        if self._stopping or self._leaving:
            return False
        self._renew()
        return self._trouble() is None

    def _trouble(self) -> str | None:
        """Why this worker takes no jobs for now, if so."""
        if any(runner.abandoned for runner in self._runners.values()):
            # What still runs of it may be on the devices that look free.
            return f"worker {self.name} stops what is left of an attempt that was rescued"
        if _free_bytes(self._host.runs) < LEAST_FREE:
            return f"worker {self.name} has no room on its disk"
        return None

    def _start(self, claim: Claim) -> None:
        runner = Runner(self._host, claim, on_end=self._on_end)
        self._runners[claim.attempt_id] = runner
        runner.start()

    def _on_end(self) -> None:
        """An attempt has ended: its devices are free. Called by its thread, while the loop listens to the bell."""
        self._ended.set()
        self._store.ring()

    def _reap(self) -> bool:
        """Forgets the runners that are done; true when a device or a job may have become free."""
        ended = self._ended.is_set()
        self._ended.clear()
        for attempt_id, runner in list(self._runners.items()):
            if not runner.done:
                continue
            runner.join(_LEAVE_S)  # it may still ring, and nobody else waits for it
            del self._runners[attempt_id]
            self._quarantine.note(runner.use)
        return ended

    def _finish(self) -> None:
        for runner in self._runners.values():
            runner.leave()
        deadline = self._clock() + _LEAVE_S
        for runner in self._runners.values():
            runner.join(max(0.0, deadline - self._clock()))
        self._housekeeper.stop(_LEAVE_S)

    def _in_hand(self) -> set[tuple[str, int]]:
        return {(runner.claim.job_id, runner.claim.number) for runner in list(self._runners.values())}

    def _look(self) -> list[DeviceView]:
        supervisors = [runner.supervisor.pid for runner in self._runners.values() if runner.supervisor is not None]
        views = self._inventory.observe(ours={item.pid for item in process.descendants(*supervisors)})
        views = self._quarantine.judge(views, [runner.use for runner in self._runners.values()])
        trouble = self._trouble()
        if trouble is not None:  # told as the devices', so that the other workers and the API know
            views = [view.model_copy(update={"blocked": trouble, "returning": False}) for view in views]
        self._devices = views
        return self._devices

    def _try(self, work: Callable[[], None]) -> None:
        """One turn of `work`; a database that is away is waited for, turn by turn."""
        try:
            work()
        except Unavailable as error:
            logger.warning("%s", error.message)
            self._answers_since = None

    def _insist(self, work: Callable[[], None]) -> None:
        while not self._leaving and not self._stopping:
            try:
                work()
                return
            except Unavailable as error:
                logger.warning("%s; trying again", error.message)
                self._ended.wait(_BELL_S)


class _Every:
    """Says when it is time again."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = 0.0

    def due(self, *, early: bool = False) -> bool:
        now = self._clock()
        if now < self._next and not early:
            return False
        self._next = now + self._seconds
        return True

    def hurry(self) -> None:
        self._next = 0.0


def _free_bytes(runs: Path) -> int:
    try:
        there = next(folder for folder in (runs, *runs.parents) if folder.exists())  # it is made with the first run
        return shutil.disk_usage(there).free
    except OSError as error:
        logger.warning("the disk of the run directories does not answer: %s", error)
        return 0


def _identity(path: Path) -> str:
    """This worker's id: made once, and kept with the data, so that a restarted daemon finds its jobs again."""
    record = read_record(path, _Identity)
    if record is None:
        record = _Identity(id=new_id("wrk"))
        write_record(path, record)
    return record.id


class _Identity(Record):
    id: str
