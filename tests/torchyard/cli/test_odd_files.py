"""A pipe, a device, a folder or a huge file in place of a file that the client reads is refused, and not waited for."""

from collections.abc import Callable
import os
from pathlib import Path
import subprocess

import pytest

from torchyard.cli import named
from torchyard.cli.run.settings import PROJECT_FILE, read_settings
from torchyard.cli.specs import read_specs
from torchyard.client.localserver import read_server
from torchyard.client.packing import git
from torchyard.client.packing.bundle import pack
from torchyard.client.packing.rules import IGNORE_FILE
from torchyard.contract.errors import ConfigError, InvalidSpec, TooLarge
from torchyard.host.datadir import SERVER_FILE


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "it is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/null"), "it is not a regular file"),
    "folder": (Path.mkdir, "it is a folder"),
    "huge": (_huge, "it has more than [0-9]+ bytes|is too large"),
}


def _settings(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        read_settings()


READERS: dict[str, Callable[[Path], object]] = {
    IGNORE_FILE: lambda path: pack(path.parent),
    PROJECT_FILE: lambda path: _settings(path.parent),
    "job.yaml": lambda path: read_specs([str(path)]),
    "notes.md": lambda path: named.read(str(path), 1 << 20),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", READERS)
def test_an_odd_file_is_refused_by_name(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    make, said = ODD[kind]
    make(tmp_path / name)
    with pytest.raises((ConfigError, InvalidSpec, TooLarge, OSError), match=said) as refused:
        READERS[name](tmp_path / name)
    assert name in str(refused.value)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_an_odd_file_names_no_server(tmp_path: Path, kind: str) -> None:
    make, _ = ODD[kind]
    make(tmp_path / SERVER_FILE)
    with pytest.raises(ConfigError, match="is not used"):
        read_server(tmp_path)


def test_a_spec_may_come_from_a_program(tmp_path: Path) -> None:
    inside, outside = os.pipe()
    os.write(outside, b"trainer: script\n")
    os.close(outside)
    try:
        assert [each.spec for each in read_specs([f"/dev/fd/{inside}"])] == [{"trainer": "script"}]
    finally:
        os.close(inside)


@pytest.mark.parametrize("place", [".gitignore", "included"])
def test_a_git_that_waits_for_a_pipe_is_ended(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MOST_S", 2.0)
    (tmp_path / "train.py").write_text("print()\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    os.mkfifo(tmp_path / place)
    if place == "included":
        with (tmp_path / ".git/config").open("a") as file:
            file.write(f"[include]\npath = {tmp_path / place}\n")
    with pytest.raises(ConfigError, match="git did not end in 2 s"):
        pack(tmp_path)
