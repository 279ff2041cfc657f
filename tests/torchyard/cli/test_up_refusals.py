"""What `torchyard up` refuses before it starts anything."""

import os
from pathlib import Path
import subprocess

import pytest

from tests import forks
from tests.approved import Approved
from tests.forked import run

forks.preload("torchyard.cli", "torchyard.cli.up.service")


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
    (data / "token").write_text("easy-to-guess")
    (data / "server.json").write_text("{}")
    done = _up(data, "--host", "0.0.0.0")
    assert done.returncode == 1
    assert done.stderr == approved("errors", data=data / "token")
    assert "easy-to-guess" not in done.stderr and "Traceback" not in done.stderr
    assert (data / "server.json").exists() and not (data / "lock").exists()


def _up(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("up", "--port", "0", "--data-dir", str(data), *arguments)
    return run("torchyard.cli", *command, env=os.environ, cwd=Path.cwd())
