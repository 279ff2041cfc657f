"""An attempt with real processes and without a database: its run directory, its supervisor and its ranks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
import functools
from io import BytesIO
import json
import os
from pathlib import Path
import sys
import time
from typing import Any, Literal
import uuid

import pytest

from store.blobs.folder import BlobFolder
from tests.worker.bundles.tars import folder_of
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.attempts.records import ExitReport, LaunchPlan, ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.bundles.tar import END, header, padding
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.spec.spec import ScriptSpec, parse_spec
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record, write_record
from worker.attempts.prepare import code
from worker.attempts.prepare.preparation import plan_of
from worker.attempts.prepare.workfolder import WorkFolder
from worker.bundles.cache import BundleCache
from worker.engines.base import AttemptPlan, NamedEnvironment
from worker.engines.local import supervisors
from worker.engines.local.confinement import Confinement
from worker.engines.local.launch_plans import launch_plan
from worker.engines.local.launchers.command import CommandLauncher
from worker.engines.local.launchers.torchrun import TorchrunLauncher
from worker.engines.local.launchers.warm import WarmLauncher
from worker.engines.local.supervisor import ranks
from worker.engines.local.warm.manager import WarmProcess
from worker.host import process
from worker.host.attempt_key import AttemptKey
from worker.host.datafolders import UNPACKED
from worker.sandbox import levels
from worker.sandbox.policy import sandbox_of, temporary_in
from worker.sandbox.writable import AttemptFolders, WritableFolders

EACH_LAUNCH = pytest.mark.parametrize("attempt", ["cold", "warm"], indirect=True)
"""Runs a test twice: with torchrun or its stand-in, and with forks of the warm process."""
WARM_LAUNCH = pytest.mark.parametrize(
    "attempt", [pytest.param("cold", marks=pytest.mark.thorough), "warm"], indirect=True
)
"""For what tests of EACH_LAUNCH, and tests that start cold, show of a cold launch as well."""

LAUNCHER = Path(__file__).with_name("launcher.py")
STAND_IN = [sys.executable, "-I", "-S", str(LAUNCHER)]
"""The command that stands in for torchrun, before the number of ranks and their script."""
DEADLINE_S = 90.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.1
_REST_FACTOR, _LONGEST_REST_S = 4.0, 1.0


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Polls until `condition` holds, less often the longer it takes. Fails with `what` after a deadline.

    It rests for several times as long as a look took: most ask a database, and what they wait for needs the processor.
    """
    deadline, pause_s = time.monotonic() + DEADLINE_S, _SHORTEST_PAUSE_S
    began = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"timed out while waiting for {what}"
        time.sleep(max(pause_s, min(_REST_FACTOR * (now - began), _LONGEST_REST_S)))
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        began = time.monotonic()


def named_inside(pid: int, supervisor: ProcessIdentity) -> ProcessIdentity:
    """Returns the process below the supervisor that has this pid in its own pid namespace."""
    found: list[ProcessIdentity] = []

    def look() -> bool:  # one look may miss a process that loses its parent meanwhile
        found[:] = [item for item in process.descendants(supervisor.pid) if ranks.as_recorded(item).pid == pid]
        return bool(found)

    wait_for(look, "the process below the supervisor")
    return found[0]


def rank_of(run: RunDir, rank: int = 0) -> ProcessIdentity:
    """Returns a rank that runs."""
    supervisor = read_record(run.supervisor, ProcessIdentity)
    assert supervisor is not None
    found: dict[int, ProcessIdentity] = {}

    def runs() -> bool:
        found.update(ranks.running_ranks(run, process.descendants(supervisor.pid), ranks=[rank]))
        return rank in found

    wait_for(runs, f"rank {rank}")
    return found[rank]


@functools.cache
def isolation() -> IsolationReport:
    """Returns how a worker isolates jobs on this host by default."""
    return levels.level_of(levels.Isolation.AUTO)


def confinement(folder: Path, *, readable: Sequence[Path] = ()) -> Confinement:
    """Returns how a worker confines attempts by default. `folder`: its data directory."""
    return Confinement(
        isolation=isolation(), own_folders=WritableFolders(folder), readable=(LAUNCHER.parent, *readable)
    )


