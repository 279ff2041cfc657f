"""A chaos run: nothing that the service promises is broken, and nothing is left running.

The quick run has the short one. It kills each program at each step in `tests/failpoints`, too.
"""

from collections.abc import Generator
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from tests import forked_warm, forks
from tests.chaos import job_processes
from tests.chaos.run import Options, run
from tests.hosts.lab import missing

forks.preload("api.app", "api.processes.parent", "controller.duties", *forked_warm.MODULES)

ROOT = Path(__file__).parents[2]
CHAOS = [sys.executable, "-m", "tests.chaos"]


@pytest.fixture
def scratch() -> Generator[Path]:
    """A folder for the run. PostgreSQL, which does not run as root, must be able to enter it."""
    with tempfile.TemporaryDirectory(prefix="torchyard-chaos-test-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


SHORT = Options(seed=1962, jobs=6, kills=8, minutes=0.25, database="sqlite", kinds=("script",), trials=2, forks=True)
LONG = ("--seed", "1962", "--jobs", "4", "--kills", "15", "--minutes", "0.5")


def test_nothing_is_lost_in_a_short_run(scratch: Path) -> None:
    folder = scratch / "run"
    folder.mkdir()
    report = run(folder, SHORT)
    assert list(report.violations) == []
    assert sum(report.kills.values()) >= 4, report  # some of the planned kills find no target in time
    shutil.rmtree(folder)
    assert left_of(scratch) == []


@pytest.mark.thorough
@pytest.mark.parametrize("workers", ["direct", "remote"])
def test_nothing_is_lost_while_everything_is_killed(scratch: Path, workers: str) -> None:
    if workers == "remote" and (lacking := missing()) is not None:
        pytest.skip(lacking)
    argv = [*CHAOS, *LONG, *(["--boxes"] if workers == "remote" else [])]
    done = subprocess.run(argv, cwd=ROOT, env=environment(scratch), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.search(r"^kills: (\d+)", done.stdout, re.MULTILINE)
    assert kills is not None
    assert int(kills[1]) >= 8  # some of the planned kills find no target in time
    assert "violations: 0\n95% bound on the probability" in done.stdout
    assert left_of(scratch) == []


@pytest.mark.thorough
def test_an_interrupted_run_leaves_nothing(scratch: Path) -> None:
    argv = [*CHAOS, "--kills", "0", "--jobs", "1", "--minutes", "10", "--database", "sqlite", "--kinds", "script"]
    env = environment(scratch) | {"TORCHYARD_LAUNCHER": "torchrun"}  # without the cost of warm processes
    with subprocess.Popen(argv, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as chaos:
        assert chaos.stderr is not None
        assert "references first" in chaos.stderr.readline()
        deadline = time.monotonic() + 60
        while not (jobs := started(scratch)):
            assert time.monotonic() < deadline, "no job was started"
            time.sleep(0.05)
        chaos.send_signal(signal.SIGINT)
        said = chaos.stderr.read()
        assert chaos.wait(60) == 130, said
    assert job_processes.find(jobs) == []
    assert left_of(scratch) == []


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder)}


def started(folder: Path) -> set[str]:
    """Returns the jobs of which a process runs."""
    jobs = {path.name for path in folder.glob("torchyard-chaos-*/disk/*/runs/job_*")}
    return {process.job_id for process in job_processes.find(jobs) if process.role != "supervisor"}


def left_of(folder: Path) -> list[object]:
    """Returns remaining processes, mounts and files."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    # torch makes the folder of its compiler's cache when Dynamo is imported.
    files = [path for path in folder.iterdir() if not path.name.startswith("torchinductor_")]
    return [*job_processes.naming(folder), *mounts, *files]
