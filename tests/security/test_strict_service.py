"""The whole service without privilege, whose jobs a helper isolates strictly."""

from collections.abc import Generator
import os
from pathlib import Path

import pytest

from tests.e2e.service import Service
from tests.security import strict_host
from tests.security.strict_host import StrictHost, as_service
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import JobState
from worker.engines.local.launchers import strictness

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("strict_isolation")]
WAITS = "import time\nopen('ready', 'w')\ntime.sleep(1000)"


@pytest.fixture(scope="module")
def host() -> Generator[StrictHost]:
    with strict_host.strict_host() as host:
        yield host


@pytest.fixture(scope="module")
def service(host: StrictHost) -> Generator[Service]:
    env = {
        "TORCHYARD_ISOLATION": "strict",
        "TORCHYARD_HELPER": str(host.socket),
        "HOME": str(host.stage),
        "PATH": os.environ["PATH"],
    }
    service = Service(host.folder, env=env, prefix=as_service(host.stage))
    service.start()
    yield service
    assert service.stop() == 0


def test_digits_are_learned_and_the_job_is_told_how_it_was_isolated(service: Service) -> None:
    job = service.client.submit({"trainer": "image-classification", "config": {"data": {"source": "digits"}}})
    service.wait(job.id, JobState.SUCCEEDED)
    best = service.client.get(job.id).view.best
    assert best is not None
    messages = " ".join(str(event.data) for event in service.client.jobs.events(job.id))
    assert "strict isolation starts every program cold" in messages
    assert "sandbox: strict" in messages


def test_a_script_gets_its_secret_and_leaves_its_files(service: Service) -> None:
    service.client.secrets.set("KEY", "value")
    text = "import os\nassert os.environ['KEY'] == 'value'\nopen('/dev/shm/x', 'w')\nprint(os.getuid(), flush=True)"
    job = service.submit_script("secret", text, env={"KEY": {"secret": "KEY"}})
    service.wait(job.id, JobState.SUCCEEDED)
    run = RunDir(service.data / "runs" / job.id / "1")
    assert int(run.log("rank-0", "stdout").read_text()) == strict_host.FIRST_UID
    assert run.log("rank-0", "stdout").stat().st_uid == strict_host.SERVICE


def test_a_cancelled_job_ends_with_all_its_processes(service: Service) -> None:
    job = service.submit_script(
        "waits", WAITS.replace("'ready'", "__import__('os').environ['TORCHYARD_RUN_DIR']+'/ready'")
    )
    run = RunDir(Path(service.data, "runs", job.id, "1"))
    wait_for((run.job / "ready").exists, "the job")
    assert strictness.recorded_processes(run)
    service.client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)
    assert strictness.recorded_processes(run) == []


def test_a_warm_start_is_refused(service: Service) -> None:
    job = service.submit_script("warm", "", launcher="warm")
    found = service.wait(job.id, JobState.FAILED)
    assert "launcher: warm is not possible" in str(found.error)
