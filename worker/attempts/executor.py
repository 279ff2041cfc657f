"""Observes one attempt and carries out the actions that `lifecycle` decides on."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
import logging
from pathlib import Path
import threading

from store.db.tables import Attempt, Job
from store.rows.attempts import Claim
from store.rows.limits import DEFAULTS, OutputLimits
from store.store import Store
from torchyard.contract.durations import LONGEST_STOP_GRACE
from torchyard.contract.job import EndReason, Reason
from torchyard.contract.records import ExitReport
from torchyard.contract.rundir import RunDir
from worker.attempts import code, lifecycle
from worker.attempts.artifacts import Artifacts
from worker.attempts.instructions import Instructions
from worker.attempts.intents import IntentReader
from worker.attempts.lifecycle import (
    Action,
    Close,
    Installing,
    Intents,
    Kill,
    MarkRunning,
    Observation,
    Prepare,
    RequestStop,
    Start,
    Undrained,
    Unprepared,
)
from worker.attempts.notices import Notices
from worker.attempts.output import OutputRecorder
from worker.attempts.pace import Pace
from worker.attempts.prepare import NotWanted, Preparation
from worker.attempts.records import AttemptRecords
from worker.attempts.relay import Relay
from worker.attempts.stacks import READ_EVERY_S, StacksAnswerer
from worker.attempts.startup import Startup
from worker.bundles.cache import BundleCache
from worker.devices.health import GpuHealth, Health
from worker.devices.quarantine import DeviceUse
from worker.engines.base import Engine, Handle
from worker.host.attempt_key import AttemptKey
from worker.host.datafolders import ENVIRONMENTS, UNPACKED
from worker.packages.cache import PackageCache
from worker.packages.rules import PackageRules

_RETRY_S = 1.0
_INSTALLING_S = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerContext:
    """What all attempts of one worker share."""

    store: Store
    engine: Engine
    runs: Path
    """The folder of all run directories."""
    allowed: tuple[Path, ...]
    """The folders below which a job may name files."""
    health: Health
    """Reads the state of the GPUs from the driver: when an attempt begins, and when it claims that a GPU failed."""
    attempt_ended: threading.Event
    """Set whenever a runner is done: devices or a job may be free."""
    limits: OutputLimits = DEFAULTS
    """What of one attempt's output is stored."""
    package_rules: PackageRules = field(default_factory=PackageRules)
    """How jobs get packages of their own."""
    max_stop_grace: timedelta = LONGEST_STOP_GRACE
    """The longest grace of a stop, whatever the job's spec says."""

    @property
    def bundles(self) -> BundleCache:
        return BundleCache(self.runs.parent.absolute() / UNPACKED, self.store.blobs)

    @property
    def packages(self) -> PackageCache:
        return PackageCache(self.runs.parent.absolute() / ENVIRONMENTS, self.package_rules)


