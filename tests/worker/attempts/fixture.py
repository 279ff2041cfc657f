"""A claimed job and its runners, one after the other, over a real store."""

from dataclasses import dataclass, field, replace
from pathlib import Path
import threading
from typing import Generic, TypeVar

from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.output import logs
from store.tables import Attempt as AttemptRow
from store.tables import Job
from store.worker.verbs import WorkerStore
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from tests.worker.engines.memory import MemoryEngine, Simulated
from torchyard.contract.attempts.events import CheckpointSaved
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import JobState
from torchyard.run.publishing import publish
from worker.attempts.context import WorkerContext
from worker.attempts.runner import Runner
from worker.devices.health import Health
from worker.devices.inventory import Device, Inventory
from worker.engines.base import Engine
from worker.host.attempt_key import AttemptKey
from worker.packages.rules import PackageRules

INVENTORY = Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),))

EngineT = TypeVar("EngineT", bound=Engine)


def worker_context(
    folder: Path,
    database: Database,
    engine: Engine,
    *,
    worker_id: str = "wrk_1",
    allowed: tuple[Path, ...] = (),
    package_rules: PackageRules | None = None,
) -> WorkerContext:
    store = store_on(database, blobs=BlobFolder(folder / "blobs"))
    context = WorkerContext(
        WorkerStore(store, worker_id), engine, folder / "runs", allowed, Health(), threading.Event()
    )
    return context if package_rules is None else replace(context, package_rules=package_rules)


@dataclass
class RunnerFixture(Generic[EngineT]):
    """The first attempt of a claimed job, and the runners that carry it out."""

    store: StoreFixture
    context: WorkerContext
    engine: EngineT
    claim: Claim
    runners: list[Runner] = field(default_factory=list[Runner])

    @property
    def run(self) -> RunDir:
        return RunDir(self.context.runs / self.claim.job_id / str(self.claim.number))

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.claim.job_id, self.claim.number)

    @property
    def blobs(self) -> BlobFolder:
        found = self.context.store.blobs
        assert isinstance(found, BlobFolder)
        return found

    @property
    def runner(self) -> Runner:
        return self.runners[-1]

    @property
    def job(self) -> Job:
        return self.store.job(self.claim.job_id)

    @property
    def row(self) -> AttemptRow:
        return self.store.attempt(self.claim)

    def start_runner(self, *, preempted: bool = False) -> None:
        if self.context.store.worker_id != self.claim.worker_id:
            store = store_on(self.store.database, blobs=self.blobs)
            self.context = replace(self.context, store=WorkerStore(store, self.claim.worker_id))
        self.runners.append(Runner(self.context, self.claim))
        if preempted:
            self.runner.instructions.request_preempt()
        self.runner.start()

    def request_stop(self, stop: str = "cancel") -> None:
        """The owner requests a stop, and the worker is woken."""
        getattr(self.store, stop)(self.claim.job_id)
        self.runner.instructions.recheck_intents()

    def wait_for_end(self) -> Job:
        wait_for(lambda: self.runner.done, "the runner's end")
        return self.job

    def detach(self) -> None:
        self.runner.instructions.request_detach()
        wait_for(lambda: self.runner.done, "the runner's end")

    def lines(self) -> list[str]:
        return [
            line.text
            for line in self.store.read(lambda s: logs.list_after(s, self.claim.job_id, line=0, limit=1000).items)
        ]

    def messages(self) -> list[str]:
        return [event.data["text"] for event in self.store.events(self.claim.job_id) if event.type == "message"]

    def close(self) -> None:
        for runner in self.runners:
            runner.instructions.request_detach()
            runner.join(120)


@dataclass
class SimulatedRunnerFixture(RunnerFixture[MemoryEngine]):
    """A runner on an engine without processes."""

    def start_ranks(self) -> Simulated:
        """Starts the attempt, and waits for all its ranks."""
        self.start_runner()
        wait_for(lambda: self.key in self.engine.attempts, "the start")
        self.engine.attempts[self.key].ranks = 1
        wait_for(lambda: self.job.state == JobState.RUNNING, "running")
        return self.engine.attempts[self.key]

    def write_log(self, text: str) -> None:
        """Appends to the stdout of rank 0."""
        with self.run.log("rank-0", "stdout").open("a") as log:
            log.write(text)

    def save_checkpoint(self, step: int) -> None:
        name = f"step-{step:08d}"
        publish(self.run.checkpoints, name, {"state.pt": bytes([step])}, Manifest(step=step, files=[]))
        with self.run.events.open("a") as events:
            events.write(CheckpointSaved(time=0, name=name).to_json() + "\n")
