"""What a runner sees of its attempt and does to it: the hands of `lifecycle`, which decides."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
import logging
from pathlib import Path
import threading
import time

from store.db.tables import Attempt, Job
from store.rows.attempts import Claim
from store.rows.jobs import Reason
from store.store import Store
from torchyard.contract import disk
from torchyard.contract.errors import ConfigError, DataError, InvalidSpec
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from torchyard.contract.rundir import RunDir
from worker.attempts import lifecycle, pace
from worker.attempts.lifecycle import (
    Action,
    Close,
    Failed,
    Intents,
    Kill,
    MarkRunning,
    Observation,
    Prepare,
    Prepared,
    RequestStop,
    Start,
    Undrained,
    Unprepared,
)
from worker.attempts.notices import Notices
from worker.attempts.orders import Orders
from worker.attempts.prepare import Preparation
from worker.attempts.records import Records
from worker.attempts.relay import Relay
from worker.attempts.spool import Spool
from worker.attempts.wishes import Wishes
from worker.devices.health import Health, Marks
from worker.devices.quarantine import Use
from worker.engines.base import AttemptKey, Engine, Handle, Plan

_RETRY_S = 1.0
_PREPARE = "prepare"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """What the attempts of one worker share."""

    store: Store
    engine: Engine
    runs: Path
    allowed: tuple[Path, ...]
    """The folders below which a job may name files."""
    health: Health
    """What the driver says of the GPUs: asked when an attempt begins, and when it claims that one failed."""
    ended: threading.Event
    """Set whenever a runner is done: devices or a job may be free."""


class Effects:
    """One attempt's. Every method raises StaleClaim once the claim is, and Unavailable where an order ends a wait."""

    def __init__(self, host: Host, claim: Claim, orders: Orders) -> None:
        self.use = Use(claim.job_id, claim.number, None, over=False)
        """Its devices, as the quarantine wants to know of them. Replaced, never changed."""
        self._host = host
        self._key = AttemptKey(claim.job_id, claim.number)
        self._folder = host.runs / claim.job_id / str(claim.number)
        self._records = Records(host.store, claim, leaving=orders.gone)
        self._notices = Notices(self._records)
        self._orders = orders
        self._wishes = Wishes(self._records, orders)
        self._handle = Handle(self._key, 0)
        self._rows: tuple[Attempt, Job] | None = None
        """As they were at the beginning: what is used of them does not change while the attempt is open."""
        self._plan: Plan | None = None
        self._spool: Spool | None = None
        self._marks: Mapping[str, Marks] = {}
        self._seen: Observation | None = Unprepared()
        """What the last action found out, until it was looked at."""
        self._turned = self._stored = time.monotonic()
        """When it started or all its ranks came up, and when something of it was stored."""
        self._unwatch: Callable[[], object] = _nothing

    def begin(self) -> None:
        """Reads the rows, and finds what an earlier daemon started."""
        self._rows = row, job = self._records.read()
        self.use = replace(self.use, devices=tuple(str(device["uuid"]) for device in job.devices))
        self._marks = self._host.health.marks(self.use.devices or (), adopted=row.launcher is not None)
        self._wishes.learn(job)
        world_size = len(job.devices)
        if row.launcher is not None:
            self._handle = Handle(self._key, world_size, row.launcher)
            self._host.engine.adopt(self._handle)
            self._follow()
        elif (found := self._host.engine.find(self._key, world_size=world_size, claimed_at=row.started_at)) is not None:
            self._launched(found)

    def close(self) -> None:
        """Gives up what is under way in this process. Raises OSError."""
        self._unwatch()
        if self._spool is not None:
            self._spool.close()

    def intents(self) -> Intents:
        return self._wishes.intents()

    def look(self) -> None:
        """Read the owner's wishes at the next turn."""
        self._wishes.look()

    def observe(self) -> Observation:
        seen, self._seen = self._seen, None
        return seen if seen is not None else self._host.engine.poll(self._handle)

    def pause_s(self) -> float:
        """How long to wait before the next turn."""
        match self._seen:
            case Unprepared(trouble=str()):
                return _RETRY_S
            case Undrained(refusals) if refusals:
                return _RETRY_S
            case None:
                return self._until_next_look()
            case _:
                return 0.0

    def act(self, action: Action) -> None:
        match action:
            case Prepare() | Start():
                self._try_to_start(action)
            case MarkRunning():
                self._records.will_run(Reason("running", _running(self._handle.world_size)))
                self._turned = time.monotonic()
            case lifecycle.Store(final):
                self._store(final=final)
            case RequestStop(stop):
                self._host.engine.request_stop(self._handle, stop.reason, stop.grace)
            case Kill(silent):
                left = self._host.engine.kill(self._handle)
                if left is not None and not silent:
                    self._notices.once(left)
            case Close(report, asked):
                self._close(report, {asked} if asked is not None else set())

    def _try_to_start(self, action: Prepare | Start) -> None:
        try:
            if isinstance(action, Prepare):
                self._prepare()
            else:
                self._start()
        except DataError as error:
            self._seen = Failed(ExitReport(reason=EndReason.DATA_ERROR, message=error.message))
        except (ConfigError, InvalidSpec) as error:
            self._seen = Failed(ExitReport(reason=EndReason.CONFIG_ERROR, message=error.message))
        except OSError as error:
            self._seen = self._refused(error)

    def _prepare(self) -> None:
        assert self._rows is not None
        row, job = self._rows
        engine, handle = self._host.engine, self._handle
        preparation = Preparation(
            self._key,
            RunDir(self._folder),
            blobs=self._host.store.blobs,
            allowed=self._host.allowed,
            records=self._records,
            notices=self._notices,
            clear=lambda: engine.kill(handle),
        )
        self._plan = preparation.prepare(job, claimed_at=row.started_at)
        self._seen = Prepared()

    def _start(self) -> None:
        assert self._plan is not None
        handle = self._host.engine.start(self._plan)
        self._notices.over(_PREPARE, "the attempt could be prepared, and starts")
        self._launched(handle)
        if handle.note is not None:
            self._notices.once(handle.note, level="info")

    def _launched(self, handle: Handle) -> None:
        self._handle = handle
        self._records.launched(dict(handle.stored))
        self._follow()

    def _follow(self) -> None:
        assert self._rows is not None
        row, _ = self._rows
        run = RunDir(self._folder, layout=2 if self._handle.stored.get("layout") == 2 else 1)
        relay = Relay(
            run,
            self._host.store.blobs,
            offsets={str(name): int(offset) for name, offset in row.offsets.items()},
            listed=self._records.names(),
            world_size=self._handle.world_size,
        )
        self._spool = Spool(relay, records=self._records, notices=self._notices, attempts=self._key.number)
        self._seen = None
        self._turned = self._stored = time.monotonic()
        self._unwatch = self._host.engine.watch(self._handle, self._orders.wake)
        self._spool.remove_copies()

    def _store(self, *, final: bool) -> None:
        assert self._spool is not None
        if final:
            self._seen = self._spool.store_rest()
            return
        if self._spool.store_some():
            self._stored = time.monotonic()
        self._records.write_running()

    def _until_next_look(self) -> float:
        if self._spool is not None and self._spool.more:
            return 0.0
        now = time.monotonic()
        return pace.pause_s(since_turn=now - self._turned, since_news=now - self._stored)

    def _refused(self, error: OSError) -> Observation:
        """A full disk is waited for; what a broken one kept from starting uses up no restart."""
        if error.errno in disk.SCARCE:
            self._notices.trouble(_PREPARE, f"the attempt cannot be prepared now, and waits: {error}")
            return Unprepared(str(error))
        reason = EndReason.WORKER_LOST if error.errno in disk.PASSING else EndReason.LAUNCH_FAILED
        return Failed(ExitReport(reason=reason, message=f"the attempt cannot be prepared: {error}"))

    def _close(self, report: ExitReport, asked: Collection[EndReason]) -> None:
        verdict = self._host.health.judge(report, since=self._marks)
        report = verdict.report
        # Before its devices are free: they may have to wait in quarantine.
        self.use = replace(self.use, over=True, faults=verdict.faults)
        state = self._records.end(report, asked=asked)
        logger.info("%s: attempt %d ended: %s; the job is %s", self._key.job_id, self._key.number, report.reason, state)


def _nothing() -> None:
    pass


def _running(world_size: int) -> str:
    return "1 process runs" if world_size == 1 else f"{world_size} processes run"
