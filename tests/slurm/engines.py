"""The engine of a partition on a lab, with programs of known behaviour for the conformance suite."""

from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal
import uuid

from tests.slurm.lab import SlurmLab
from tests.worker.attempt import wait_for
from tests.worker.engines.fixtures import Program, plan_of, write_program
from torchyard.contract.attempts.rundir import Env, RunDir
from worker.engines.base import AttemptPlan, ClusterRequest, Handle
from worker.engines.slurm.engine import SlurmEngine
from worker.engines.slurm.pool import PoolSettings
from worker.engines.slurm.records import NodeRules, Timing
from worker.host.attempt_key import AttemptKey

QUICK = Timing(beat_s=0.5, silence_s=10.0, kill_s=10.0, disk_s=20.0, fresh_s=15.0, gather_s=120.0)


class LabEngineFixture:
    """Attempts with one rank on each of two nodes, or with two ranks on one."""

    devices: list[str] = []
    is_ended_by_others = True

    def __init__(self, folder: Path, lab: SlurmLab, *, nodes: int) -> None:
        self._lab, self._nodes = lab, nodes
        self._pool, self._code = folder / "pool", folder / "code"
        self._code.mkdir()
        self._engines: list[SlurmEngine] = []
        self.engine = self.later_engine()

    def plan(self, program: Program) -> AttemptPlan:
        script = write_program(self._code, program)
        key = AttemptKey(f"job_{uuid.uuid4().hex}", 1)
        run = self._run(key)
        run.create()
        env = {Env.JOB_ID: key.job_id, Env.ATTEMPT: "1", Env.RUN_DIR: str(run.job)}
        plan = plan_of(key, self._code, [str(script)], {str(name): value for name, value in env.items()})
        cluster = ClusterRequest(nodes=self._nodes, devices_per_node=2 // self._nodes, kind="cpu")
        return replace(plan, devices=(), cluster=cluster, stop_grace=timedelta(seconds=20))

    def later_engine(self) -> SlurmEngine:
        engine = SlurmEngine(
            self._pool / "runs",
            service_id="conformance",
            pool=PoolSettings(partition="main", cpu_slots=2),
            rules=NodeRules(root=str(self._pool), readable=[str(self._code)]),
            environ={**os.environ, **self._lab.environment()},
            timing=QUICK,
            apart_s=4.0,
            list_every_s=0.5,
        )
        self._engines.append(engine)
        return engine

    def wait_for_ranks(self, handle: Handle) -> None:
        run = self._run(handle.key)
        wait_for(lambda: all((run.job / f"ready-{rank}").exists() for rank in range(2)), "the ranks")

    def wait_for_program(self, handle: Handle) -> None:
        wait_for(self._run(handle.key).exit.exists, "the end of all processes")

    def kill_supervisor(self, handle: Handle) -> None:
        """Kills the coordinator."""
        for command in self._commands():
            for pid, text in command.items():
                if "worker.engines.slurm.batch" in text and handle.key.job_id in text:
                    os.kill(pid, signal.SIGKILL)

    def has_ended(self, handle: Handle) -> bool:
        return not any(handle.key.job_id in text for commands in self._commands() for text in commands.values())

    def clean_up(self) -> None:
        for engine in self._engines:
            engine.close()
        self._lab.run("scancel", "--user=root")
        wait_for(lambda: not self._lab.run("squeue", "--noheader").stdout, "the end of Slurm's jobs")

    def _commands(self) -> list[dict[int, str]]:
        return [self._lab.commands(number) for number, _ in enumerate(self._lab.nodes, 1)]

    def _run(self, key: AttemptKey) -> RunDir:
        return RunDir(self._pool / "runs" / key.job_id / str(key.number))
