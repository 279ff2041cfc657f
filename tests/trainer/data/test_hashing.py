"""The program that hashes the files of a source, and the cache of their digests."""

from collections.abc import Iterable
import hashlib
import io
import os
from pathlib import Path
import subprocess
import sys

import pytest

from trainer.data import hashing
from trainer.data.hashing import UNREADABLE, write_records
from trainer.data.identity import read_records


def digests(root: Path, names: Iterable[str], *, cache: Path, parent: int | None = None) -> dict[str, str]:
    out = io.BytesIO()
    parent = os.getppid() if parent is None else parent
    write_records(map(os.fsencode, names), root=os.fsencode(root), cache=cache, parent=parent, out=out)
    return read_records(out.getvalue())


def sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[: len(UNREADABLE)]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were changed just now count as settled."""
    monkeypatch.setattr(hashing, "SETTLED_NS", -(10**18))


def test_any_name_is_hashed_and_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    names = ["a b", "two\nlines", os.fsdecode(b"\xff\xfe")]
    for name in names:
        (root / name).write_text(f"it is {name!r}")
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to("a b")
    found = digests(root, [*names, "pipe", "gone", "link"], cache=tmp_path / "cache")
    assert found == {
        **{name: sha256(f"it is {name!r}") for name in names},
        "pipe": UNREADABLE,
        "gone": UNREADABLE,
        "link": sha256("it is 'a b'"),
    }


@pytest.mark.usefixtures("settled")
def test_only_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    cache = tmp_path / "caches" / "digests"
    assert digests(tmp_path, ["one", "two"], cache=cache) == {"one": sha256("one"), "two": sha256("two")}
    mark = "f" * len(UNREADABLE)
    cache.write_bytes(cache.read_bytes().replace(sha256("one").encode(), mark.encode()))
    times = (tmp_path / "two").stat()
    (tmp_path / "two").write_text("owt")
    os.utime(tmp_path / "two", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digests(tmp_path, ["one", "two"], cache=cache) == {"one": mark, "two": sha256("owt")}
    assert [file.name for file in cache.parent.iterdir()] == [cache.name]


def test_the_digest_of_a_file_that_may_change_within_the_same_time_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    cache = tmp_path / "digests"
    digests(tmp_path, ["one"], cache=cache)
    assert not cache.exists()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("harm", ["torn", "pipe", "link", "no folder"])
def test_a_cache_that_cannot_be_used_is_none(tmp_path: Path, harm: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one").write_text("one")
    cache = tmp_path / "caches" / "digests"
    cache.parent.mkdir()
    match harm:
        case "torn":
            cache.write_bytes(b"1:2:3 abc\x00\xff\0 one\x001:2:3:4:5 " + b"f" * 32 + b" on")
        case "pipe":
            os.mkfifo(cache)
        case "link":
            cache.symlink_to(tmp_path / "one")
        case _:
            cache.parent.rmdir()
            cache.parent.write_text("a file")
    assert digests(tmp_path, ["one"], cache=cache) == {"one": sha256("one")}
    assert (tmp_path / "one").read_text() == "one"
    assert ("the digests of the data are not kept" in capfd.readouterr().err) == (harm == "no folder")


def test_it_ends_when_its_parent_has_ended(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    assert digests(tmp_path, ["one"], cache=tmp_path / "cache", parent=os.getpid()) == {}


def test_the_program_has_the_lowest_priority_and_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    code = (
        "import os, sys\nfrom trainer.data import hashing\nhashing.main()\n"
        "print(os.nice(0), 'torch' in sys.modules, 'numpy' in sys.modules, file=sys.stderr)"
    )
    arguments = [str(tmp_path), str(tmp_path / "cache"), str(os.getpid())]
    command = [sys.executable, "-P", "-c", code, *arguments]
    done = subprocess.run(command, input=b"one\0", capture_output=True, check=True)
    assert read_records(done.stdout) == {"one": sha256("one")}
    assert done.stderr.decode() == "19 False False\n"
