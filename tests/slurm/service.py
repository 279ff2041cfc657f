"""A service beside a lab: an API and the worker of a pool, whose folder the nodes see too."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
import os
from pathlib import Path
import secrets
import signal
import subprocess
import sys
import time
from types import MappingProxyType
from typing import Any, TypeVar

from tests.chaos.components import Program
from tests.servers import free_port, redis_server
from tests.slurm.lab import SlurmLab
from torchyard.client import Client
from torchyard.contract.errors import TorchyardError
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState

T = TypeVar("T")

PARTITION = "main"
DEADLINE = timedelta(minutes=2)
_START = timedelta(minutes=1)
_IDLE = timedelta(seconds=30)
_START_ARGUMENTS = (sys.executable, "-P", "-m")


class PoolService:
    """Made by `running`. Programs that end are started again, while somebody waits in `until`."""

    def __init__(self, lab: SlurmLab, *, redis: str, env: Mapping[str, str]) -> None:
        self.lab = lab
        self.data = lab.folder / "data"
        self.code = lab.folder / "code"
        self.logs = lab.folder / "logs"
        self.token = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.environment = {**os.environ, **lab.environment(), **self._variables(redis), **env}
        self.components = {
            "api": self._program("api", {}),
            "pool": self._program("worker", {"TORCHYARD_POOL": f"slurm:{PARTITION}"}),
        }

    def start(self) -> None:
        for folder in (self.data, self.code, self.logs, self.lab.folder / "tmp"):
            folder.mkdir(mode=0o700)
        migration = [*_START_ARGUMENTS, "migrations", "upgrade"]
        subprocess.run(migration, env=self.environment, check=True, capture_output=True)
        self.until(self._is_ready, what="the service is ready", within=_START)

    def stop(self) -> None:
        """Kills both programs; what runs in Slurm goes on."""
        for component in self.components.values():
            component.stop()

    def client(self, *, patience: float = 30.0) -> Client:
        return Client(self.url, self.token, patience=patience)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signals a program, which is started again half a second after its end."""
        self.components[name].send(number)

    def submit_script(
        self, name: str, text: str, *, nodes: int = 2, devices: int = 1, arguments: Sequence[str] = (), **spec: Any
    ) -> JobView:
        """Submits `train.py` with this text, to be run by `devices` ranks on each of the nodes."""
        folder = self.code / name
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(text)
        resources = {"nodes": nodes, "devices_per_node": devices, "pool": PARTITION}
        config = {"code": folder.as_uri(), "args": [*arguments], **spec.pop("config", {})}
        job = {"trainer": "script", "name": name, "config": config, "resources": resources, **spec}
        with self.client() as client:
            return client.submit(job).view

    def job(self, job_id: str) -> JobView:
        with self.client() as client:
            return client.get(job_id).view

    def wait(self, job_id: str, *states: JobState, within: timedelta = DEADLINE) -> JobView:
        """Waits until the job is in one of the states, of which any terminal one is the default."""

        def look() -> JobView | None:
            job = self.job(job_id)
            wanted = job.state in states if states else job.state.terminal
            assert wanted or not job.state.terminal, f"{job.state}: {job.error} {job.status_reason}\n{self.said()}"
            return job if wanted else None

        return self.until(look, what=f"{job_id} is {' or '.join(states) or 'over'}", within=within)

    def lines(self, job_id: str, *, rank: int | None = None) -> list[str]:
        """Returns what the job's ranks, or one of them, have printed to stdout."""
        with self.client() as client:
            return [line.text for line in client.jobs.logs(job_id, rank=rank) if line.stream == "stdout"]

    def curve(self, job_id: str, key: str) -> list[tuple[int, float]]:
        """Returns the steps and values of a series."""
        with self.client() as client:
            series = {series.key: series for series in client.jobs.metrics(job_id).data}
        return [(point.step, point.value) for point in series[key].points]

    def messages(self, job_id: str) -> list[str]:
        """Returns what the service has told the job's owner."""
        with self.client() as client:
            return [str(event.data["text"]) for event in client.jobs.events(job_id) if event.type == "message"]

    def until(self, look: Callable[[], T | None], *, what: str, within: timedelta = DEADLINE) -> T:
        """Polls `look`, and returns its first result that is neither None nor False."""
        deadline = time.monotonic() + within.total_seconds()
        while time.monotonic() < deadline:
            for component in self.components.values():
                component.keep_alive()
            found = look()
            if found is not None and found is not False:
                return found
            time.sleep(0.1)
        raise AssertionError(f"never came true: {what}\n{self.said()}")

    def idle(self) -> bool:
        """Whether Slurm has no job, and the nodes no process but their slurmd."""
        nodes = range(1, len(self.lab.nodes) + 1)
        left = [process for number in nodes for process in self.lab.processes(number)]
        return len(left) == len(self.lab.nodes) and not self.lab.run("squeue", "--noheader").stdout

    def jobs_in_slurm(self) -> list[dict[str, str]]:
        """Returns all jobs that Slurm remembers: their ids, names and states. None while it does not answer."""
        said = self.lab.run("squeue", "--noheader", "--states=all", "--format=%i|%j|%T", check=False).stdout
        return [dict(zip(("id", "name", "state"), line.split("|"), strict=True)) for line in said.splitlines()]

    def arm_pool(self, failpoints: str) -> None:
        """Kills the worker of the pool; the one that is started next has these failpoints."""
        env = {"TORCHYARD_POOL": f"slurm:{PARTITION}", "TORCHYARD_FAILPOINTS": failpoints}
        armed, before = self._program("worker", env), self.components["pool"]
        self.components["pool"] = armed
        before.stop()

    def run_folder(self, job_id: str, attempt: int = 1) -> Path:
        """Returns the run directory of an attempt."""
        return self.data / "pools" / PARTITION / "runs" / job_id / str(attempt)

    def said(self) -> str:
        """Returns the ends of all logs."""
        found = [*sorted(self.logs.glob("*.log")), *sorted(self.data.glob("pools/*/runs/*/*/ctl/*.log"))]
        found += sorted((self.lab.folder / "log").glob("*.log"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in found)

    def _is_ready(self) -> bool:
        try:
            with self.client(patience=0) as client:
                pools = [worker for worker in client.workers.list() if worker.state == "ready" and worker.pool]
                return client.ready().status == "ok" and bool(pools)
        except TorchyardError:
            return False

    def _program(self, module: str, env: Mapping[str, str]) -> Program:
        return Program([*_START_ARGUMENTS, module], env={**self.environment, **env}, log=self.logs / f"{module}.log")

    def _variables(self, redis: str) -> dict[str, str]:
        return {
            "TORCHYARD_DATA_DIR": str(self.data),
            "TORCHYARD_DATABASE_URL": f"sqlite:///{self.data / 'torchyard.db'}",
            "TORCHYARD_REDIS_URL": redis,
            "TORCHYARD_TOKEN": self.token,
            "TORCHYARD_PORT": self.url.rpartition(":")[2],
            "TORCHYARD_ALLOW_PATHS": str(self.code),
            "TMPDIR": str(self.lab.folder / "tmp"),
        }


@contextmanager
def running(lab: SlurmLab, *, env: Mapping[str, str] = MappingProxyType({})) -> Generator[PoolService]:
    """Runs a service beside the lab. At the end nothing of it may be left in Slurm and on the nodes."""
    with ExitStack() as stack:
        (lab.folder / "redis").mkdir()
        redis = stack.enter_context(redis_server(lab.folder / "redis"))
        service = PoolService(lab, redis=redis, env=env)
        stack.callback(service.stop)
        service.start()
        yield service
        service.until(service.idle, what="nothing is left in Slurm and on the nodes", within=_IDLE)
