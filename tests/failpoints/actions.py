"""Actions of the programs on the store and Redis, with their own code. Each runs in an `ArmedProcess`."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
import logging
import os
from pathlib import Path
import sys
import threading
import time
from typing import Literal

from api.submissions import Submissions
from controller.duties import Dependencies, Idle
from controller.notifications.deliver import FanOut, Upkeep
from controller.sweeps.duty import Sweeps
from store import housekeeping as cleanup
from store.attempts import stacks
from store.attempts.facts import Claim
from store.blobs.partial import PartialFile
from store.blobs.writer import Blob
from store.bundles import upload as uploads
from store.bundles.folder import Uploads
from store.bundles.upload import Upload
from store.cluster import shown_workers as workers
from store.jobs import batches, requests
from store.jobs import submit as submission
from store.jobs.submission import KeyedRequest, Submission
from store.models import models
from store.models.facts import NewVersion
from store.notifications import deliver
from store.notifications.facts import MessageFacts
from store.output.facts import Batch, MetricPoint, NewArtifact, NewLines
from store.reaches import reaches
from store.store import Store
from store.sweeps import requests as sweeps
from store.team import users
from store.team.callers import SERVICE, Caller
from store.worker.placing import Placer
from store.worker.verbs import WorkerStore
from tests.api.bundles import packed
from tests.store.fixture import checkpoint
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.attempts.records import ExitReport, NodePart
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import Conflict, TooManyRequests
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.reach.orders import Order
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, Reason
from torchyard.contract.team.roles import Role
from torchyard.host import failpoints
from torchyard.host.identity import identity_of
from worker.attempts.records import AttemptRecords
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.direct import DirectService
from worker.engines.base import AttemptPlan
from worker.engines.local import supervisors
from worker.engines.local.engine import LocalEngine
from worker.settings import Settings

STEPS = (1, 2)

_LAUNCHER = Path(__file__).parent.parent / "worker" / "launcher.py"


def _submit(store: Store, _: str) -> None:
    keyed = KeyedRequest("admin", "once", "the same")
    spec = parse_spec({"trainer": "script", "name": "once", "config": {"code": "file:///code"}})
    submission.submit_alone(store, Submission(spec, SERVICE, "private", keyed))


def _disable(store: Store, name: str) -> None:
    with store.write("team") as session:
        users.change(session, name, disabled=True, caller=SERVICE)


def _delete(store: Store, job_id: str) -> None:
    with store.write("delete") as session:
        requests.act(session, "delete", job_id, caller=SERVICE)
    cleanup.collect_garbage(store)  # as after the API's answer


def _change(store: Store, job_id: str) -> None:
    with store.write("change") as session:
        requests.change(session, job_id, parse_patch({"priority": 7}), caller=SERVICE)


def _ask(store: Store, job_id: str, *, action: Literal["cancel", "pause", "resume"]) -> None:
    with store.write(action) as session:
        requests.ask(session, action, job_id, caller=SERVICE)


def _request_stacks(store: Store, job_id: str) -> None:
    with store.write("stacks") as session:
        stacks.request(session, job_id)


def _open_reach(store: Store, job_id: str) -> None:
    with store.write("reach") as session:
        reaches.open_reach(session, job_id, Order(kind="ports"), caller=Caller("ada", Role.MEMBER))


def _drain(store: Store, worker_id: str) -> None:
    with store.write("drain") as session:
        workers.drain(session, worker_id, drain=True, caller=SERVICE)


def _add_model(store: Store, job_id: str) -> None:
    with store.write("model") as session:
        models.add_version(session, NewVersion("kept", job_id, "latest", None, "private", SERVICE))


def _upload(store: Store, _: str) -> None:
    """Sends what is missing of a bundle. It is refused while another request appends to it, which then completes it."""
    bundle = packed()
    found = Uploads(store.blobs.uploads).find(SERVICE.name, bundle.sha256)
    offset = found.received if found is not None else 0
    upload = Upload(bundle.sha256, len(bundle.tar), offset, max_bytes=1 << 20, max_files=10)
    with suppress(Conflict, TooManyRequests):
        opened = uploads.begin(store, upload, caller=SERVICE)
        if isinstance(opened, PartialFile):
            with closing(opened):
                uploads.append(opened, upload, bundle.tar[offset:])
                uploads.finish(store, opened, upload, caller=SERVICE)


REQUESTS: dict[str, Callable[[Store, str], object]] = {
    "submit": _submit,
    "change": _change,
    "cancel": partial(_ask, action="cancel"),
    "pause": partial(_ask, action="pause"),
    "resume": partial(_ask, action="resume"),
    "stacks": _request_stacks,
    "reach": _open_reach,
    "delete": _delete,
    "bundle": _upload,
    "model": _add_model,
    "team": _disable,
    "drain": _drain,
}
"""What the API runs for a request about a job or a worker."""


def request(settings: Settings, what: str, subject: str) -> None:
    with opened(settings) as store:
        REQUESTS[what](store, subject)


def submit_many(settings: Settings, count: int, answered: Path) -> None:
    """Submits jobs at the same moment, as clients of one API do. Appends the id of each that is answered to a file."""
    spec = parse_spec({"trainer": "script", "name": "many", "config": {"code": "file:///code"}})

    async def submit(submissions: Submissions, number: int) -> None:
        keyed = KeyedRequest("admin", f"key-{number}", "the same")
        made = await submissions.submit(Submission(spec, SERVICE, "private", keyed))
        with answered.open("a") as file:
            file.write(f"{made.job.id}\n")

    async def submit_all(submissions: Submissions) -> None:
        await asyncio.gather(*(submit(submissions, number) for number in range(count)))
        submissions.close()

    with opened(settings) as store:
        asyncio.run(submit_all(Submissions(store)))


def submit_batch(settings: Settings, parts: int, answered: Path) -> None:
    """Submits a batch in several transactions, as the API does, and writes the ids to a file when all are stored."""
    spec = parse_spec({"trainer": "script", "name": "many", "config": {"code": "file:///code"}})
    whole, found = KeyedRequest("admin", "batch", "the same"), dict[int, object]()
    with opened(settings) as store:
        for part in range(parts):
            wanted = {part * 10 + number: Submission(spec, SERVICE, "private") for number in range(10)}
            found |= batches.submit_part(store, wanted, whole=whole, atomic=False)
    answered.write_text(" ".join(map(str, found.values())))


def settle(settings: Settings) -> None:
    """Lets jobs go on, or fail, whose others have ended, as a controller does."""
    with opened(settings) as store:
        while Dependencies(store).run():
            pass


def look_for_idle(settings: Settings) -> None:
    """Warns jobs that do not use their GPUs, and stops them, as a controller does."""
    with opened(settings) as store:
        Idle(store, None).run()


def collect(settings: Settings) -> None:
    with opened(settings) as store:
        cleanup.collect_garbage(store)


def name_uploaded(settings: Settings, claim: Claim, blob: Blob) -> None:
    """Commits a row that names what a remote worker has uploaded."""
    with opened(settings) as store:
        named = Batch(offsets={}, artifacts=[NewArtifact("a", blob.size, blob.sha256)])
        WorkerStore(store, claim.worker_id, remote=True).append(claim, named, seq=0)


def control(settings: Settings) -> None:
    """Does what a controller does with sweeps, until nothing is due."""
    with opened(settings) as store:
        duty = Sweeps(store)
        while duty.run():
            pass


def pause_sweep(settings: Settings, sweep_id: str) -> None:
    with opened(settings) as store, store.write("sweeps") as session:
        sweeps.ask(session, "pause", sweep_id, caller=SERVICE)


def notify(settings: Settings, received: Path) -> None:
    """Makes messages of all signals, and sends them, as a controller does. Appends a line for each that arrives."""
    with opened(settings) as store:
        while FanOut(store).run():
            pass
        while claimed := _claimed_messages(store):
            for message in claimed:
                with received.open("a") as file:
                    file.write(f"{message.target.id} {message.body['data']['job']['id']} {message.id}\n")
                with store.write("message_result") as session:
                    deliver.mark_delivered(session, message.id)
        Upkeep(store).run()


def _claimed_messages(store: Store) -> list[MessageFacts]:
    with store.write("claim_messages") as session:
        return deliver.claim(session, store.secret_keys, count=10, lease_s=3600)


def work(settings: Settings, worker_id: str) -> None:
    """Claims the waiting jobs that fit and stores their attempts to the end, as a worker. Raises StaleClaim."""
    with opened(settings) as store:
        for claim in _claim(store, worker_id):
            report(store, claim)


def schedule(settings: Settings, worker_id: str) -> None:
    """Runs a worker's pass over the queue."""
    with opened(settings) as store:
        _claim(store, worker_id)


