"""Daemons of one pool over a real store and Redis. The cluster is an engine without processes, which outlives them."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
import threading
import time
from typing import Any

from scheduling.snapshot import Placement
from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.worker.verbs import WorkerStore
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from tests.worker.engines.memory import MemoryEngine, Simulated
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import DeviceReport, IsolationReport, PoolNodes, PoolReport
from torchyard.contract.states import JobState
from worker.daemon import Daemon
from worker.devices.inventory import Inventory
from worker.direct import DirectService
from worker.engines.base import NodeDevices
from worker.host.attempt_key import AttemptKey
from worker.pools import Pool
from worker.settings import Settings

HERE, THERE = "here/boot-1", "there/boot-2"
"""Two daemons of the pool, on two hosts."""


def report(**changes: Any) -> PoolReport:
    values: dict[str, Any] = {"partition": "gpu", "kind": "cpu", "nodes": PoolNodes(count=4, devices=2)}
    return PoolReport(**(values | changes))


def node(host: str, *slots: int) -> NodeDevices:
    devices = [DeviceReport(index=slot, uuid=f"cpu-{host}-{slot}", name="CPU slot", kind="cpu") for slot in slots]
    return NodeDevices(host, tuple(devices))


@dataclass
class PoolFixture:
    folder: Path
    store: StoreFixture
    redis_url: str
    cluster: MemoryEngine = field(default_factory=lambda: MemoryEngine(Inventory(())))
    report: PoolReport = field(default_factory=report)
    ahead: float = 0.0
    """How far the daemons' clock is set forward."""

    def __post_init__(self) -> None:
        self.cluster.announces = True

    def daemon(self, holder: str = HERE) -> Daemon:
        settings = Settings(
            data_dir=self.folder / "data",
            database_url=self.store.database.engine.url.render_as_string(hide_password=False),
            redis_url=self.redis_url,
            pool="slurm:gpu",
            allow_paths=str(self.code),
        )
        settings.home.mkdir(parents=True, exist_ok=True)
        pool = Pool("gpu", lambda: self.report, IsolationReport(level="off"), holder)
        return Daemon(
            settings,
            self.cluster,
            DirectService.of(settings, holder=holder),
            pool=pool,
            clock=lambda: time.monotonic() + self.ahead,
        )

    @property
    def code(self) -> Path:
        folder = self.folder / "code"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").touch()
        return folder

    def submit(self, *, nodes: int = 2, **spec: Any) -> str:
        resources = {"nodes": nodes, "devices_per_node": 1, "device": "cpu", "pool": "gpu"}
        return self.store.submit(resources=resources, config={"code": f"file://{self.code}"}, **spec)

    def claimed(self, daemon: Daemon, holder: str = HERE, **spec: Any) -> Claim:
        """Claims a new job for the daemon, which finds it when it starts."""
        store = WorkerStore(store_on(self.store.database), daemon.id, holder=holder)
        store.register("gpu", self.report)
        job_id, placement = self.submit(**spec), Placement(daemon.id, ())
        claim = self.store.write(lambda session: claims.claim(session, job_id, placement, holder=holder))
        assert claim is not None
        return claim

    def run(self, claim: Claim) -> RunDir:
        return RunDir(self.folder / "data" / "pools" / "gpu" / "runs" / claim.job_id / str(claim.number))

    def started(self, claim: Claim) -> Simulated:
        key = AttemptKey(claim.job_id, claim.number)
        wait_for(lambda: key in self.cluster.attempts, "the start")
        return self.cluster.attempts[key]

    def running(self, claim: Claim) -> Simulated:
        found = self.started(claim)
        found.nodes = (node("n1", 0), node("n2", 0))
        found.ranks = 2
        wait_for(lambda: self.store.job(claim.job_id).state == JobState.RUNNING, "running")
        return found


@contextmanager
def serving(daemon: Daemon) -> Generator[threading.Thread]:
    """Runs the daemon during the block. Then it leaves, and its jobs go on."""
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        yield thread
    finally:
        daemon.leave()
        thread.join(90)
        assert not thread.is_alive()
