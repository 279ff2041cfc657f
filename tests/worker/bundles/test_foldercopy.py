"""A folder that a job has filled is copied as it is, and nothing outside is read or written."""

from collections.abc import Callable
import os
from pathlib import Path
import socket
import stat
import tracemalloc

import pytest

from tests.disks import mounted
from tests.leftovers import LEVELS, as_nobody, leave_depth, leave_everything
from torchyard.host import failpoints
from worker.bundles import foldercopy
from worker.bundles.foldercopy import Copier, TooLong, copy_folder
from worker.host.untrusted import make_accessible, remove_inside


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def test_links_names_times_and_modes_stay(source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "one").write_bytes(b"x")
    os.link(source / "a" / "one", source / "a" / "b" / "two")
    (source / "out").symlink_to(tmp_path / "outside")
    (source / "gone").symlink_to("nowhere")
    (source / "folder").symlink_to("a")
    (source / "run.sh").write_bytes(b"#!/bin/sh")
    (source / "run.sh").chmod(0o6755)
    (source / os.fsdecode(b"\xff\n")).write_bytes(b"odd")
    (source / "closed").mkdir()
    (source / "closed" / "x").write_bytes(b"1")
    (source / "closed").chmod(0)
    for name in ("a/one", "a"):
        os.utime(source / name, ns=(1, 1_600_000_000_123_456_789))
    target = tmp_path / "target"
    report = copy_folder(source, target)
    assert (report.files, report.left_out) == (4, 0)
    assert (target / "a" / "one").samefile(target / "a" / "b" / "two")
    assert (target / "a" / "one").stat().st_mtime_ns == (target / "a").stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert [os.readlink(target / name) for name in ("out", "gone", "folder")] == [  # noqa: PTH115 as text
        str(tmp_path / "outside"),
        "nowhere",
        "a",
    ]
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o755
    assert (target / os.fsdecode(b"\xff\n")).read_bytes() == b"odd"
    assert stat.S_IMODE((target / "closed").stat().st_mode) & 0o777 == 0o700
    assert (target / "closed" / "x").read_bytes() == b"1"


def test_pipes_and_sockets_go(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "s"))
        assert copy_folder(source, tmp_path / "target").left_out == 2
    assert list((tmp_path / "target").iterdir()) == []


def test_holes_stay_holes(source: Path, tmp_path: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.truncate(200 << 30)
        file.seek(100 << 30)
        file.write(b"data")
    copy_folder(source, tmp_path / "target")
    copied = tmp_path / "target" / "sparse"
    assert copied.stat().st_size == 200 << 30
    assert copied.stat().st_blocks * 512 < 1 << 20
    with copied.open("rb") as file:
        file.seek(100 << 30)
        assert file.read(5) == b"data\0"


def test_a_folder_that_is_deeper_than_any_path_is_copied(source: Path, tmp_path: Path) -> None:
    leave_depth(source, LEVELS)
    target = tmp_path / "target"
    assert copy_folder(source, target).files == 1
    inner = os.open(target, os.O_RDONLY)
    for _ in range(LEVELS):
        outer, inner = inner, os.open("d" * 40, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    assert os.stat("file", dir_fd=inner).st_size == 1 << 20
    os.close(inner)
    for name in ("source", "target"):
        assert remove_inside(tmp_path, name)


def test_the_memory_of_a_copy_does_not_grow_with_the_square_of_the_depth(source: Path, tmp_path: Path) -> None:
    folder = os.open(source, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("a" * 200, dir_fd=folder)
        inner = os.open("a" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    (tmp_path / "target").mkdir()
    tracemalloc.start()
    try:
        Copier().copy(str(source), str(tmp_path / "target"))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
        remove_inside(tmp_path, "source")
        remove_inside(tmp_path, "target")


def test_whatever_a_job_leaves_is_copied_or_left_out() -> None:
    with as_nobody() as folder:
        leave_everything(folder / "source", outside=folder / "outside")
        (folder / "target").mkdir()
        make_accessible(folder, "source")
        foldercopy.Copier().copy(str(folder / "source"), str(folder / "target"))  # nobody may start no Python here
        assert (folder / "outside" / "kept").read_text() == "kept"
        assert remove_inside(folder, "target")


def test_a_file_of_another_user_that_nobody_may_read_is_left_out(source: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    (source / "theirs").write_text("x")
    (source / "theirs").chmod(0o600)
    os.chown(source / "theirs", 65534, 65534)
    assert copy_folder(source, tmp_path / "target").left_out == 1


def test_a_full_disk_ends_the_copy(source: Path, tmp_path: Path) -> None:
    (source / "large").write_bytes(os.urandom(2 << 20))
    with mounted(tmp_path / "small", kibibytes=1024), pytest.raises(OSError, match="No space left"):
        copy_folder(source, tmp_path / "small" / "target")


class Cancelled(Exception):
    pass


def _cancel() -> None:
    raise Cancelled


@pytest.mark.parametrize(("check", "expected"), [(_cancel, Cancelled), (lambda: None, TooLong)])
def test_a_cancel_and_a_limit_end_the_copy(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[], object],
    expected: type[Exception],
) -> None:
    (source / "a").write_bytes(b"x")
    monkeypatch.setenv(failpoints.VARIABLE, "folder.copy=hang")
    monkeypatch.setattr(foldercopy, "LONGEST_S", 0.0)
    with pytest.raises(expected):
        copy_folder(source, tmp_path / "target", check=check)


def test_a_killed_child_is_an_error(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "a").write_bytes(b"x")
    monkeypatch.setenv(failpoints.VARIABLE, "folder.copy=kill")
    with pytest.raises(OSError, match="ended with -9"):
        copy_folder(source, tmp_path / "target")


@pytest.mark.thorough
def test_a_hundred_thousand_names_are_copied(source: Path, tmp_path: Path) -> None:
    for folder in range(100):
        (source / str(folder)).mkdir()
        for name in range(1000):
            (source / str(folder) / str(name)).touch()
    assert copy_folder(source, tmp_path / "target").files == 100_000