def report(store: Store, claim: Claim) -> None:
    """Stores what a worker stores of an attempt: two batches, the second with a checkpoint, and its end."""
    records = AttemptRecords(WorkerStore(store, claim.worker_id), claim, leaving=threading.Event())
    records.read()
    records.prepared(0, is_known=True)
    me = identity_of(os.getpid())
    assert me is not None
    records.launched_with_next_write(me.to_dict())
    records.write_begun()
    records.running_with_next_write(Reason("running", "1 process runs"))
    records.write_begun()
    for step in STEPS:
        points = [MetricPoint("loss", step, 1 / step, step)]
        lines = [NewLines(0, "stdout", [f"attempt {claim.number}, step {step}"])]
        saved = [checkpoint(f"step-{step}", step=step)] if step == STEPS[-1] else []
        records.record(Batch(offsets={"events.jsonl": step}, points=points, lines=lines, checkpoints=saved))
    records.store_stacks(1, 2, [])
    records.end(ExitReport(reason=EndReason.COMPLETED))


def run_daemon(settings: Settings, speed: float, patience: float, argv: list[str] | None = None) -> None:
    """Runs a daemon whose clock is `speed` times as fast and which waits `patience` seconds for a supervisor.

    `argv` is started instead of torchrun; attempts after the first have no failpoints.
    """
    logging.basicConfig(filename=settings.root / "worker.log", level=logging.INFO, force=True)
    setattr(supervisors, "_DEADLINE_S", patience)  # noqa: B010 not to be set by anybody else
    slots = Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),))
    launcher = _InTorchrunsPlace(argv) if argv is not None else None
    local = LocalEngine(settings.runs, slots, launcher=launcher)
    Daemon(settings, local, DirectService.of(settings), clock=lambda: time.monotonic() * speed).serve()


def ranks(script: Path) -> list[str]:
    """Starts one rank with `script`, as torchrun would, without torch."""
    return [sys.executable, "-P", str(_LAUNCHER), "1", str(script)]


class _InTorchrunsPlace(TorchrunStandIn):
    """A stand-in for torchrun. Attempts after the first have no failpoints."""

    def command(self, plan: AttemptPlan, *, folder: Path, node: NodePart | None = None) -> list[str]:
        if plan.key.number > 1:
            os.environ.pop(failpoints.VARIABLE, None)
            failpoints.arm()
        return super().command(plan, folder=folder, node=node)


def _claim(store: Store, worker_id: str) -> list[Claim]:
    device = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
    placer = Placer(store)
    if not placer.anything_waits():
        return []
    return [claim for _, claim in placer.claims({worker_id: [device]}, may_claim=lambda: True)]


@contextmanager
def opened(settings: Settings) -> Generator[Store]:
    """Opens the store as a program does."""
    with closing(Store.of(settings, program="torchyard-action")) as store:
        yield store
