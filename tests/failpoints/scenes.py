"""What the programs do to the store and to Redis, scene by scene, with their own code; a child plays each."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
import logging
import os
from pathlib import Path
import sys
import threading
import time
from typing import Any

from api.auth import ADMIN
from api.routes import cluster, jobs, submission
from api.services import Services
from store.blobs import Blobs
from store.db.database import Database
from store.queue import Queue
from store.rows import deletion
from store.rows.attempts import Batch, Claim
from store.rows.idempotency import KeyedRequest
from store.rows.jobs import Reason
from store.rows.logs import NewLines
from store.rows.metrics import NewPoint
from store.settings import Settings
from tests.store.yard import checkpoint
from torchyard import failpoints
from torchyard.job import EndReason
from torchyard.rundir import ExitReport, LaunchPlan, ProcessIdentity
from torchyard.views import DeviceView
from worker.attempts import prepare as launch
from worker.attempts import runner
from worker.attempts.records import Ledger
from worker.cleanup.rundirs import RunDirs
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.placement.scheduler import Scheduler

SPEC = b'{"trainer": "script", "name": "once", "config": {"code": "file:///code"}}'
STEPS = (1, 2)

_LAUNCHER = Path(__file__).parent.parent / "worker" / "launcher.py"


def _delete(parts: Services, job_id: str) -> None:
    jobs.delete_job(parts, ADMIN, job_id)
    deletion.collect(parts.database, parts.blobs)  # as the answer's background task


REQUESTS: dict[str, Callable[[Services, str], object]] = {
    "submit": lambda parts, _: submission.submit_job(parts, ADMIN, SPEC, KeyedRequest("admin", "once", "the same")),
    "change": lambda parts, job_id: jobs.change_job(parts, ADMIN, job_id, b'{"priority": 7}'),
    "cancel": lambda parts, job_id: jobs.cancel_job(parts, ADMIN, job_id),
    "pause": lambda parts, job_id: jobs.pause_job(parts, ADMIN, job_id),
    "resume": lambda parts, job_id: jobs.resume_job(parts, ADMIN, job_id),
    "delete": _delete,
    "drain": lambda parts, worker_id: cluster.drain_worker(parts, ADMIN, worker_id),
}
"""What the API does for a request about a job or a worker."""


def request(settings: Settings, what: str, subject: str) -> None:
    parts = Services.of(settings, token="-")
    try:
        REQUESTS[what](parts, subject)
    finally:
        parts.queue.close()
        parts.database.close()


def collect(settings: Settings) -> None:
    database = Database(settings.database)
    try:
        deletion.collect(database, Blobs(settings.blobs))
    finally:
        database.close()


def remove_orphans(settings: Settings) -> None:
    database = Database(settings.database)
    try:
        run_dirs = RunDirs(settings.runs, database, keep=None, keep_bytes=None, busy=list)
        for _ in run_dirs.sweep(orphan_age=timedelta()):
            pass
    finally:
        database.close()


def work(settings: Settings, worker_id: str) -> None:
    """A worker takes what waits and fits, and reports it to its end. Raises StaleClaim."""
    with _store(settings) as (database, queue):
        for claim in _take(database, queue, worker_id):
            report(database, queue, claim)


def look(settings: Settings, worker_id: str) -> None:
    """A worker's look at the queue."""
    with _store(settings) as (database, queue):
        _take(database, queue, worker_id)


def report(database: Database, queue: Queue, claim: Claim) -> None:
    """All that a worker stores of an attempt: two batches, the second with a checkpoint, and its end."""
    ledger = Ledger(database, claim, leaving=threading.Event(), announce=queue.announce)
    ledger.read()
    ledger.prepared(0)
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    ledger.launched(me)
    ledger.running(Reason("running", "1 process runs"))
    for step in STEPS:
        points = [NewPoint("loss", step, 1 / step, step)]
        lines = [NewLines(0, "stdout", [f"attempt {claim.number}, step {step}"])]
        saved = [checkpoint(f"step-{step}", step=step)] if step == STEPS[-1] else []
        ledger.record(Batch(offsets={"events.jsonl": step}, points=points, lines=lines, checkpoints=saved))
    ledger.end(ExitReport(reason=EndReason.COMPLETED))


def serve(settings: Settings, speed: float, patience: float, argv: list[str] | None = None) -> None:
    """A daemon whose clock goes `speed` times as fast, and which waits `patience` seconds for a supervisor to come.

    `argv` is started in torchrun's place; attempts after the first meet no failpoint.
    """
    logging.basicConfig(filename=settings.root / "worker.log", level=logging.INFO, force=True)
    setattr(runner, "_SUPERVISOR_DEADLINE_S", patience)  # noqa: B010 not to be set by anybody else
    if argv is not None:
        _start_in_torchruns_place(argv)
    slots = Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),))
    Daemon(settings, slots, clock=lambda: time.monotonic() * speed).serve()


def ranks(script: Path) -> list[str]:
    """Starts one rank with `script`, as torchrun would, without torch."""
    return [sys.executable, "-P", str(_LAUNCHER), "1", str(script)]


def _start_in_torchruns_place(argv: list[str]) -> None:
    planned = launch.plan

    def plan(*arguments: Any, claim: Claim, **options: Any) -> LaunchPlan:
        if claim.number > 1:
            os.environ.pop(failpoints.VARIABLE, None)
            failpoints.arm()
        return planned(*arguments, claim=claim, **options).model_copy(update={"argv": argv})

    launch.plan = plan


def _take(database: Database, queue: Queue, worker_id: str) -> list[Claim]:
    claims: list[Claim] = []
    device = DeviceView(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
    Scheduler(
        worker_id=worker_id,
        name="box",
        database=database,
        queue=queue,
        observe=lambda: [device],
        may_claim=lambda: True,
        start=claims.append,
    ).claim()
    return claims


@contextmanager
def _store(settings: Settings) -> Generator[tuple[Database, Queue]]:
    database, queue = Database(settings.database), Queue(settings.redis)
    try:
        yield database, queue
    finally:
        queue.close()
        database.close()
