"""The engine of Slurm for tests, over a stand-in for Slurm's commands and for torchrun."""

from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal
import uuid

from tests.worker.attempt import LAUNCHER, wait_for
from tests.worker.engines.fixtures import Program, plan_of, write_program
from tests.worker.engines.slurm.stand_in import Slurm
from torchyard.contract.attempts.rundir import Env, RunDir
from worker.engines.base import AttemptPlan, ClusterRequest, Handle
from worker.engines.slurm.engine import SlurmEngine
from worker.engines.slurm.pool import PoolSettings
from worker.engines.slurm.records import NodeRules, Timing
from worker.host import process
from worker.host.attempt_key import AttemptKey

TIMING = Timing(beat_s=0.5, silence_s=25.0, kill_s=5.0, disk_s=10.0, fresh_s=12.0)
"""A host with much to do must not look as if it were lost."""


class SlurmEngineFixture:
    """Each attempt has one node with two ranks, or `nodes` with two each."""

    devices: list[str] = []
    is_ended_by_others = True

    def __init__(self, folder: Path, *, nodes: int = 1, silence_s: float = TIMING.silence_s) -> None:
        self.slurm = Slurm.install(folder / "slurm")
        self.nodes = nodes
        self._timing = replace(TIMING, silence_s=silence_s)
        self._pool = folder / "pool"
        self._code = folder / "code"
        self._code.mkdir()
        self._engines: list[SlurmEngine] = []
        self.engine = self.later_engine()

    def later_engine(self) -> SlurmEngine:
        engine = SlurmEngine(
            self._pool / "runs",
            service_id="the service",
            pool=PoolSettings(partition="main", cpu_slots=2),
            rules=NodeRules(root=str(self._pool), readable=[str(self._code), str(LAUNCHER.parent)]),
            environ=self.slurm.environ(),
            timing=self._timing,
            apart_s=1.0,
            list_every_s=1.0,
        )
        self._engines.append(engine)
        return engine

    def plan(self, program: Program) -> AttemptPlan:
        script = write_program(self._code, program)
        key = AttemptKey(f"job_{uuid.uuid4().hex}", 1)
        run = self.run(key)
        run.create()
        env = {Env.JOB_ID: key.job_id, Env.ATTEMPT: "1", Env.RUN_DIR: str(run.job)}
        plan = plan_of(key, self._code, [str(script)], {str(name): value for name, value in env.items()})
        cluster = ClusterRequest(nodes=self.nodes, devices_per_node=2, kind="cpu")
        return replace(plan, devices=(), cluster=cluster, stop_grace=timedelta(seconds=20))

    def wait_for_ranks(self, handle: Handle) -> None:
        run = self.run(handle.key)
        wait_for(lambda: all((run.job / f"ready-{rank}").exists() for rank in range(2)), "the ranks")

    def wait_for_program(self, handle: Handle) -> None:
        wait_for(self.run(handle.key).exit.exists, "the end of all processes")

    def kill_supervisor(self, handle: Handle) -> None:
        """Kills what starts and ends all processes of the attempt."""
        job = next(job for job in self.slurm.jobs() if job.name == handle.stored["name"])
        os.kill(job.batch, signal.SIGKILL)

    def has_ended(self, handle: Handle) -> bool:
        return not process.find(handle.key.job_id, handle.key.number)

    def clean_up(self) -> None:
        for engine in self._engines:
            engine.close()
        self.slurm.end()

    def run(self, key: AttemptKey) -> RunDir:
        return RunDir(self._pool / "runs" / key.job_id / str(key.number))
