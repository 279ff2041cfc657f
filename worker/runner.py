"""One attempt on this worker, from its claim to its end: prepare, launch or adopt, relay, stop, close."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
import logging
from pathlib import Path
import threading
import time

from store.attempts import Batch, Claim, NewEvent
from store.blobs import Blobs
from store.database import Database
from store.jobs import Reason
from store.tables import Attempt, Checkpoint, Job
from torchyard.errors import ConfigError, DataError, InvalidSpec, StaleClaim, TorchyardError, Unavailable
from torchyard.job import EndReason, JobState
from torchyard.rundir import ExitReport, ProcessIdentity, RunDir, StopRequest, read_record, write_record
from torchyard.schema import parse_duration
from torchyard.spec import parse_spec
from torchyard.views import HeldDevice
from worker import launch, process
from worker.ledger import Ledger
from worker.relay import Relay

_POLL_S = 0.25
_INTENT_S = 1.0
_BATCHES_A_POLL = 16
_SUPERVISOR_DEADLINE_S = 20.0
_KILL_DEADLINE_S = 10.0
_SHUTDOWN_GRACE = timedelta(seconds=30)
_MESSAGES = {
    EndReason.CANCELLED: "cancelled by its owner",
    EndReason.PREEMPTED: "the worker was asked to stop; the job goes back to the queue",
}

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


class Runner:
    """Works in a thread of its own until the attempt has ended, is somebody else's, or the worker leaves."""

    def __init__(self, host: Host, claim: Claim, *, on_end: Callable[[], None]) -> None:
        self.claim = claim
        self.run = RunDir(host.runs / claim.job_id / str(claim.number))
        self.requeued = False
        """Whether the job waits again, once the runner is done."""
        self._host = host
        self._on_end = on_end
        self._wake = threading.Event()
        self._leaving = threading.Event()
        self._lost = False
        self._stop: EndReason | None = None
        self._next_look = 0.0
        self._ledger = Ledger(host.database, claim, leaving=self._leaving)
        self._thread = threading.Thread(target=self._main, name=f"{claim.job_id}/{claim.number}", daemon=True)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

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

    def preempt(self) -> None:
        """Let the job save a checkpoint and go back to the queue."""
        self._stop = self._stop or EndReason.PREEMPTED
        self._wake.set()

    def abandon(self) -> None:
        """The attempt is not ours any more: stop its processes and write nothing."""
        self._lost = True
        self._leaving.set()
        self._wake.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def pids(self) -> set[int]:
        """Every process of the attempt."""
        supervisor = read_record(self.run.supervisor, ProcessIdentity)
        return {item.pid for item in process.descendants(supervisor.pid)} if supervisor is not None else set()

    def _main(self) -> None:
        try:
            self._live()
        except StaleClaim as stale:
            logger.warning("%s: %s; its processes are stopped", self.claim.job_id, stale.message)
            kill_attempt(self.run, self.claim)
        except Exception as error:  # noqa: BLE001 - one attempt's trouble must not take the others' worker away
            if not (isinstance(error, Unavailable) and self._leaving.is_set()):
                self._give_up(error)
        finally:
            if self._lost:
                kill_attempt(self.run, self.claim)
            self._on_end()

    def _live(self) -> None:
        row, job = self._ledger.read()
        if row.launcher is None and not self.run.launch.exists():
            report = self._launch(job)
            if report is not None:
                self._close(report)
                return
        self._watch(job, self._relay(row, job))

    def _launch(self, job: Job) -> ExitReport | None:
        """Starts the supervisor. An ExitReport where the attempt cannot start."""
        try:
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
            launch.prepare(self.run, spec, plan)
            launch.start(self.run)
        except DataError as error:
            return ExitReport(reason=EndReason.DATA_ERROR, message=error.message)
        except (ConfigError, InvalidSpec) as error:
            return ExitReport(reason=EndReason.CONFIG_ERROR, message=error.message)
        except OSError as error:
            return ExitReport(reason=EndReason.LAUNCH_FAILED, message=f"the attempt cannot be prepared: {error}")
        return None

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
            self._say(f"{len(skipped)} damaged checkpoints were skipped: {', '.join(row.id for row in skipped)}")
        if found is None:
            return None
        self._say(f"resumes from checkpoint {found.id} (step {found.step})", level="info")
        return self.run.resume

    def _copy(self, checkpoint: Checkpoint, folder: Path) -> bool:
        for file in checkpoint.files:
            target = folder / file["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if not self._host.blobs.copy_out(file["sha256"], target):
                return False
        return True

    def _say(self, text: str, *, level: str = "warning") -> None:
        row, _ = self._ledger.read()
        event = NewEvent("message", {"level": level, "text": text}, time.time_ns() // 1000)
        self._ledger.record(Batch(offsets=row.offsets, events=[event]))

    def _relay(self, row: Attempt, job: Job) -> Relay:
        row, _ = self._ledger.read()
        listed = [item.name for item in self._ledger.checkpoints() if item.attempt == self.claim.number]
        offsets = {str(name): int(offset) for name, offset in row.offsets.items()}
        return Relay(self.run, self._host.blobs, offsets=offsets, listed=listed, world_size=len(job.devices))

    def _watch(self, job: Job, relay: Relay) -> None:
        state, recorded, started = JobState(job.state), False, time.monotonic()
        while not self._leaving.is_set():
            supervisor = read_record(self.run.supervisor, ProcessIdentity)
            if supervisor is not None and not recorded:
                self._ledger.launched(supervisor)
                recorded = True
            report = self._report(supervisor, waited=time.monotonic() - started)
            self._pass_on(relay, final=report is not None)
            completed = report is not None and report.reason is EndReason.COMPLETED
            if state is JobState.STARTING and (completed or self._every_rank_exists(len(job.devices))):
                state = self._ledger.running(Reason("running", f"{len(job.devices)} processes run"))
            if report is not None:
                self._close(report)
                return
            self._obey(job)
            self._wake.wait(_POLL_S)
            self._wake.clear()

    def _report(self, supervisor: ProcessIdentity | None, *, waited: float) -> ExitReport | None:
        """How the attempt ended, once nothing of it runs any more; None while it does."""
        if supervisor is None and waited < _SUPERVISOR_DEADLINE_S:
            return None
        if supervisor is not None and process.is_alive(supervisor):
            return None
        report = read_record(self.run.exit, ExitReport)
        if report is not None:
            return report if report.message else report.model_copy(update={"message": _MESSAGES.get(report.reason, "")})
        kill_attempt(self.run, self.claim)
        if supervisor is None:
            return ExitReport(reason=EndReason.WORKER_LOST, message="the worker stopped while it started the attempt")
        if supervisor.boot_id != process.boot_id():
            return ExitReport(reason=EndReason.WORKER_LOST, message="the host was restarted")
        return ExitReport(reason=EndReason.KILLED, message="the attempt's supervisor was killed")

    def _pass_on(self, relay: Relay, *, final: bool) -> None:
        batches = 0
        while final or batches < _BATCHES_A_POLL:
            try:
                batch = relay.read(final=final)
            except OSError as error:
                logger.warning("%s: cannot relay: %s", self.claim.job_id, error)
                if not final or self._leaving.wait(_INTENT_S):
                    return
                continue
            if batch is None:
                return
            self._ledger.record(batch)
            relay.stored(batch)
            batches += 1

    def _every_rank_exists(self, world_size: int) -> bool:
        return all((self.run.ranks / f"{rank}.json").exists() for rank in range(world_size))

    def _obey(self, job: Job) -> None:
        if self._stop is not EndReason.CANCELLED and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _INTENT_S
            try:
                if self._ledger.cancel_requested():
                    self._stop = EndReason.CANCELLED
            except Unavailable as error:
                logger.warning("%s: cannot look for a cancel: %s", self.claim.job_id, error.message)
        if self._stop is not None and not self.run.stop.exists():
            grace = parse_duration(job.spec["stop_grace"])
            if self._stop is EndReason.PREEMPTED:
                grace = min(grace, _SHUTDOWN_GRACE)
            write_record(self.run.stop, StopRequest(reason=self._stop, grace=grace))

    def _close(self, report: ExitReport) -> None:
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


def kill_attempt(run: RunDir, claim: Claim) -> None:
    """Stops every process of an attempt whose records are closed: first by its supervisor, then by search."""
    if run.root.exists() and not run.stop.exists():
        write_record(run.stop, StopRequest(reason=EndReason.WORKER_LOST, grace=timedelta()))
    supervisor = read_record(run.supervisor, ProcessIdentity)
    deadline = time.monotonic() + _KILL_DEADLINE_S
    while supervisor is not None and process.is_alive(supervisor) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    left = process.kill_attempt(claim.job_id, claim.number, timeout=timedelta(seconds=_KILL_DEADLINE_S))
    if left:
        logger.error(
            "%s: these processes cannot be killed: %s", claim.job_id, ", ".join(str(item.pid) for item in left)
        )


def kill_strays(runs: Path, adopted: list[Claim]) -> None:
    """Stops what still runs here of attempts that were rescued while this worker was away."""
    ours = {(claim.job_id, str(claim.number)) for claim in adopted}
    for path in runs.glob("job_*/*/supervisor.json"):
        run = RunDir(path.parent)
        supervisor = read_record(path, ProcessIdentity)
        if (run.root.parent.name, run.root.name) in ours or supervisor is None or not process.is_alive(supervisor):
            continue
        logger.warning("%s: attempt %s was rescued; its processes are stopped", run.root.parent.name, run.root.name)
        kill_attempt(run, Claim(attempt_id=0, job_id=run.root.parent.name, number=int(run.root.name)))
