"""Files of the service are its user's alone; files of a job have the modes that the operator's umask says."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path
import stat

import pytest

from tests.e2e.service import Service, running
from torchyard.contract.states import JobState

SCRIPT = """
import os, pathlib, torchyard
run = torchyard.init()
here = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "artifacts")
(here / "file").touch()
(here / "folder").mkdir()
run.save_checkpoint({"a": 1}, step=1)
"""


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.thorough)], ids=["cold", "warm"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Service]:
    with _umask(0o022):
        service = Service(tmp_path, slots=1, warm=request.param)
        with running(service):
            yield service


@pytest.mark.thorough
def test_the_operators_umask_is_that_of_jobs_and_of_no_program(service: Service) -> None:
    job = service.submit_script("writes", SCRIPT)
    service.wait(job.id, JobState.SUCCEEDED)
    own = service.data / "runs" / job.id / "1" / "job" / "artifacts"
    assert (_mode(own / "file"), _mode(own / "folder")) == (0o644, 0o755)
    assert _mode(service.data) == 0o700
    own = [path for path in service.data.rglob("*") if not path.is_symlink() and not _is_the_jobs(path)]
    opened = {str(path.relative_to(service.data)): oct(_mode(path)) for path in own if _mode(path) & 0o077}
    assert opened == {}
    names = {path.name for path in own}
    assert {"torchyard.db", "torchyard.db-wal", "torchyard.db-shm", "blobs", "worker.log", "plan.json"} <= names
    assert {path.name for path in (service.data / "runs" / job.id / "1").iterdir()} >= {"ctl", "input", "job"}


def _is_the_jobs(path: Path) -> bool:
    """Whether the path lies in the part of a run directory that a job writes, which is private itself."""
    return any(parent.name == "job" and (parent.parent / "ctl").exists() for parent in path.parents)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def _umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