class AttemptExecutor:
    """Executes one attempt.

    Every method raises StaleClaim after the attempt has ended or been rescued, and Unavailable if an instruction ended
    a wait for the database.
    """

    def __init__(self, context: WorkerContext, claim: Claim, instructions: Instructions) -> None:
        self.device_use = DeviceUse(claim.job_id, claim.number, None, ended=False)
        """The attempt's devices, for the quarantine. The object is replaced, never changed."""
        self._context = context
        self._key = AttemptKey(claim.job_id, claim.number)
        self._folder = context.runs / claim.job_id / str(claim.number)
        self._records = AttemptRecords(context.store, claim, leaving=instructions.leaving, limits=context.limits)
        self._notices = Notices(self._records)
        self._instructions = instructions
        self._intents = IntentReader(self._records, instructions, longest_grace=context.max_stop_grace)
        self._handle = Handle(self._key, 0)
        self._stacks = StacksAnswerer(context.engine, self._records)
        self._startup = self._new_startup()
        self._rows: tuple[Attempt, Job] | None = None
        """The rows as `begin` read them: what is used of them does not change while the attempt is open."""
        self._output: OutputRecorder | None = None
        self._health_at_start: Mapping[str, GpuHealth] = {}
        self._installs = False
        """Whether the job's reason says that packages are installed."""
        self._observed: Observation | None = Unprepared()
        """What the last action found out. The next call of `observe` takes it."""
        self._pace = Pace()
        self._unwatch: Callable[[], object] = _nothing

    def begin(self) -> None:
        """Reads the rows, and finds the processes that an earlier daemon started."""
        self._rows = row, job = self._records.read()
        self.device_use = replace(self.device_use, devices=tuple(str(device["uuid"]) for device in job.devices))
        self._health_at_start = self._context.health.read(
            self.device_use.devices or (), adopted=row.launcher is not None
        )
        self._intents.update(row, job, age=self._records.age)
        engine, world_size = self._context.engine, len(job.devices)
        if row.launcher is not None:
            self._handle = Handle(self._key, world_size, row.launcher)
            engine.adopt(self._handle)
            self._follow()
        elif (found := engine.find(self._key, world_size=world_size, claimed_at=row.started_at)) is not None:
            self._launched(found)

    def close(self) -> None:
        """Ends what this process does for the attempt. Raises OSError."""
        self._startup.close()
        self._unwatch()
        if self._output is not None:
            self._output.close()

    def intents(self) -> Intents:
        return self._intents.intents()

    def recheck_intents(self) -> None:
        """Has the next turn read the intents of the job's owner."""
        self._intents.recheck()

    def observe(self) -> Observation:
        observed, self._observed = self._observed, None
        return observed if observed is not None else self._context.engine.poll(self._handle)

    def pause_s(self) -> float:
        """Returns how long to wait before the next turn."""
        match self._observed:
            case Unprepared(problem=str()):
                return _RETRY_S
            case Undrained(failures) if failures:
                return _RETRY_S
            case Installing():
                return _INSTALLING_S
            case None:
                pause_s = 0.0 if self._output is not None and self._output.has_more else self._pace.pause_s()
                return min(pause_s, READ_EVERY_S) if self._stacks.collecting else pause_s
            case _:
                return 0.0

    def act(self, action: Action) -> None:
        match action:
            case Prepare():
                assert self._rows is not None
                self._observed = self._startup.prepare(*self._rows)
                self._show_setup(installs=isinstance(self._observed, Installing))
            case Start():
                self._start()
            case MarkRunning():
                self._records.running_with_next_write(Reason("running", _running_message(self._handle)))
                self._pace.state_changed()
            case lifecycle.Store(final):
                self._store(final=final)
            case RequestStop(stop):
                self._context.engine.request_stop(self._handle, stop.reason, stop.grace)
            case Kill(silent):
                unkillable = self._context.engine.kill(self._handle)
                if unkillable is not None and not silent:
                    self._notices.send_once(unkillable)
            case Close(report, requested):
                self._close(report, {requested} if requested is not None else set())

    def _new_startup(self) -> Startup:
        context, handle = self._context, self._handle
        preparation = Preparation(
            self._key,
            RunDir(self._folder),
            blobs=context.store.blobs,
            allowed=context.allowed,
            bundles=context.bundles,
            records=self._records,
            notices=self._notices,
            kill_leftovers=lambda: context.engine.kill(handle),
            max_stop_grace=context.max_stop_grace,
            check_wanted=self._check_wanted,
        )
        return Startup(context.engine, preparation, packages=context.packages, notices=self._notices)

    def _check_wanted(self) -> None:
        if self._intents.intents() != Intents():
            raise NotWanted

    def _show_setup(self, *, installs: bool) -> None:
        """Stores what an installation has said by now, and that the attempt waits for it, or does no longer."""
        if installs != self._installs:
            message = "installs packages" if installs else f"attempt {self._key.number} starts"
            self._records.set_reason(Reason("starting", message))
            self._installs = installs
        if self._startup.has_log:
            self._open_output(RunDir(self._folder)).store_some()

    def _start(self) -> None:
        started = self._startup.start(since_claim=self._intents.since_claim)
        if not isinstance(started, Handle):
            self._observed = started
            return
        self._launched(started)
        if started.note is not None:
            self._notices.send_once(started.note, level="info")

    def _launched(self, handle: Handle) -> None:
        self._handle = handle
        self._records.launched(dict(handle.stored))
        self._follow()

    def _follow(self) -> None:
        """Begins to relay the attempt's output and to watch for its end."""
        output = self._open_output(RunDir(self._folder))
        self._observed = None
        self._pace = Pace()
        self._unwatch = self._context.engine.watch(self._handle, self._instructions.wake)
        output.remove_checkpoint_copies()

    def _open_output(self, run: RunDir) -> OutputRecorder:
        if self._output is None:
            assert self._rows is not None
            row, job = self._rows
            blobs, number = self._context.store.blobs, self._key.number
            room, limits, mask = self._records.artifact_room, self._context.limits, self._records.mask
            relay = Relay(
                run,
                blobs,
                offsets={str(name): int(offset) for name, offset in row.offsets.items()},
                listed=self._records.checkpoint_names(),
                world_size=len(job.devices),
                most_checkpoints=limits.checkpoints,
                patterns=_patterns(job),
                artifacts=Artifacts(run, blobs, room=room, attempt=number, limits=limits, mask=mask),
                mask=mask,
            )
            self._output = OutputRecorder(relay, records=self._records, notices=self._notices, attempts=number)
        return self._output

    def _store(self, *, final: bool) -> None:
        assert self._output is not None
        if final:
            self._observed = self._output.store_rest()
            return
        if self._output.store_some():
            self._pace.output_stored()
        self._records.write_running()
        self._stacks.take_turn(self._handle, self._intents.stacks_requested_at)

    def _close(self, report: ExitReport, requested: Collection[EndReason]) -> None:
        self._startup.close()
        verdict = self._context.health.judge(report, since=self._health_at_start)
        report = verdict.report
        # Set before its devices are free, as they may have to wait in quarantine.
        self.device_use = replace(self.device_use, ended=True, faults=verdict.faults)
        state = self._records.end(report, requested=requested)
        code.remove_copy(RunDir(self._folder))
        logger.info("%s: attempt %d ended: %s; the job is %s", self._key.job_id, self._key.number, report.reason, state)


def _patterns(job: Job) -> list[str]:
    """Returns which files of a script become checkpoints."""
    config = job.spec.get("config", {}) if job.spec.get("trainer") == "script" else {}
    return [str(pattern) for pattern in config.get("checkpoints", [])]


def _nothing() -> None:
    pass


def _running_message(handle: Handle) -> str:
    ranks = "1 process runs" if handle.world_size == 1 else f"{handle.world_size} processes run"
    isolation = handle.stored.get("isolation")
    return f"{ranks}, {isolation}" if isolation else ranks
