"""Folders of a job are removed without following links, and only regular files are read."""

import os
from pathlib import Path
import shutil
import tempfile

import pytest

from torchyard.contract.job import EndReason
from torchyard.contract.recordfiles import write_record
from torchyard.contract.records import StopRequest
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_tail, read_untrusted
from worker.untrusted import remove_inside


def test_a_folder_is_removed_with_its_content_but_not_the_targets_of_its_links(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    folder = tmp_path / "run" / "checkpoints" / "one"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "state.pt").write_text("gone")
    (folder / "link").symlink_to(tmp_path / "precious")
    (folder / "hard").hardlink_to(tmp_path / "precious" / "file")
    os.mkfifo(folder / "pipe")
    assert remove_inside(tmp_path / "run", "checkpoints", "one")
    assert not folder.exists()
    assert folder.parent.exists()
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    assert remove_inside(tmp_path / "run", "checkpoints", "one")
    assert remove_inside(tmp_path / "nowhere", "one")


@pytest.mark.parametrize("linked", ["run", "run/checkpoints", "run/checkpoints/one"])
def test_no_link_is_followed(tmp_path: Path, linked: str) -> None:
    target = tmp_path / "target"
    for inside in ("checkpoints/one", "one"):
        (target / inside).mkdir(parents=True)
        (target / inside / "state.pt").write_text("kept")
    link = tmp_path / linked
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    assert not remove_inside(tmp_path / "run", "checkpoints", "one")
    assert len([*target.rglob("state.pt")]) == 2


def test_a_tree_of_thousands_of_levels_is_removed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    folder = os.open(tmp_path / "deep", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    assert remove_inside(tmp_path, "deep")


def test_folders_without_permissions_and_with_odd_names_are_removed_by_their_owner(tmp_path: Path) -> None:
    top = Path(tempfile.mkdtemp(dir="/tmp"))  # another user cannot enter tmp_path
    try:
        folder = top / "input" / "resume" / os.fsdecode(b"\xff\n -rf")
        folder.mkdir(parents=True)
        (folder / "state.pt").write_text("state")
        for path in (top, *top.rglob("*")) if not os.getuid() else ():
            os.chown(path, 65534, 65534)
        for path in (folder, folder.parent, folder.parent.parent):
            path.chmod(0)
        assert _removed_by_nobody(top, "input")
        assert list(top.iterdir()) == []
    finally:
        shutil.rmtree(top)


def test_only_a_regular_file_with_one_link_is_read_and_nothing_blocks(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.create()
    path = run.errors / "0.json"
    good = StopRequest(reason=EndReason.PAUSED)
    outside = tmp_path / "outside"
    outside.mkdir()
    write_record(outside / "0.json", good)
    assert read_untrusted(outside / "0.json", StopRequest) == good
    for make in (
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(outside / "0.json"),
        lambda: path.hardlink_to(outside / "0.json"),
        path.mkdir,
    ):
        make()
        assert read_untrusted(path, StopRequest) is None
        assert read_tail(path, 10) == b""
        path.rmdir() if path.is_dir() else path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(outside)
    assert read_untrusted(path, StopRequest) is None
    path.parent.unlink()
    run.job.rename(tmp_path / "aside")
    (outside / "errors").mkdir()
    write_record(outside / "errors" / "0.json", good)
    run.job.symlink_to(outside)
    assert read_untrusted(path, StopRequest) is None


def _removed_by_nobody(root: Path, name: str) -> bool:
    if os.getuid():
        return remove_inside(root, name)
    child = os.fork()
    if not child:
        try:
            os.setresuid(65534, 65534, 65534)
            os._exit(not remove_inside(root, name))
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
