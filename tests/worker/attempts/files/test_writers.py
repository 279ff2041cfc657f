"""Who has a file open for writing is told without a search, or by one bounded search for all files."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
import errno
import fcntl
import mmap
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

from worker.attempts.files import writers
from worker.attempts.files.writers import Writers, open_for_writing
from worker.host.looks import Match


def files(folder: Path, *names: str) -> list[Match]:
    for name in names:
        (folder / name).write_bytes(b"x" * mmap.PAGESIZE)
    return [Match((name,), (folder / name).stat()) for name in names]


@contextmanager
def counted_looks(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """Records the folders that are listed."""
    listed: list[str] = []
    scandir = os.scandir

    def scan(path: Any = ".") -> Iterator[os.DirEntry[str]]:
        listed.append(str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scan)
        yield listed


@pytest.fixture
def no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without leases."""

    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", refuse)


@pytest.mark.parametrize("kind", ["leases", "search"])
def test_writers_are_found_and_readers_are_not(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    found = files(tmp_path, "appended", "updated", "read", "closed")
    if kind == "search":
        request.getfixturevalue("no_leases")
    with (
        (tmp_path / "appended").open("ab"),
        (tmp_path / "updated").open("r+b"),
        (tmp_path / "read").open("rb"),
    ):
        assert open_for_writing(tmp_path, found) == Writers({("appended",), ("updated",)}, set())
    assert open_for_writing(tmp_path, found) == Writers(set(), set())


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_of_a_file_of_another_user_it_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    found = files(tmp_path, "a")

    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert open_for_writing(tmp_path, found) == Writers(set(), {("a",)})


def test_a_writer_of_a_file_with_two_names_is_found(tmp_path: Path) -> None:
    files(tmp_path, "a")
    os.link(tmp_path / "a", tmp_path / "b")
    found = [Match((name,), (tmp_path / name).stat()) for name in ("a", "b")]
    with (tmp_path / "a").open("ab"):
        assert open_for_writing(tmp_path, found) == Writers({("a",), ("b",)}, set())


def test_a_file_that_is_only_mapped_for_writing_is_found(tmp_path: Path) -> None:
    found = files(tmp_path, "mapped")
    descriptor = os.open(tmp_path / "mapped", os.O_RDWR)
    with mmap.mmap(descriptor, mmap.PAGESIZE) as mapped:
        os.close(descriptor)
        mapped[0] = 1
        assert open_for_writing(tmp_path, found) == Writers({("mapped",)}, set())


def test_no_process_is_looked_at_where_there_are_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = files(tmp_path, *map(str, range(100)))
    with counted_looks(monkeypatch) as listed:
        assert open_for_writing(tmp_path, found) == Writers(set(), set())
    assert listed == []


@pytest.mark.usefixtures("no_leases")
def test_one_search_is_for_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = files(tmp_path, *map(str, range(100)))
    with counted_looks(monkeypatch) as listed:
        open_for_writing(tmp_path, found)
    assert listed.count("/proc") == 1
    assert listed.count(f"/proc/{os.getpid()}/fd") == 1


@pytest.mark.usefixtures("no_leases")
def test_a_search_ends_at_its_limit_and_takes_all_files_for_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = files(tmp_path, "a", "b")
    monkeypatch.setattr(writers, "MOST_LOOKED_AT", 50)
    looked: list[Path] = []
    identity = writers._identity  # pyright: ignore[reportPrivateUsage]

    def look(descriptor: Path) -> tuple[int, int]:
        looked.append(descriptor)
        return identity(descriptor)

    monkeypatch.setattr(writers, "_identity", look)
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context((tmp_path / "other").open("wb"))
        assert open_for_writing(tmp_path, found) == Writers({("a",), ("b",)}, set())
    assert len(looked) <= 50


OPENER = """
import sys
for _ in range(20_000):
    open(sys.argv[1], "ab").close()
"""


def test_a_job_that_takes_leases_back_all_the_time_does_not_end_the_worker(tmp_path: Path) -> None:
    """The kernel asks for a lease back by a signal, and SIGIO would end the process that holds it."""
    found = files(tmp_path, "a")
    with subprocess.Popen([sys.executable, "-P", "-c", OPENER, str(tmp_path / "a")]) as opener:
        while opener.poll() is None:
            open_for_writing(tmp_path, found)
    assert opener.returncode == 0
    assert open_for_writing(tmp_path, found) == Writers(set(), set())
