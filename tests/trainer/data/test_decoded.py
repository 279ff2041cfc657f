"""The cache of decoded pictures: what is read from it, and what is never trusted."""

from collections.abc import Callable
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from trainer.data import decoded, digests
from trainer.data.decoded import Decoded, fill, prepare

LENGTH = 12


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of the cache, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(decoded, "_full", set())
    return tmp_path / "cache" / "torchyard" / "decoded"


def picture(value: int) -> Tensor:
    return torch.full((3, 2, 2), value, dtype=torch.uint8)


def prepared(name: str = "data", count: int = 4) -> Decoded:
    found = prepare({"data": name}, count=count, length=LENGTH)
    assert found is not None
    return found


def taken(cache: Decoded | None, place: int, *, value: int) -> tuple[int, bool]:
    """Returns the value of the picture that is taken, and whether it was decoded: then it is `value`."""
    made: list[int] = []

    def decode() -> Tensor:
        made.append(place)
        return picture(value)

    row = torch.zeros(3, 2, 2, dtype=torch.uint8)
    fill(row, decode, index=place, cache=cache)
    assert len(row.unique()) == 1
    return int(row[0, 0, 0]), bool(made)


def test_a_picture_is_decoded_once_for_all_runs_with_the_same_settings() -> None:
    assert taken(prepared(), 2, value=7) == (7, True)
    assert taken(prepared(), 2, value=8) == (7, False)
    assert taken(prepared(), 1, value=0) == (0, True), "a hole in the file is no picture"
    assert taken(prepared(), 1, value=9) == (0, False)
    assert taken(prepared("other"), 2, value=8) == (8, True)
    assert taken(None, 2, value=8) == (8, True)


@pytest.mark.parametrize("place", [0, 3, 4, 5 + LENGTH])
def test_a_changed_byte_anywhere_in_a_record_is_seen(place: int) -> None:
    cache = prepared()
    taken(cache, 0, value=7)
    file = Path(cache.file)
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= 1
    file.write_bytes(content)
    assert taken(cache, 0, value=8) == (8, True)
    assert taken(cache, 0, value=9) == (8, False), "it is written again"


def test_a_file_that_is_cut_or_removed_ends_no_run() -> None:
    cache = prepared()
    for place in range(4):
        taken(cache, place, value=place)
    os.truncate(cache.file, 20)
    assert [taken(cache, place, value=9) for place in range(2)] == [(0, False), (9, True)]
    Path(cache.file).unlink()
    assert taken(cache, 2, value=8) == (8, True)


def test_a_full_disk_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def full(*_: Any) -> int:
        calls.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = prepared()
    taken(cache, 0, value=7)
    monkeypatch.setattr(os, "pwritev", full)
    assert [taken(cache, place, value=9) for place in (1, 2, 0)] == [(9, True), (9, True), (7, False)]
    assert len(calls) == 1, "nothing more is written"


def another_users(folder: Path, _: Path) -> None:
    os.chown(folder, 65534, 65534)


def open_to_all(folder: Path, _: Path) -> None:
    folder.chmod(0o777)


def linked(folder: Path, elsewhere: Path) -> None:
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize("harm", [another_users, open_to_all, linked])
def test_a_folder_in_which_others_can_write_is_not_used(
    tmp_path: Path, folder: Path, harm: Callable[[Path, Path], None]
) -> None:
    if harm is another_users and os.getuid():
        pytest.skip("only root can give a folder away")
    prepared()
    harm(folder, tmp_path / "elsewhere")
    assert prepare({"data": "data"}, count=4, length=LENGTH) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "open to all"])
def test_a_file_that_is_not_ours_is_not_used(tmp_path: Path, folder: Path, kind: str) -> None:
    file = Path(prepared().file)
    decoded._opened.cache_clear()  # pyright: ignore[reportPrivateUsage] as in another process
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    if kind == "open to all":
        file.chmod(0o666)
    else:
        file.unlink()
        make: dict[str, Callable[[], None]] = {
            "link": lambda: file.symlink_to(target),
            "pipe": lambda: os.mkfifo(file),
            "folder": file.mkdir,
        }
        make[kind]()
    found = prepare({"data": "data"}, count=4, length=LENGTH)
    assert found is None
    assert target.read_bytes() == b"precious"


LARGE = 1 << 16


def large(name: str, *, count: int = 4) -> Decoded | None:
    """Writes a file of `count` large pictures, as far as there is room."""
    cache = prepare({"data": name}, count=count, length=LARGE)
    for place in range(count if cache else 0):
        assert cache is not None
        cache.write(place, torch.randint(256, (LARGE,), dtype=torch.uint8))
    return cache


def end_runs(*caches: Decoded | None) -> None:
    for cache in caches:
        descriptor = decoded._opened(cache.file) if cache else None  # pyright: ignore[reportPrivateUsage] as they end
        if descriptor is not None:
            os.close(descriptor)
    decoded._opened.cache_clear()  # pyright: ignore[reportPrivateUsage] as above


def test_what_was_not_used_for_longest_is_removed_and_what_a_run_uses_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded, "MOST_BYTES", 11 * (LARGE + 4096))
    old, used, new = large("old"), large("used", count=1), large("new")
    assert old is not None and used is not None and new is not None
    end_runs(old, new)
    for age, cache in enumerate((used, old, new)):
        os.utime(cache.file, (age, age))
    held = prepare({"data": "used"}, count=1, length=LARGE)
    os.utime(used.file, (0, 0))
    assert held == used
    newest = large("newest")
    assert newest is not None
    assert newest.capacity == 4
    assert {file.name for file in folder.iterdir()} == {Path(cache.file).name for cache in (used, new, newest)}
    end_runs(used, newest)


def test_as_many_pictures_as_fit_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "MOST_BYTES", 3 * (LARGE + 4096))
    cache = large("data", count=10)
    assert cache is not None
    assert cache.capacity == 3
    found = torch.empty(LARGE, dtype=torch.uint8)
    assert [cache.read(place, found) for place in range(5)] == [True, True, True, False, False]
    assert prepare({"data": "other"}, count=1, length=4 * LARGE) is None, "no room, and the first one is in use"
    end_runs(cache)


def test_a_small_share_of_a_disk_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded.shutil, "disk_usage", lambda _: SimpleNamespace(free=30 * (LARGE + 4)))  # pyright: ignore[reportUnknownLambdaType]
    cache = prepare({"data": "data"}, count=10, length=LARGE)
    assert cache is not None
    assert cache.capacity == 3


def test_a_stamp_changes_with_any_content_and_is_none_while_that_may_change_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"one")
    assert digests.listing_digests(tmp_path, ["a.png"])[1] is None
    monkeypatch.setattr(digests, "SETTLED_NS", 0)
    before = digests.listing_digests(tmp_path, ["a.png"])
    status = file.stat()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of a file has coarse ticks
        file.write_bytes(b"two")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = digests.listing_digests(tmp_path, ["a.png"])
    assert after[0] == before[0] == digests.listing_digest(tmp_path, [file])
    assert after[1] != before[1]
