"""One attempt on this worker, from its claim to its end: prepare, launch or adopt, relay, stop, close."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
import logging
import os
from pathlib import Path
import shutil
import signal
import threading
import time

from store.attempts import Batch, Claim, NewEvent
from store.blobs import Blobs
from store.database import Database
from store.jobs import Reason
from store.tables import Checkpoint, Job
from torchyard import disk
from torchyard.errors import ConfigError, DataError, InvalidSpec, StaleClaim, TorchyardError, Unavailable
from torchyard.job import EndReason, JobState
from torchyard.rundir import ExitReport, ProcessIdentity, RunDir
from torchyard.schema import parse_duration
from torchyard.spec import parse_spec
from torchyard.views import HeldDevice
from worker.attempts import prepare as launch
from worker.attempts.records import Ledger
from worker.attempts.relay import Relay
from worker.cleanup import rundirs, tidy
from worker.devices.quarantine import Use
from worker.engines.local import process
from worker.engines.local.stops import Stops
from worker.engines.local.strays import kill_attempt
from worker.untrusted import read_untrusted

_POLL_S = 0.25
_INTENT_S = 1.0
_RETRY_S = 1.0
_TALE_S = 60.0  # between two tellings of the same trouble: a disk that is full now and then
_OUTAGE_S = 2.0  # the shortest that is told; the next try of a call that failed may come later
_WAITS = "what the attempt writes cannot be stored now, and waits"
_AGAIN = "what the attempt writes is stored again"
_TRIES_ONCE_CANCELLED = 5
_BATCHES_A_POLL = 16
_SUPERVISOR_DEADLINE_S = 20.0
_SHUTDOWN_GRACE = timedelta(seconds=30)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """What the attempts of one worker share."""

    database: Database
    blobs: Blobs
    runs: Path
    allowed: tuple[Path, ...]
    slots: int
    """Devices of the worker, among which the processor's cores are divided."""
    announce: Callable[[str], None]
    """Told a job's id after each commit that changed it. Never fails."""


