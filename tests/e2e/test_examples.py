"""Every example is a job that a pause and a resumption change in nothing, in an environment that has its framework."""

from collections.abc import Generator
import os
from pathlib import Path
import shutil
import subprocess

import pytest

from tests import examples
from tests.e2e.service import Service, running, until
from torchyard.client.handles import Job
from torchyard.contract.states import JobState

pytestmark = pytest.mark.thorough

PYTHON = examples.FOLDER.parent / ".venv-frameworks" / "bin" / "python"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    """Runs a service in the environment of the frameworks."""
    if not PYTHON.exists():
        pytest.skip(".venv-frameworks is not there, which `make test-thorough` makes of requirements-frameworks.lock")
    with running(Service(tmp_path_factory.mktemp("service"), slots=4, python=PYTHON)) as service:
        yield service


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples, and the program that holds one."""
    shutil.copytree(examples.FOLDER, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "examples" / "held.py").write_text(examples.HELD)
    return tmp_path / "examples"


def losses(job: Job) -> dict[int, float]:
    series = job.metrics("train/loss").get("train/loss")
    return {} if series is None else dict(zip(series.steps, series.values, strict=True))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    "name",
    ["ddp.py", "fsdp2.py", "pipeline.py", "accelerate_loop.py", "lightning_trainer.py", "huggingface_trainer.py"],
)
def test_a_job_that_is_paused_and_resumed_has_the_curve_of_one_that_is_not(
    service: Service, folder: Path, name: str, devices: int
) -> None:
    with service.client as client:
        whole = client.run(name, folder=folder, devices=devices, name="whole")
        job = client.run("held.py", args=[name], folder=folder, devices=devices, name="paused", max_restarts=0)

        def held() -> bool:
            assert not job.refresh().state.terminal, [line.text for line in job.logs()]
            return examples.HELD_AT in losses(job)

        until(held, what="the job is at its step")
        job.pause()
        service.wait(job.id, JobState.PAUSED)
        stopped_at = max(losses(job))
        assert job.latest_checkpoint().step == stopped_at
        job.resume()
        service.wait(job.id, JobState.SUCCEEDED)
        service.wait(whole.id, JobState.SUCCEEDED)
        assert job.refresh().attempt == 2
        assert losses(job) == losses(whole)
        assert max(losses(job)) > stopped_at


def test_the_sweep_fetches_the_best_checkpoint_of_its_jobs(service: Service, folder: Path) -> None:
    server = service.server
    env = {**os.environ, "TORCHYARD_URL": server["url"], "TORCHYARD_TOKEN": server["token"]}
    argv = [str(PYTHON), "-P", "examples/sweep.py"]
    done = subprocess.run(argv, cwd=folder.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\nbest: trial " in done.stdout
    assert (folder.parent / "best.pt").stat().st_size > 0
