"""What a job left is removed as far as it lets itself be, and nothing beside it."""

import os
from pathlib import Path

import pytest

from worker.untrusted import remove_inside


def test_a_folder_goes_with_all_in_it_and_what_it_links_to_stays(tmp_path: Path) -> None:
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


def test_a_tree_of_thousands_of_levels_is_left_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    folder = os.open(tmp_path / "deep", os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    assert not remove_inside(tmp_path, "deep")
    _flatten(tmp_path / "deep")
    assert remove_inside(tmp_path, "deep")


def _flatten(top: Path) -> None:
    """Brings each level up, as whoever cleans up after the test removes trees level by level."""
    level = 0
    while (top / "d" / "d").exists():
        (top / "d" / "d").rename(top / str(level))
        (top / "d").rmdir()
        (top / str(level)).rename(top / "d")
        level += 1