@dataclass
class Attempt:
    """One attempt of a job of its own. Its supervisor is a fork of `warm`, if that is given."""

    run: RunDir
    job_id: str
    number: int = 2
    world_size: int = 1
    warm: WarmProcess | None = None
    launcher: Literal["torchrun", "warm"] = "torchrun"
    """How `start` and `start_job` start the ranks. `start` uses the stand-in for torchrun."""
    claimed_at: int = 1
    """As in the attempt's row, if it has one."""
    isolation: IsolationReport = field(default_factory=isolation)
    writable: Sequence[Path] = ()
    """What the operator lets jobs write."""
    namespaces: bool = False
    """Whether the operator lets jobs make namespaces."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `start` gives the ranks beside the variables of every attempt."""
    gpus: bool = False
    """Whether `start` confines the attempt as one that has GPUs."""
    stand_in: bool = False
    """Whether `start_job` uses the stand-in for torchrun, too, which imports no torch."""

    @classmethod
    def create(
        cls, folder: Path, *, warm: WarmProcess | None = None, launcher: Literal["torchrun", "warm"] = "torchrun"
    ) -> "Attempt":
        run = RunDir(folder / "run")
        run.create()
        return cls(run, f"job_{uuid.uuid4()}", warm=warm, launcher=launcher)

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job_id, self.number)

    @property
    def confinement(self) -> Confinement:
        """That of a worker which allows the script's folder and the data in the run directory."""
        readable = (self.run.root / "code", *self.run.root.glob("*.npz"))
        found = confinement(self.run.root / "worker", readable=readable)
        return replace(found, isolation=self.isolation, writable=self.writable, namespaces=self.namespaces)

    @property
    def bundles(self) -> BundleCache:
        """Those of the worker, in whose store `add_bundle` puts one."""
        return BundleCache(self.run.root / "worker" / UNPACKED, BlobFolder(self.run.root / "blobs"))

    def add_bundle(self, files: Mapping[str, str | bytes]) -> str:
        """Stores a bundle, and returns its URL. A name that ends with `.sh` is executable."""
        encoded = {name: file.encode() if isinstance(file, str) else file for name, file in sorted(files.items())}
        content = b"".join(
            header(name, size=len(file), executable=name.endswith(".sh")) + file + padding(len(file))
            for name, file in encoded.items()
        )
        return bundle_url(folder_of(self.bundles.blobs).add(BytesIO(content + END)).sha256)

    @property
    def own_folders(self) -> AttemptFolders:
        return self.confinement.own_folders.of(self.key, owner="ada")

    @property
    def supervisor(self) -> ProcessIdentity:
        found = read_record(self.run.supervisor, ProcessIdentity)
        assert found is not None
        return found

    def script(self, text: str, *, name: str = "train.py") -> Path:
        path = self.run.root / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, text: str, **options: Any) -> None:
        """Runs `text` as the ranks' script. `options` as in `write`."""
        self.write(text, **options)
        supervisors.start(self.run, warm=self.warm)

    def write(
        self,
        text: str,
        *,
        world_size: int = 1,
        grace: int = 30,
        time_limit: int = 600,
        stall: int = 600,
        reports: bool = False,
    ) -> None:
        """Writes the plan to run `text` as the ranks' script."""
        self.world_size = world_size
        script = str(self.script(text))
        argv = [*STAND_IN, str(world_size), script] if self.launcher == "torchrun" else [script]
        plan = self.plan(argv, grace=grace, time_limit=time_limit, stall=stall)
        write_record(self.run.launch, replace(plan, reports=reports, launcher=self.launcher))

    def plan(self, argv: list[str], *, grace: int = 30, time_limit: int = 600, stall: int = 600) -> LaunchPlan:
        own_folders, confinement = self.own_folders, self.confinement
        own_folders.create()
        sandbox = sandbox_of(
            confinement.isolation,
            run=self.run,
            own_folders=own_folders,
            readable=confinement.readable,
            writable=confinement.writable,
            gpus=self.gpus,
            namespaces=self.namespaces,
        )
        own = own_folders.environment({}) | ({} if sandbox is None else {"TMPDIR": temporary_in(sandbox)})
        return LaunchPlan(
            job_id=self.job_id,
            attempt=self.number,
            claimed_at=self.claimed_at,
            argv=argv,
            env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **own, **self.environment()},
            sandbox=sandbox,
            cwd=str(self.run.job),
            world_size=self.world_size,
            time_limit=timedelta(seconds=time_limit),
            stall_timeout=timedelta(seconds=stall),
            stop_grace=timedelta(seconds=grace),
        )

    def environment(self) -> dict[str, str]:
        own = {Env.JOB_ID: self.job_id, Env.ATTEMPT: str(self.number), Env.RUN_DIR: str(self.run.job)}
        return {**own, **self.variables}

    def start_job(
        self,
        text: str,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        world_size: int = 2,
        resumes: bool = False,
    ) -> None:
        """Runs `text` as a job's script, as a worker does. `resumes`: from the checkpoint in its run directory."""
        self.script(text)
        config = {"code": f"file://{self.run.root}/code", "args": list(args)}
        spec = {"trainer": "script", "config": config, "env": dict(env or {})}
        self.start_spec(spec, world_size=world_size, resumes=resumes)

    def start_spec(
        self,
        document: Mapping[str, Any],
        *,
        world_size: int = 2,
        resumes: bool = False,
        environment: Path | None = None,
        named: NamedEnvironment | None = None,
    ) -> None:
        """Runs a job with this spec, as a worker does. Its data may be in the run directory.

        `environment`: the one with its own packages. `named`: the one of the host that it names.
        """
        self.world_size = world_size
        plan = self.plan_of_spec(document, devices=tuple(f"cpu-{rank}" for rank in range(world_size)), resumes=resumes)
        plan = replace(plan, environment=environment, named=named)
        cold = TorchrunStandIn() if self.stand_in else TorchrunLauncher()
        launcher = cold if self.launcher == "torchrun" else WarmLauncher()
        if plan.is_command:
            launcher = CommandLauncher()
        self.start_plan(
            launch_plan(
                plan,
                run=self.run,
                launcher=launcher,
                slots=world_size,
                devices=plan.devices,
                confinement=self.confinement,
            )
        )

    def plan_of_spec(
        self, document: Mapping[str, Any], *, devices: tuple[str, ...], resumes: bool = False
    ) -> AttemptPlan:
        """Prepares a job with this spec, as a worker does, and returns what an engine gets."""
        spec = parse_spec(dict(document))
        resolved = spec.model_dump(mode="json", include={"trainer", "config", "checkpoint"})
        self.run.config.write_text(json.dumps(resolved))
        unpacked = code.prepare(spec, run=self.run, bundles=self.bundles, owner="ada", allowed=[self.run.root])
        if code.CODE in unpacked:
            assert isinstance(spec, ScriptSpec)
            folder = WorkFolder(
                run=self.run,
                number=self.number,
                claimed_at=self.claimed_at,
                blobs=self.bundles.blobs,
                mounts=code.mounted(spec, [self.run.root], unpacked),
            )
            folder.take(unpacked[code.CODE])
        return plan_of(
            spec,
            key=self.key,
            owner="ada",
            claimed_at=self.claimed_at,
            run=self.run,
            devices=devices,
            resume_from=self.run.resume if resumes else None,
            time_left=timedelta(minutes=5),
            allowed=[self.run.root],
            secrets={},
            unpacked=unpacked,
        )

    def start_plan(self, plan: LaunchPlan) -> None:
        write_record(self.run.launch, plan)
        supervisors.start(self.run, warm=self.warm)

    def stop(self, reason: EndReason = EndReason.CANCELLED, *, grace: int = 30) -> None:
        write_record(self.run.stop, StopRequest(reason=reason, grace=timedelta(seconds=grace)))

    def wait_for_file(self, name: str) -> None:
        wait_for((self.run.job / name).exists, name)

    def report(self) -> ExitReport:
        """Waits until the attempt and its supervisor have ended, and returns the exit report."""
        wait_for(lambda: self.run.exit.exists() or not self._supervised(), "exit.json")
        report = read_record(self.run.exit, ExitReport)
        assert report is not None, self.run.supervisor_log.read_text()
        wait_for(lambda: not process.is_alive(self.supervisor), "the supervisor's end")
        return report

    def normalized(self, text: str) -> str:
        """Replaces what is another one for each attempt."""
        own = {str(self.run.root): "RUN", self.job_id: "JOB", str(self.own_folders.temporary): "TEMPORARY"}
        return functools.reduce(lambda found, item: found.replace(*item), own.items(), text)

    def running_processes(self) -> list[ProcessIdentity]:
        return process.find(self.job_id, self.number)

    def log(self, source: str, stream: str) -> str:
        return self.run.log(source, stream).read_text()

    def _supervised(self) -> bool:
        found = read_record(self.run.supervisor, ProcessIdentity)
        return found is None or process.is_alive(found)
