"""`python -P -m worker` with TORCHYARD_POOL, over a stand-in for Slurm's commands."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
import signal

import pytest

from store.db.database import Database
from store.output import logs
from tests import forked
from tests.store.fixture import StoreFixture
from tests.worker.attempt import LAUNCHER, wait_for
from tests.worker.engines.slurm.stand_in import Slurm
from torchyard.contract.states import JobState

SCRIPT = """
import os, pathlib, time
run, rank = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), os.environ["RANK"]
print("rank", rank, flush=True)
(run / f"up-{rank}").touch()
while not (run / "done").exists(): time.sleep(0.05)
"""


@dataclass
class Service:
    folder: Path
    store: StoreFixture
    slurm: Slurm
    environ: dict[str, str]

    def refused(self, **settings: str) -> str:
        """Runs the program, which does not start. Returns what it says."""
        done = forked.run("worker", env=self.environ | settings, cwd=self.folder)
        assert done.returncode == 1
        return done.stderr

    @contextmanager
    def serving(self, *, ended_by: signal.Signals) -> Generator[None]:
        """Runs the program during the block, and then ends it by a signal."""
        log = self.folder / "worker.log"
        program = forked.ForkedProgram("worker", env=self.environ, cwd=self.folder, log=log)
        try:
            yield
        finally:
            program.send_signal(ended_by)
            program.wait()
        assert program.returncode == (0 if ended_by is not signal.SIGKILL else -signal.SIGKILL), self.log()

    def log(self) -> str:
        return (self.folder / "worker.log").read_text()

    def submit(self) -> str:
        resources = {"nodes": 2, "devices_per_node": 1, "device": "cpu", "pool": "main"}
        return self.store.submit(resources=resources, config={"code": f"file://{self.folder / 'code'}"})

    def run(self, job_id: str) -> Path:
        return self.folder / "data" / "pools" / "main" / "runs" / job_id / "1"

    def wait_for_state(self, job_id: str, state: JobState) -> None:
        wait_for(lambda: self.store.job(job_id).state == state, f"{state}: {self.store.job(job_id).reason_message}")


@pytest.fixture
def service(tmp_path: Path, database: Database, database_url: str) -> Generator[Service]:
    slurm = Slurm.install(tmp_path / "slurm")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    settings = {
        "TORCHYARD_DATA_DIR": str(tmp_path / "data"),
        "TORCHYARD_DATABASE_URL": database_url,
        "TORCHYARD_REDIS_URL": f"unix://{tmp_path}/absent.sock",
        "TORCHYARD_POOL": "slurm:main",
        "TORCHYARD_CPU_SLOTS": "2",
        "TORCHYARD_ALLOW_PATHS": f"{code}:{LAUNCHER.parent}",
    }
    yield Service(tmp_path, StoreFixture(database), slurm, slurm.environ() | settings)
    slurm.end()


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_job_of_two_nodes_outlives_the_daemon_of_its_pool_and_one_daemon_of_a_host_serves_it(
    service: Service, ended_by: signal.Signals
) -> None:
    job_id = service.submit()
    with service.serving(ended_by=ended_by):
        service.wait_for_state(job_id, JobState.RUNNING)
        held = service.store.job(job_id).devices
        assert [(device["node"], device["host"]) for device in held] == [(0, "n1"), (1, "n2")]
        told = service.store.job(job_id).reason_message
        assert told.startswith("2 processes run on n1, n2; ")  # the nodes tell how they isolate it
    assert service.store.job(job_id).state == JobState.RUNNING
    with service.serving(ended_by=signal.SIGTERM):
        wait_for(lambda: service.log().count("adopted attempt 1") == 1, "the adoption")
        said = service.refused()
        (service.run(job_id) / "job" / "done").touch()
        service.wait_for_state(job_id, JobState.SUCCEEDED)
    assert "the pool in" in said and "belongs to another worker of this host" in said
    lines = service.store.read(lambda session: logs.list_after(session, job_id, line=0, limit=100).items)
    assert {(line.rank, line.text) for line in lines} >= {(0, "rank 0"), (1, "rank 1")}
    assert service.store.job(job_id).attempt == 1
    assert len(service.slurm.submissions()) == 1


def test_a_pool_is_not_served_with_strict_isolation(service: Service) -> None:
    said = service.refused(TORCHYARD_ISOLATION="strict")
    assert "TORCHYARD_ISOLATION: strict is not possible with TORCHYARD_POOL" in said
    assert "Traceback" not in said
