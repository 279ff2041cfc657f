"""The daemon: one loop that sees the devices, renews the leases, sweeps, and claims; each attempt has its Runner."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
import contextlib
import logging
import os
from pathlib import Path
import socket
import threading
import time

from pydantic import ValidationError

from store import attempts, jobs, workers
from store.attempts import LEASE, Claim
from store.blobs import Blobs
from store.database import Database
from store.ids import new_id
from store.jobs import Reason, Startable
from store.queue import Bell, Queue
from store.settings import Settings
from store.tables import Worker
from torchyard.errors import NotFound, Unavailable
from torchyard.rundir import Record, read_record, write_record
from torchyard.spec import Resources
from torchyard.views import DeviceView, HeldDevice
from worker import process, schedule, tidy
from worker.devices import Inventory
from worker.runner import Host, Runner, kill_strays

_BEAT_S = 5.0
_RENEW_S = 10.0
_SWEEP_S = 10.0
_CLAIM_S = 2.0
_TIDY_S = 1.0
_BELL_S = 1.0
_REST = 3
"""How much longer than a pass over the queue is the pause after it."""
_LOOKED_AT = 10_000
_SHUTDOWN_S = 45.0
_LEAVE_S = 10.0

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
        self._database = Database(settings.database, program="torchyard-worker")
        self._queue = Queue(settings.redis)
        self._host = Host(
            database=self._database,
            blobs=Blobs(settings.blobs),
            runs=settings.runs,
            allowed=settings.allowed,
            slots=len(inventory.devices),
            announce=self._queue.announce,
        )
        self._runners: dict[int, Runner] = {}
        self._devices: list[DeviceView] = []
        self._ended = threading.Event()
        self._draining = self._leaving = False
        self._answers_since: float | None = None

    def leave(self) -> None:
        """Stop, and let the jobs run under their supervisors. Safe in a signal handler."""
        self._leaving = True

    def stop_jobs(self) -> None:
        """Let the running jobs save and go back to the queue, claim nothing more, stop. Safe in a signal handler."""
        self._draining = True

    def serve(self) -> None:
        """Works until told to stop."""
        bell = self._queue.bell()
        try:
            self._insist(self._register)
            self._loop(bell)
        finally:
            self._finish()
            bell.close()
            self._queue.close()
            self._database.close()

    def _loop(self, bell: Bell) -> None:
        beat, renew, sweep, claim = (
            _Every(seconds, self._clock) for seconds in (_BEAT_S, _RENEW_S, _SWEEP_S, _CLAIM_S)
        )
        deadline: float | None = None
        while not self._leaving:
            for timer, work in ((renew, self._renew), (beat, self._beat), (sweep, self._sweep)):
                if timer.due():
                    self._try(work)
            ended = self._reap()
            if self._draining:
                deadline = deadline or self._clock() + _SHUTDOWN_S
                for runner in self._runners.values():
                    runner.preempt()
                if not self._runners or self._clock() > deadline:
                    return
            elif claim.due(early=ended):
                began = self._clock()
                self._try(self._claim)
                # Each submission rings, and a pass over a long queue is long: most of the time belongs to others.
                self._ended.wait(min(_REST * (self._clock() - began), _BELL_S))
            if self._listen(bell):
                claim.hurry()

    def _listen(self, bell: Bell) -> bool:
        """Waits for the bell, or for the end of an attempt; true when there may be something to claim."""
        try:
            rang = bell.wait(0.1 if self._draining else _BELL_S) if not self._ended.is_set() else False
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
        with self._database.write() as session:
            workers.register(
                session, self.id, name=self.name, devices=[view.model_dump(mode="json") for view in self._devices]
            )
            adopted = attempts.open_of_worker(session, self.id)
            attempts.renew(session, self.id, [claim.attempt_id for claim in adopted])
        kill_strays(self._host.runs, adopted)
        for claim in adopted:
            logger.info("%s: attempt %d is adopted", claim.job_id, claim.number)
            self._start(claim)

    def _beat(self) -> None:
        self._devices = self._observe()
        with self._database.write() as session:
            workers.heartbeat(session, self.id, devices=[view.model_dump(mode="json") for view in self._devices])
        with contextlib.suppress(OSError):
            os.utime(self._identity)  # a health check needs no database to see that this worker lives

    def _renew(self) -> None:
        if not self._runners:
            return
        with self._database.write() as session:
            ours = attempts.renew(session, self.id, self._runners)
        for attempt_id, runner in self._runners.items():
            if attempt_id not in ours and not runner.done:
                runner.abandon()

    def _sweep(self) -> None:
        with self._database.read() as session:
            late = attempts.expired(session)
        # A database that was away for everybody must not look like workers that are gone.
        self._answers_since = self._answers_since or self._clock()
        if self._clock() - self._answers_since > LEASE.total_seconds():
            for claim in late:
                if claim.attempt_id not in self._runners:
                    self._rescue(claim)
        self._hint(self._rebuild)
        end = self._clock() + _TIDY_S
        tidy.remove_runs(self._host.runs, self._database, go_on=lambda: self._clock() < end)
        tidy.remove_blobs(self._host.blobs, self._database)

    def _rebuild(self) -> None:
        if self._queue.rebuild(self._queued):
            self._ended.set()

    def _rescue(self, claim: Claim) -> None:
        with self._database.write() as session:
            rescued = attempts.rescue(session, claim)
        if rescued:
            self._queue.announce(claim.job_id)
            logger.warning("%s: attempt %d was rescued: its lease had expired", claim.job_id, claim.number)
            self._ended.set()

    def _claim(self) -> None:
        waiting = self._waiting()
        if not waiting:
            return
        with self._database.read() as session:
            candidates = jobs.startable(session, waiting[:_LOOKED_AT])
            if not candidates:
                return
            alive = [worker for worker, seen in workers.every(session) if seen]
            held = jobs.holders(session)
        self._devices = self._observe()
        mine = _held(self.id, self._devices, held)
        too_much: dict[Resources, list[Startable]] = defaultdict(list)
        for job, resources in _understood(candidates):
            if self._draining or self._leaving:
                return
            # What did not fit before does not fit now: in one pass, the free devices only become fewer.
            chosen = None if resources in too_much else schedule.pick(resources, mine)
            if chosen is None:
                too_much[resources].append(job)
            elif self._take(job.id, chosen):
                held |= {(self.id, device.uuid): job.id for device in chosen}
                mine = _held(self.id, self._devices, held)
        self._say_why(too_much, self._hosts(alive, mine, held))

    def _hosts(
        self, alive: Iterable[Worker], mine: Sequence[DeviceView], held: dict[tuple[str, str], str]
    ) -> list[schedule.Host]:
        """Every worker, in the order that all of them use."""
        hosts = {
            worker.id: schedule.Host(
                worker.name, _held(worker.id, [DeviceView.model_validate(device) for device in worker.devices], held)
            )
            for worker in alive
        }
        hosts[self.id] = schedule.Host(self.name, mine)
        return [hosts[worker_id] for worker_id in sorted(hosts)]

    def _waiting(self) -> list[str]:
        try:
            return self._queue.waiting()
        except Unavailable as error:
            logger.warning("%s; reading the rows instead", error.message)
        return [job_id for job_id, _ in self._queued()]

    def _queued(self) -> list[tuple[str, int]]:
        try:
            with self._database.read() as session:
                return jobs.queued(session)
        except Unavailable:
            self._answers_since = None  # whoever asks may take it for the queue's trouble
            raise

    def _take(self, job_id: str, chosen: Sequence[DeviceView]) -> bool:
        self._renew()
        if any(runner.abandoned for runner in self._runners.values()):
            return False  # what still runs of a rescued attempt may be on these devices
        devices = [
            HeldDevice(worker=self.id, index=view.index, uuid=view.uuid, name=view.name).model_dump() for view in chosen
        ]
        with self._database.write() as session:
            claim = attempts.claim(session, job_id, worker_id=self.id, devices=devices)
        self._hint(lambda: self._queue.remove(job_id))
        if claim is None:
            return False
        self._queue.announce(job_id)
        logger.info("%s: attempt %d takes %s", job_id, claim.number, ", ".join(view.uuid for view in chosen))
        self._start(claim)
        return True

    def _say_why(self, waiting: dict[Resources, list[Startable]], hosts: Sequence[schedule.Host]) -> None:
        news: dict[Reason, list[str]] = defaultdict(list)
        for resources, held_up in waiting.items():
            reason = schedule.explain(resources, hosts)
            news[reason] += [job.id for job in held_up if job.reason != reason.message]
        if not any(news.values()):
            return
        with self._database.write() as session:
            for reason, told in news.items():
                jobs.set_waiting_reason(session, told, reason)

    def _start(self, claim: Claim) -> None:
        runner = Runner(self._host, claim, on_end=self._on_end)
        self._runners[claim.attempt_id] = runner
        runner.start()

    def _on_end(self) -> None:
        """An attempt has ended: its devices are free. Called by its thread, while the loop listens to the bell."""
        self._ended.set()
        self._hint(self._queue.ring)

    def _reap(self) -> bool:
        """Forgets the runners that are done; true when a device or a job may have become free."""
        ended = self._ended.is_set()
        self._ended.clear()
        for attempt_id, runner in list(self._runners.items()):
            if not runner.done:
                continue
            runner.join(_LEAVE_S)  # it may still ring, and nobody else waits for it
            del self._runners[attempt_id]
            if runner.requeued:
                self._requeue(runner.claim.job_id)
        return ended

    def _requeue(self, job_id: str) -> None:
        def push() -> None:
            with self._database.read() as session:
                job = jobs.get(session, job_id)
            self._queue.push(job_id, priority=job.priority)

        with contextlib.suppress(NotFound):  # cancelled and deleted meanwhile
            self._hint(push)

    def _finish(self) -> None:
        for runner in self._runners.values():
            runner.leave()
        deadline = self._clock() + _LEAVE_S
        for runner in self._runners.values():
            runner.join(max(0.0, deadline - self._clock()))

    def _observe(self) -> list[DeviceView]:
        supervisors = [runner.supervisor.pid for runner in self._runners.values() if runner.supervisor is not None]
        return self._inventory.observe(ours={item.pid for item in process.descendants(*supervisors)})

    def _try(self, work: Callable[[], None]) -> None:
        """One turn of `work`; a database that is away is waited for, turn by turn."""
        try:
            work()
        except Unavailable as error:
            logger.warning("%s", error.message)
            self._answers_since = None

    def _hint(self, work: Callable[[], None]) -> None:
        """A write to the queue: if it is lost, the sweeper makes up for it."""
        try:
            work()
        except Unavailable as error:
            logger.warning("%s; the sweeper will make up for it", error.message)

    def _insist(self, work: Callable[[], None]) -> None:
        while not self._leaving and not self._draining:
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


def _held(worker_id: str, devices: Sequence[DeviceView], held: dict[tuple[str, str], str]) -> list[DeviceView]:
    """`devices` with who holds them. In a container the driver may tell pids that are not ours for our own job's."""
    holders = [held.get((worker_id, view.uuid)) for view in devices]
    return [
        view.model_copy(update={"job_id": holder, "blocked": None if holder is not None else view.blocked})
        for view, holder in zip(devices, holders, strict=True)
    ]


def _understood(candidates: Iterable[Startable]) -> Generator[tuple[Startable, Resources]]:
    """Leaves out the jobs that ask for what only a newer worker knows."""
    for job in candidates:
        try:
            resources = Resources.model_validate(job.resources)
        except ValidationError:
            logger.warning("%s: this worker does not know what it asks for: %s", job.id, job.resources)
            continue
        yield job, resources


def _identity(path: Path) -> str:
    """This worker's id: made once, and kept with the data, so that a restarted daemon finds its jobs again."""
    record = read_record(path, _Identity)
    if record is None:
        record = _Identity(id=new_id("wrk"))
        write_record(path, record)
    return record.id


class _Identity(Record):
    id: str