class Runner:
    """Works in a thread of its own until the attempt has ended, is somebody else's, or the worker leaves."""

    def __init__(self, host: Host, claim: Claim, *, on_end: Callable[[], None]) -> None:
        self.claim = claim
        self.run = RunDir.found(host.runs / claim.job_id / str(claim.number))
        self.supervisor: ProcessIdentity | None = None
        """Looked up once: the job itself could rewrite the file."""
        self.requeued = False
        """Whether the job waits again, once the runner is done."""
        self.abandoned = False
        self.done = False
        self._host = host
        self._on_end = on_end
        self._wake = threading.Event()
        self._leaving = threading.Event()
        self._stop: EndReason | None = None
        self._preempted = self._hurried = False
        self._stops = Stops(self.run)
        self._next_look = self._next_pass = self._next_tale = 0.0
        self._told_trouble = self._told_stubborn = False
        self._said: set[str] = set()
        self._devices: tuple[str, ...] | None = None
        self._ended: ExitReport | None = None
        self._ledger = Ledger(host.database, claim, leaving=self._leaving, announce=host.announce)
        self._thread = threading.Thread(target=self._main, name=f"{claim.job_id}/{claim.number}", daemon=True)

    @property
    def use(self) -> Use:
        """Its devices, as the quarantine wants to know of them."""
        ended = self._ended
        over = self.done or ended is not None
        return Use(self.claim.job_id, self.claim.number, self._devices, over=over, report=ended)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look at the job's intents now."""
        self._next_look = 0.0
        self._wake.set()

    def leave(self) -> None:
        """Go away and let the processes run: a later daemon adopts them."""
        self._leaving.set()
        self._wake.set()

    def preempt(self, *, hurry: bool = False) -> None:
        """Let the job save a checkpoint and go back to the queue. `hurry`: the worker itself cannot wait for long."""
        self._preempted = True
        self._hurried = self._hurried or hurry
        self._stop = self._stop or EndReason.PREEMPTED
        self._wake.set()

    def abandon(self) -> None:
        """The attempt is not ours any more: stop its processes and write nothing."""
        self.abandoned = True
        self._leaving.set()
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Waits for its thread, which still tells its end for a moment once it is `done`."""
        self._thread.join(timeout)

    def _main(self) -> None:
        try:
            self._guarded()
        except Exception:
            logger.exception(
                "%s: attempt %d is left as it is, until its lease expires", self.claim.job_id, self.claim.number
            )
        self.done = True
        try:
            self._on_end()
        except Exception:
            logger.exception("%s: the end of attempt %d was not told", self.claim.job_id, self.claim.number)

    def _guarded(self) -> None:
        try:
            self._live()
        except StaleClaim as stale:
            logger.warning("%s: %s; its processes are stopped", self.claim.job_id, stale.message)
            kill_attempt(self.run, self.claim)
        except Exception as error:  # noqa: BLE001 - one attempt's trouble must not take the others' worker away
            if not (isinstance(error, Unavailable) and self._leaving.is_set()):
                self._give_up(error)
        if self.abandoned:
            kill_attempt(self.run, self.claim)

    def _live(self) -> None:
        row, job = self._ledger.read()
        self._devices = tuple(str(device["uuid"]) for device in job.devices)
        if row.launcher is not None:
            self.supervisor = ProcessIdentity.model_validate(row.launcher)
        elif rundirs.is_stale(self.run, claimed_at=row.started_at) or not os.path.lexists(self.run.launch):
            report = self._launch(job, claimed_at=row.started_at)
            if report is not None:
                self._close(report)
                return
        self._remove_copies()
        self._watch(job, self._relay(job))

    def _launch(self, job: Job, *, claimed_at: int) -> ExitReport | None:
        """Starts the supervisor. An ExitReport where the attempt cannot start, or is not to.

        While the host cannot do it (a full disk) it waits. Raises Unavailable where the worker leaves meanwhile.
        """
        while True:
            try:
                self._start(job, claimed_at=claimed_at)
            except DataError as error:
                return ExitReport(reason=EndReason.DATA_ERROR, message=error.message)
            except (ConfigError, InvalidSpec) as error:
                return ExitReport(reason=EndReason.CONFIG_ERROR, message=error.message)
            except OSError as error:
                if error.errno not in disk.SCARCE:
                    reason = EndReason.WORKER_LOST if error.errno in disk.PASSING else EndReason.LAUNCH_FAILED
                    return ExitReport(reason=reason, message=f"the attempt cannot be prepared: {error}")
                report = self._wait_to_launch(error)
                if report is not None:
                    return report
            else:
                if self._told_trouble:
                    self._told_trouble = False
                    self._say("the attempt could be prepared, and starts", level="info")
                return None

    def _wait_to_launch(self, error: OSError) -> ExitReport | None:
        """A moment, for the host to recover. An ExitReport where the job is to stop meanwhile."""
        self._say_trouble(f"the attempt cannot be prepared now, and waits: {error}")
        self._look()
        if self._stop is not None:
            return ExitReport(reason=self._stop, message=f"stopped before it started: {error}")
        if self._leaving.wait(_RETRY_S):
            raise Unavailable("the worker leaves before the attempt has started") from error
        return None

    def _start(self, job: Job, *, claimed_at: int) -> None:
        """May be done again where it raises OSError."""
        self._make_room(claimed_at)
        spec = parse_spec(job.spec)
        self.run.create()
        resume_from = self._resume(job)
        plan = launch.plan(
            spec,
            claim=self.claim,
            run=self.run,
            devices=[HeldDevice.model_validate(device) for device in job.devices],
            resume_from=resume_from,
            time_left=spec.time_limit - timedelta(microseconds=job.ran_us),
            allowed=self._host.allowed,
            slots=self._host.slots,
        )
        launch.prepare(self.run, spec, plan.model_copy(update={"claimed_at": claimed_at}))
        launch.start(self.run)

    def _make_room(self, claimed_at: int) -> None:
        if not rundirs.is_stale(self.run, claimed_at=claimed_at):
            return
        logger.warning(
            "%s: the run directory %d is of an attempt that this database does not know: it is put aside",
            self.claim.job_id,
            self.claim.number,
        )
        if left := kill_attempt(self.run, self.claim):
            raise OSError(process.stubborn(left))
        rundirs.make_room(self.run)
        self.run = RunDir(self.run.root)
        self._stops = Stops(self.run)

    def _resume(self, job: Job) -> Path | None:
        """Copies the newest whole checkpoint into the run directory; says which ones it had to skip."""
        skipped: list[Checkpoint] = []
        found: Checkpoint | None = None
        for checkpoint in self._ledger.checkpoints():
            if self._copy(checkpoint, self.run.resume):
                found = checkpoint
                break
            skipped.append(checkpoint)
        self._ledger.prepared(found.step if found is not None else 0)
        if skipped:
            self._say_once(f"{len(skipped)} damaged checkpoints were skipped: {', '.join(row.id for row in skipped)}")
        if found is None:
            return None
        self._say_once(f"resumes from checkpoint {found.id} (step {found.step})", level="info")
        return self.run.resume

    def _copy(self, checkpoint: Checkpoint, folder: Path) -> bool:
        shutil.rmtree(folder, ignore_errors=True)  # what an earlier try has left
        disk.check_room(folder.parent, sum(file["size"] for file in checkpoint.files))
        for file in checkpoint.files:
            target = folder / file["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self._host.blobs.copy_out(file["sha256"], target):
                return False
        return True

    def _say_once(self, text: str, *, level: str = "warning") -> None:
        if text not in self._said:
            self._say(text, level=level)
            self._said.add(text)

    def _say(self, text: str, *, level: str = "warning") -> None:
        row, _ = self._ledger.read()
        event = NewEvent("message", {"level": level, "text": text}, time.time_ns() // 1000)
        self._ledger.record(Batch(offsets=row.offsets, events=[event]))

    def _relay(self, job: Job) -> Relay:
        row, _ = self._ledger.read()
        listed = self._ledger.names()
        offsets = {str(name): int(offset) for name, offset in row.offsets.items()}
        return Relay(self.run, self._host.blobs, offsets=offsets, listed=listed, world_size=len(job.devices))

    def _watch(self, job: Job, relay: Relay) -> None:
        state, started = JobState(job.state), time.monotonic()
        while not self._leaving.is_set():
            self._find_supervisor()
            report = self._report(waited=time.monotonic() - started)
            if report is None:
                self._pass_on(relay)
            else:
                self._drain(relay)
            completed = report is not None and report.reason is EndReason.COMPLETED
            if state is JobState.STARTING and (completed or self._every_rank_exists(len(job.devices))):
                state = self._ledger.running(Reason("running", _running(len(job.devices))))
            if report is not None:
                self._close(report)
                return
            self._look()
            self._obey(job)
            self._rouse()
            self._wake.wait(_POLL_S)
            self._wake.clear()

    def _find_supervisor(self) -> None:
        if self.supervisor is None:
            self.supervisor = read_untrusted(self.run.supervisor, ProcessIdentity)
            if self.supervisor is not None:
                self._ledger.launched(self.supervisor)

    def _report(self, *, waited: float) -> ExitReport | None:
        """How the attempt ended, once nothing of it runs any more; None while it does."""
        supervisor = self.supervisor
        if process.is_alive(supervisor) if supervisor is not None else waited < _SUPERVISOR_DEADLINE_S:
            return None
        report = read_untrusted(self.run.exit, ExitReport)
        if report is not None:
            return report
        left = kill_attempt(self.run, self.claim)
        if left:
            self._say_stubborn(left)
            return None
        if supervisor is None:
            return ExitReport(reason=EndReason.WORKER_LOST, message="the worker stopped while it started the attempt")
        if supervisor.boot_id != process.boot_id():
            return ExitReport(reason=EndReason.WORKER_LOST, message="the host was restarted")
        return ExitReport(reason=EndReason.WORKER_LOST, message="the attempt's supervisor was killed")

    def _pass_on(self, relay: Relay) -> None:
        """Stores what the attempt has written, as much as one turn may take."""
        if time.monotonic() < self._next_pass:
            return
        try:
            for _ in range(_BATCHES_A_POLL):
                if not self._store(relay, final=False):
                    return
            self._wake.set()  # there is more
        except OSError as error:
            self._next_pass = time.monotonic() + _RETRY_S
            self._say_trouble(f"{_WAITS}: {error}")

    def _drain(self, relay: Relay) -> None:
        """Stores all that is left. While that is impossible (a full disk) it waits, as what was written is kept.

        A job that was cancelled does not wait for long. Raises Unavailable where the worker leaves meanwhile.
        """
        failures = 0
        while True:
            try:
                if not self._store(relay, final=True):
                    return
            except OSError as error:
                failures += 1
                self._say_trouble(f"{_WAITS}: {error}")
                self._look()
                if self._stop is EndReason.CANCELLED and failures >= _TRIES_ONCE_CANCELLED:
                    return
                if self._leaving.wait(_RETRY_S):
                    raise Unavailable("the worker leaves before all is stored") from error

    def _store(self, relay: Relay, *, final: bool) -> bool:
        batch = relay.read(final=final)
        if batch is None:
            return relay.copying
        with relay.storing(batch):
            self._ledger.record(batch)
        if self._told_trouble:
            self._told_trouble = False
            self._say(_AGAIN, level="info")
        if (outage_s := self._ledger.outage_s()) >= _OUTAGE_S:
            self._say(f"{_AGAIN}, after {outage_s:.0f} s without the database", level="info")
        if batch.checkpoints:
            self._remove_copies()
        return True

    def _remove_copies(self) -> None:
        """The run directory is a cache: what is not listed any more goes from it, too."""
        tidy.remove_copies(self.run.root.parent, self._ledger.removed_among, attempts=self.claim.number)

    def _say_trouble(self, text: str) -> None:
        logger.warning("%s: %s", self.claim.job_id, text)
        if not self._told_trouble and time.monotonic() >= self._next_tale:
            self._told_trouble = True
            self._next_tale = time.monotonic() + _TALE_S
            self._say(text)

    def _say_stubborn(self, left: list[ProcessIdentity]) -> None:
        if not self._told_stubborn:
            self._told_stubborn = True
            self._say(process.stubborn(left))

    def _every_rank_exists(self, world_size: int) -> bool:
        return all(os.path.lexists(self.run.ranks / f"{rank}.json") for rank in range(world_size))

    def _look(self) -> None:
        """Reads the job's intents, now and then."""
        if self._stop is EndReason.CANCELLED or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _INTENT_S
        try:
            # The worker's own wish to stop stays; a wish of the job's owner that was taken back is forgotten.
            self._stop = self._ledger.wanted_end() or (EndReason.PREEMPTED if self._preempted else None)
        except Unavailable as error:
            logger.warning("%s: cannot look for a cancel: %s", self.claim.job_id, error.message)

    def _obey(self, job: Job) -> None:
        if self._stop is None:
            return
        grace = parse_duration(job.spec["stop_grace"])
        try:
            self._stops.ask(self._stop, grace=min(grace, _SHUTDOWN_GRACE) if self._hurried else grace)
        except OSError as error:
            logger.warning("%s: cannot write a stop, a signal must do: %s", self.claim.job_id, error)
            if self.supervisor is not None:
                process.send(self.supervisor, signal.SIGTERM)

    def _rouse(self) -> None:
        """A supervisor that is stopped sees no request, no time limit and no hang: it goes on, or dies at last."""
        if self.supervisor is not None and process.is_stopped(self.supervisor):
            logger.warning("%s: the supervisor of attempt %d is stopped", self.claim.job_id, self.claim.number)
            process.send(self.supervisor, signal.SIGKILL if self._stops.overdue else signal.SIGCONT)

    def _close(self, report: ExitReport) -> None:
        self._ended = report  # before its devices are free: they may have to wait in quarantine
        state = self._ledger.end(report)
        self.requeued = state is JobState.QUEUED
        logger.info(
            "%s: attempt %d ended: %s; the job is %s", self.claim.job_id, self.claim.number, report.reason, state
        )

    def _give_up(self, error: Exception) -> None:
        logger.error("%s: attempt %d cannot go on", self.claim.job_id, self.claim.number, exc_info=error)
        kill_attempt(self.run, self.claim)
        report = ExitReport(reason=EndReason.WORKER_LOST, message=f"the worker failed: {type(error).__name__}: {error}")
        try:
            self._close(report)
        except (TorchyardError, OSError):
            logger.exception("%s: the attempt stays open until its lease expires", self.claim.job_id)


def _running(world_size: int) -> str:
    return "1 process runs" if world_size == 1 else f"{world_size} processes run"
