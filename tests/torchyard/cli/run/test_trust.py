"""A folder's torchyard.toml gives its program what is the user's only once the user has agreed to that."""

from collections.abc import Iterator
from pathlib import Path
import subprocess
from subprocess import CompletedProcess

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client.fake_server import TOKEN, FakeServer, serving

SECRETS = '[run]\ndevices = 2\nsecrets = {X = "HF_TOKEN"}\n'
REFUSED = "You have not accepted that"
SENT = "What happened"
"""What the server answers whatever it is asked."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)\n")
    return tmp_path / "code"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(SECRETS, id="secrets"),
        pytest.param('[run]\nvisibility = "team"\n', id="visibility"),
        pytest.param('[run]\ninclude = [".env"]\n', id="include"),
        pytest.param('run.mounts.photos = "file:///data/photos"\n', id="mounts"),
        pytest.param("[run]\n'init_from' = \"digits/best\"\n", id="quoted"),
        pytest.param('[run]\n\n[run.secrets]\nX = "HF_TOKEN"\nY = "OTHER"\n', id="table"),
    ],
)
def test_a_folder_that_takes_what_is_the_users_is_refused_by_name(
    server: FakeServer, folder: Path, content: str, approved: Approved
) -> None:
    (folder / "torchyard.toml").write_text(content)
    done = run(server, folder)
    assert (done.returncode, server.requests) == (1, [])
    assert done.stderr == approved.of_row("refused")
    assert not (folder.parent / "config/torchyard").exists()


def test_who_agrees_does_so_once_until_the_values_change(server: FakeServer, folder: Path) -> None:
    file = folder / "torchyard.toml"
    file.write_text(SECRETS)
    assert SENT in run(server, folder, "--trust-folder").stderr
    assert SENT in run(server, folder).stderr
    assert (folder.parent / "config/torchyard/trusted.json").stat().st_mode & 0o777 == 0o600
    file.write_text(SECRETS.replace("devices = 2", "devices = 1"))  # not what was agreed to
    assert SENT in run(server, folder).stderr
    for changed in (SECRETS.replace("HF_TOKEN", "OTHER"), SECRETS.replace("X", "Y"), SECRETS + 'visibility = "team"\n'):
        file.write_text(changed)
        assert REFUSED in run(server, folder).stderr


def test_an_agreement_is_for_one_folder(server: FakeServer, folder: Path) -> None:
    (folder / "torchyard.toml").write_text(SECRETS)
    assert SENT in run(server, folder, "--trust-folder").stderr
    other = folder.with_name("other")
    other.mkdir()
    for name in ("train.py", "torchyard.toml"):
        (other / name).write_text((folder / name).read_text())
    assert REFUSED in run(server, other).stderr
    assert SENT in run(server, other, "--trust-folder").stderr
    assert SENT in run(server, folder).stderr


def test_what_the_user_says_needs_no_agreement(server: FakeServer, folder: Path) -> None:
    (folder.parent / "config/torchyard").mkdir(parents=True)
    (folder.parent / "config/torchyard/config.toml").write_text(SECRETS)
    (folder / "torchyard.toml").write_text("[run]\ndevices = 2\n")
    assert SENT in run(server, folder, "--secret", "Y=MINE", "--visibility", "team").stderr


@pytest.mark.parametrize("in_git", [True, False])
def test_a_folder_that_has_ignored_files_packed_is_refused(
    server: FakeServer, folder: Path, approved: Approved, *, in_git: bool
) -> None:
    lines = "*.ckpt\n!small.ckpt\n"
    (folder / ".torchyardignore").write_text(lines)
    assert SENT in run(server, folder).stderr, "without git nothing else is left out"
    lines += "!/keys/\n" if in_git else "!.env\n"
    (folder / ".torchyardignore").write_text(lines)
    if in_git:
        subprocess.run(["git", "init", "-q", folder], check=True)
    server.requests.clear()
    done = run(server, folder)
    assert (done.returncode, server.requests) == (1, [])
    assert done.stderr == approved.of_row("refused")
    assert SENT in run(server, folder, "--trust-folder").stderr
    assert SENT in run(server, folder).stderr
    (folder / ".torchyardignore").write_text(f"{lines}!.envrc\n")
    assert REFUSED in run(server, folder).stderr


def test_a_folder_whose_path_is_no_utf_8_can_be_agreed_to(server: FakeServer, folder: Path) -> None:
    odd = folder.rename(folder.with_name("c\udcffde"))
    (odd / "torchyard.toml").write_text(SECRETS)
    assert REFUSED in run(server, odd).stderr
    assert SENT in run(server, odd, "--trust-folder").stderr
    assert SENT in run(server, odd).stderr


def run(server: FakeServer, folder: Path, *options: str) -> CompletedProcess[str]:
    own = {"XDG_CONFIG_HOME": str(folder.parent / "config")}
    return run_in_process(["run", *options, "train.py"], {**environment(server.url, TOKEN), **own}, cwd=folder)
