"""One job whose code is a bundle, and the attempts of it that runners carry out on hosts, one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
import functools
from pathlib import Path
from typing import Any

from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.bundles import bundles
from store.db.database import Database
from tests.store.fixture import StoreFixture
from tests.worker.attempts.fixture import INVENTORY, SimulatedRunnerFixture, worker_context
from tests.worker.bundles.tars import Tree, store, tar_of
from tests.worker.engines.memory import MemoryEngine, Simulated
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.states import EndReason
from worker.attempts.context import WorkerContext

CODE: Tree = {"train.py": (b"print(1)", False), "lib/a.py": (b"a = 1", False)}


@dataclass
class Hosts:
    """The hosts `a` and `b` of one service, each with a data directory and an engine of its own."""

    folder: Path
    database: Database
    job_id: str = ""
    allowed: tuple[Path, ...] = ()
    """The folders of which the hosts let jobs read."""
    runners: list[SimulatedRunnerFixture] = field(default_factory=list[SimulatedRunnerFixture])
    _hosts: dict[str, tuple[str, WorkerContext, MemoryEngine]] = field(default_factory=dict[str, Any])

    @classmethod
    def with_job(
        cls, folder: Path, database: Database, *, config: Mapping[str, Any] | None = None, **spec: Any
    ) -> "Hosts":
        """Submits the job."""
        made = cls(folder, database)
        made.job_id = made.submit(config=config, **spec)
        return made

    @property
    def store(self) -> StoreFixture:
        return StoreFixture(self.database)

    @property
    def last(self) -> SimulatedRunnerFixture:
        return self.runners[-1]

    def submit(self, *, config: Mapping[str, Any] | None = None, tree: Tree = CODE, **spec: Any) -> str:
        """Submits a job with this code, and returns its id."""
        sha256 = store(BlobFolder(self.folder / "blobs"), tar_of(tree))
        for owner in ("ada", "bob"):
            self.store.write(functools.partial(bundles.add, owner=owner, sha256=sha256, size=1, files=len(tree)))
        return self.store.submit(config={"code": bundle_url(sha256)} | dict(config or {}), **spec)

    def retry(self, *, owner: str = "ada", **wanted: Any) -> str:
        """Retries the job, which has ended. From now on, attempts are of the new job."""
        self.job_id = self.store.retry(self.job_id, owner=owner, **wanted)
        return self.job_id

    def claim(self, host: str = "a") -> SimulatedRunnerFixture:
        """Claims the job for a host, and returns what carries the attempt out, which is not started."""
        worker_id, context, engine = self._host(host)
        self.store.hold_back(self.job_id, seconds=-1)
        claim = self.store.starting(self.job_id, worker_id, f"slot-{host}-{len(self.runners)}")
        self.runners.append(SimulatedRunnerFixture(self.store, context, engine, claim))
        return self.last

    def start(self, host: str = "a") -> Simulated:
        """Has the next attempt run on a host."""
        return self.claim(host).start_ranks()

    def end(self, reason: EndReason = EndReason.USER_ERROR) -> None:
        """Ends the newest attempt, as its program does after a first step, or an instruction."""
        self.store.step(self.last.claim)
        if reason is EndReason.PAUSED:
            self.last.request_stop("pause")
        elif reason is EndReason.PREEMPTED:
            self.last.runner.instructions.request_preempt()
        else:
            self.last.engine.attempts[self.last.key].end(reason)
        self.last.wait_for_end()
        if reason is EndReason.PAUSED:
            self.store.resume(self.job_id)

    def lose(self) -> Claim:
        """Lets the lease of the newest attempt expire while its host lives, and its worker is frozen."""
        self.last.detach()
        self.store.expire(self.last.claim)
        assert self.store.rescue(self.last.claim)
        return self.last.claim

    def write(self, path: str, content: bytes) -> Path:
        """Writes a file as the newest attempt does, into its working folder."""
        file = self.last.run.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def messages(self) -> list[str]:
        return self.last.messages()

    def close(self) -> None:
        for runner in self.runners:
            runner.close()

    def _host(self, name: str) -> tuple[str, WorkerContext, MemoryEngine]:
        if name not in self._hosts:
            engine = MemoryEngine(INVENTORY)
            context = worker_context(self.folder, self.database, engine, allowed=self.allowed)
            context = replace(context, runs=self.folder / name / "runs")
            self._hosts[name] = self.store.worker(f"box-{name}"), context, engine
        return self._hosts[name]
