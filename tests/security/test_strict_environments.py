"""Environments at the level `strict`: jobs run in those that root has listed for the helper, and in no others."""

from collections.abc import Generator
import os
from pathlib import Path
import shutil
import tempfile

import pytest

from tests.security import strict_host
from tests.security.strict_host import StrictAttempt, StrictHost, helper_alone
from tests.venvs import make_venv
from tests.worker.environments.test_start import TELLS
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from worker.attempts.prepare import named_environment
from worker.engines.base import COMMAND_OPTION
from worker.engines.local.launchers import rank_start
from worker.environments.environment import read


@pytest.fixture(scope="module")
def folder() -> Generator[Path]:
    why = strict_host.obstacle()
    if why is not None:
        pytest.skip(f"strict isolation cannot be tested: {why}")
    found = Path(tempfile.mkdtemp(prefix="torchyard-envs-", dir="/var/tmp"))
    found.chmod(0o755)
    for name in ("listed", "other"):
        make_venv(found / name)
    yield found
    shutil.rmtree(found)


@pytest.fixture(scope="module")
def host(folder: Path) -> Generator[StrictHost]:
    with strict_host.strict_host([f"--environments={folder / 'listed'}"]) as host:
        yield host


def start(host: StrictHost, venv: Path, text: str) -> StrictAttempt:
    """Runs `text` as a command in the environment, as a worker does."""
    attempt = StrictAttempt(host, f"job_{os.urandom(16).hex()}", "ada", 1)
    attempt.run.create()
    attempt.own_folders.create()
    named, _ = named_environment.enter(read(venv), attempt.run, [], environ={"PATH": "/usr/bin:/bin"})
    script = host.code / f"{attempt.job_id}.py"
    script.write_text(text)
    argv = [named.python, "-I", "-S", str(Path(rank_start.__file__)), COMMAND_OPTION, "0", "1", "python", str(script)]
    env = {**named.variables, rank_start.RUN_PACKAGE: named.run_package}
    write_record(attempt.run.launch, attempt.plan([*argv, named.run_package], env=env))
    host.give_to_service()
    attempt.start()
    return attempt


def test_a_job_runs_in_a_listed_environment_and_cannot_write_it(host: StrictHost, folder: Path) -> None:
    attempt = start(host, folder / "listed", TELLS)
    assert attempt.report().reason is EndReason.COMPLETED, host.logs() + attempt.log("rank-0", "stderr")
    lines = attempt.log("rank-0").splitlines()
    assert lines[0] == str(folder / "listed")
    assert lines[1] == f"{folder / 'listed'} {folder / 'listed' / 'bin'} False"
    assert len(lines) == 4
    assert str(attempt.run.run_package) in lines[3]


def test_what_the_worker_names_by_itself_is_not_there(host: StrictHost, folder: Path) -> None:
    attempt = start(host, folder / "other", "print('ran')")
    assert attempt.report().reason is not EndReason.COMPLETED


def test_a_helper_takes_no_environment_that_jobs_may_write(folder: Path) -> None:
    with helper_alone([f"--environments={folder / 'listed'}", f"--allow-path={folder}:rw"]) as said:
        assert f"jobs may write {folder / 'listed'}" in said
