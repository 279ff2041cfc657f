"""What `torchyard up` refuses before it starts anything."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

from tests import forks
from tests.approved import Approved
from tests.forked import run
from torchyard.host.privatefile import write_private

forks.preload("torchyard.cli", "torchyard.cli.up.service")


def test_a_start_reads_its_options_without_pydantic(tmp_path: Path) -> None:
    """typer would load it for the path, which takes as long as all else before the service's programs start."""
    program = "import sys\nfrom torchyard.cli import main\ntry: main()\nfinally: sys.exit('pydantic' in sys.modules)"
    options = ["up", "--check", "--port", "0", "--cpu-slots", "2", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run([sys.executable, "-P", "-c", program, *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("allowed", ["", "data/runs"])
def test_a_folder_around_or_in_the_data_directory_is_not_allowed_to_jobs(tmp_path: Path, allowed: str) -> None:
    runs, folder = tmp_path / "data" / "runs", tmp_path / allowed
    runs.mkdir(parents=True)
    done = _up(tmp_path / "data", "--allow-path", str(folder))
    assert done.returncode == 1
    assert str(folder) in done.stderr and f"the data directory {tmp_path / 'data'}" in done.stderr
    assert [*(tmp_path / "data").iterdir()] == [runs]


def test_beyond_loopback_a_short_token_is_refused_before_anything_is_changed(
    tmp_path: Path, approved: Approved
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_private(data / "token", "easy-to-guess")
    (data / "server.json").write_text("{}")
    done = _up(data, "--host", "0.0.0.0")
    assert done.returncode == 1
    assert done.stderr == approved("errors", data=data / "token")
    assert "easy-to-guess" not in done.stderr and "Traceback" not in done.stderr
    assert (data / "server.json").exists() and not (data / "lock").exists()


def test_a_token_that_others_can_read_is_not_used(tmp_path: Path, approved: Approved) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "token").write_text("known to others, and long enough to be one")
    (data / "token").chmod(0o644)
    done = _up(data)
    assert (done.returncode, done.stderr) == (1, approved("errors", data=data))
    assert not (data / "lock").exists()


def test_a_data_directory_that_came_with_a_repository_is_not_used(tmp_path: Path, approved: Approved) -> None:
    data = tmp_path / ".torchyard"
    data.mkdir()
    write_private(data / "token", "known to who made the repository, and long enough")
    for arguments in (("init", "--quiet"), ("add", "--force", ".torchyard/token")):
        subprocess.run(("git", *arguments), cwd=tmp_path, check=True)
    done = _up(data)
    assert (done.returncode, done.stderr) == (1, approved("errors", data=data))
    assert [path.name for path in data.iterdir()] == ["token"]


def _up(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("up", "--port", "0", "--data-dir", str(data), *arguments)
    return run("torchyard.cli", *command, env=os.environ, cwd=Path.cwd())
