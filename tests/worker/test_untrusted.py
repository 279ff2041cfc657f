"""Folders of a job are removed without following links, and only regular files are read."""

from collections.abc import Callable
from functools import partial
import os
from pathlib import Path
import subprocess
import sys

import pytest

from tests.leftovers import LEVELS, NOBODY, as_nobody, leave_depth, leave_everything
from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_tail, read_untrusted
from worker.host.untrusted import remove_inside, walk_status


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
    whole = linked == "run/checkpoints/one"
    assert remove_inside(tmp_path / "run", "checkpoints", "one") == whole
    assert os.path.lexists(link) != whole
    assert len([*target.rglob("state.pt")]) == 2


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_what_took_the_place_of_a_folder_is_removed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "one")
    assert remove_inside(tmp_path, "one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("levels", "folders"),
    [(1100, 300), *(pytest.param(*shape, marks=pytest.mark.thorough) for shape in ((20_000, 0), (0, 20_000)))],
)
@pytest.mark.usefixtures("removed_afterwards")
def test_a_tree_of_any_depth_and_width_is_measured_and_removed(tmp_path: Path, levels: int, folders: int) -> None:
    top = tmp_path / "top"
    top.mkdir()
    for number in range(folders):
        (top / str(number)).mkdir()
        (top / str(number) / "file").touch()
    leave_depth(top, levels)
    before = _open_files()
    assert len([*walk_status(top)]) == 2 + levels + 2 * folders
    assert remove_inside(tmp_path, "top")
    assert _open_files() <= before  # other tests may have left some that are collected meanwhile


def test_everything_that_an_attempt_can_leave_is_removed_by_its_owner() -> None:
    with as_nobody() as folder:
        leave_everything(folder / "input" / "resume", outside=folder / "outside")
        (folder / "input").chmod(0o500)
        assert remove_inside(folder, "input", "resume")
        assert [path.name for path in (folder / "input").iterdir()] == []
        assert (folder / "outside" / "kept").read_text() == "kept"


def test_what_its_owner_cannot_remove_is_not_reported_as_removed() -> None:
    with as_nobody() as folder:
        if os.getuid():
            pytest.skip("only root can make a folder of another user")
        os.seteuid(0)
        (folder / "theirs" / "inner").mkdir(parents=True)
        (folder / "theirs").chmod(0)
        os.seteuid(NOBODY)
        assert not remove_inside(folder, "theirs", "inner")
        assert not remove_inside(folder, "theirs")


@pytest.mark.usefixtures("removed_afterwards")
def test_an_interrupted_removal_goes_on_where_it_stopped(tmp_path: Path) -> None:
    leave_everything(tmp_path / "top", outside=tmp_path / "outside")
    calls = 0
    removed = False
    while not removed and calls < 100:
        steps = iter([True] * 10)
        removed = remove_inside(tmp_path, "top", may_continue=partial(next, steps, False))
        assert (tmp_path / "top").exists() != removed
        calls += 1
    assert removed
    assert calls > 15


@pytest.mark.parametrize("place", ["top/mounted", "top/inner/mounted"])
def test_nothing_below_a_mount_point_is_removed(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "kept").touch()
    mounted = ["mount", "--bind", tmp_path / "outside", tmp_path / place]
    code = (
        "import pathlib, subprocess, sys; from worker.host.untrusted import remove_inside\n"
        "if subprocess.run(sys.argv[2:]).returncode: sys.exit(77)\n"
        "sys.exit(remove_inside(pathlib.Path(sys.argv[1]), 'top'))"
    )
    own = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", code, tmp_path]
    result = subprocess.run([*own, *mounted], stderr=subprocess.PIPE, check=False)
    if result.returncode == 77 or b"unshare" in result.stderr:
        pytest.skip("this host allows no mounts")
    assert (result.returncode, result.stderr) == (0, b"")
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == ["folder", "kept"]
    assert remove_inside(tmp_path, "top")


def test_an_unreadable_folder_is_measured_only_if_it_may_be_unlocked() -> None:
    with as_nobody() as folder:
        leave_everything(folder / "top", outside=folder / "outside")
        for unlock, many in ((False, False), (True, True), (False, False)):
            assert (len([*walk_status(folder / "top", unlock=unlock)]) > LEVELS) == many
            (folder / "top").chmod(0o400)  # its names can be read, but not what they are


def test_a_folder_that_is_moved_while_it_is_measured_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "top" / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for number in range(10):
        (tmp_path / "outside" / str(number)).mkdir()
    walk = walk_status(tmp_path / "top")
    found = [next(walk) for _ in range(3)]
    (tmp_path / "top" / "outer" / "inner").rename(tmp_path / "outside" / "inner")
    assert len([*found, *walk]) == 3


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


def _open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])
