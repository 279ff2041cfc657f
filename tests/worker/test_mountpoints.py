"""Mounts in a working folder that a job has filled: nothing of it is followed, and nothing of it is lost."""

import os
from pathlib import Path

import pytest

from worker.host import mountpoints


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("data")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "own.txt").write_text("theirs")
    return tmp_path / "work"


def wanted(work: Path, *places: str) -> dict[str, str]:
    return dict.fromkeys(places, str(work.parent / "data"))


def test_a_mount_lies_at_any_path_and_goes_without_a_trace_of_it(work: Path) -> None:
    made = wanted(work, "./data", "./deep/er/é x")
    assert mountpoints.make(work, made) == ""
    assert (work / "data" / "a.txt").read_text() == (work / "deep/er/é x/a.txt").read_text() == "data"
    mountpoints.withdraw(work, made)
    assert {path.name for path in work.rglob("*")} == {"deep", "er"}
    assert mountpoints.make(work, made) == ""


@pytest.mark.parametrize("name", ["é" * 127, "x" * 255, "日" * 85])
def test_what_is_set_aside_has_a_name_that_the_disk_takes(work: Path, name: str) -> None:
    (work / name).write_text("theirs")
    told = mountpoints.make(work, wanted(work, f"./{name}"))
    (aside,) = (path for path in work.iterdir() if path.name != name)
    assert aside.read_text() == "theirs" and aside.name.endswith(".set-aside") and aside.name in told
    assert name.startswith(aside.name.removesuffix(".set-aside"))


@pytest.mark.parametrize("kind", ["folder", "file", "link", "link to nothing", "closed folder", "FIFO"])
def test_what_lay_there_is_set_aside_and_told(work: Path, kind: str) -> None:
    place = work / "in" / "data"
    place.parent.mkdir()
    match kind:
        case "folder" | "closed folder":
            place.mkdir()
            (place / "x").write_text("x")
            place.chmod(0o700 if kind == "folder" else 0)
        case "file":
            place.write_text("x")
        case "FIFO":
            os.mkfifo(place)
        case _:
            place.symlink_to(work.parent / ("outside" if kind == "link" else "absent"))
    before = place.lstat().st_ino
    told = mountpoints.make(work, wanted(work, "./in/data"))
    assert told == "in/data makes room for a mount, and is in/data.set-aside now"
    assert (place / "a.txt").read_text() == "data"
    assert place.with_name("data.set-aside").lstat().st_ino == before
    assert [path.name for path in (work.parent / "outside").iterdir()] == ["own.txt"]
    place.unlink()
    place.write_text("again")
    assert mountpoints.make(work, wanted(work, "./in/data")).endswith("in/data.set-aside-2 now")
    place.with_name("data.set-aside").chmod(0o700) if kind == "closed folder" else None


@pytest.mark.parametrize("above", ["link", "file", "closed"])
def test_no_link_above_is_followed(work: Path, above: str) -> None:
    if above == "link":
        (work / "in").symlink_to(work.parent / "outside")
    elif above == "file":
        (work / "in").write_text("x")
    else:
        (work / "in").mkdir(mode=0)
    told = mountpoints.make(work, wanted(work, "./in/data"))
    assert (told == "") == (above == "closed")
    assert (work / "in" / "data" / "a.txt").read_text() == "data"
    assert [path.name for path in (work.parent / "outside").iterdir()] == ["own.txt"]


def test_only_what_was_made_is_withdrawn(work: Path) -> None:
    made = wanted(work, "./a", "./b/c", "./d", "./e/f")
    mountpoints.make(work, made)
    (work / "a").unlink()
    (work / "a").symlink_to(work.parent / "outside")
    (work / "d").unlink()
    (work / "d").write_text("mine")
    (work / "b" / "c").unlink()
    (work / "b").rmdir()
    (work / "b").symlink_to(work.parent / "outside")
    (work.parent / "outside" / "c").symlink_to(work.parent / "data")
    mountpoints.withdraw(work, made)
    assert (work / "a").is_symlink()
    assert (work / "d").read_text() == "mine"
    assert (work.parent / "outside" / "c").is_symlink()
    assert not (work / "e" / "f").is_symlink()


def test_an_empty_folder_goes_without_a_word(work: Path) -> None:
    (work / "data").mkdir()
    assert mountpoints.make(work, wanted(work, "./data")) == ""
    assert (work / "data" / "a.txt").read_text() == "data"
