"""Sources of shards: what an index or the headers of tars say, and what the names of files say about the samples."""

import os
from pathlib import Path
import time
from typing import Any

import pytest

from tests.approved import Approved
from tests.trainer.data.tars import tar
from torchyard.cli.sharding import find_files, write_shards
from torchyard.contract.bundles.shards import INDEX
from torchyard.contract.errors import DataError
from trainer.data import shards as module
from trainer.data.shardnames import labelled, paired
from trainer.data.shards import Shards, is_sharded, read_shards
from trainer.data.tars import InShard, read_file

FOLDER = {
    f"{split}/{name}/{number}.jpg": f"{split}{name}{number}".encode()
    for split in ("train", "val")
    for name in ("cat", "dog")
    for number in range(3)
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "torchyard" / "shards"


def sharded(root: Path, files: dict[str, bytes], *, most: int = 4096) -> Path:
    """Writes files into shards, as `torchyard data shard` does."""
    for name, content in files.items():
        (root / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "folder" / name).write_bytes(content)
    write_shards(find_files(root / "folder"), root / "shards", most=most)
    return root / "shards"


def contents(shards: Shards) -> dict[str, bytes]:
    return {entry.name: read_file(shards.file(entry)) for entry in shards.index.entries}


def age(root: Path) -> None:
    """Makes the tars look as if they were written an hour ago."""
    for path in root.rglob("*.tar"):
        os.utime(path, (time.time() - 3600, time.time() - 3600))


def test_shards_with_an_index_hold_the_folder(tmp_path: Path) -> None:
    root = sharded(tmp_path, FOLDER)
    assert is_sharded(root)
    assert not is_sharded(tmp_path / "folder")
    assert not is_sharded(tmp_path / "absent")
    shards = read_shards(root)
    assert len(shards.names) > 1
    assert contents(shards) == FOLDER


def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    def refuse(folder: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError) as raised:
        is_sharded(tmp_path)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_without_an_index_the_headers_are_read_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar(tmp_path / "data" / "b.tar", {"cat/1.jpg": b"one"})
    tar(tmp_path / "data" / "a.tar", {"cat/2.jpg": b"two"})
    scanned: list[str] = []
    scan = module.scan_tar

    def counted(path: Path, **options: Any) -> Any:
        scanned.append(path.name)
        return scan(path, **options)

    monkeypatch.setattr(module, "scan_tar", counted)
    monkeypatch.setattr(module, "SETTLED_NS", 0)
    for _ in range(2):
        assert contents(read_shards(tmp_path / "data")) == {"cat/1.jpg": b"one", "cat/2.jpg": b"two"}
    assert scanned == ["a.tar", "b.tar"]
    (kept,) = cache.iterdir()
    for broken in (b"torn", b'{"format": 1, "shards": []}\n'):
        kept.write_bytes(broken)
        assert len(contents(read_shards(tmp_path / "data"))) == 2
    assert scanned == ["a.tar", "b.tar"] * 3
    tar(tmp_path / "data" / "b.tar", {"cat/3.jpg": b"three"})
    assert contents(read_shards(tmp_path / "data")) == {"cat/2.jpg": b"two", "cat/3.jpg": b"three"}


def test_few_indexes_are_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLED_NS", 0)
    for number in range(module.MOST_KEPT + 3):
        tar(tmp_path / f"{number}" / "a.tar", {"cat/1.jpg": b"one"})
        read_shards(tmp_path / f"{number}")
    assert len(list(cache.iterdir())) == module.MOST_KEPT


def test_tars_that_were_just_written_are_not_kept(tmp_path: Path, cache: Path) -> None:
    tar(tmp_path / "data" / "a.tar", {"cat/1.jpg": b"one"})
    read_shards(tmp_path / "data")
    assert not cache.exists()


def test_an_index_that_does_not_fit_its_tars_is_refused(tmp_path: Path, approved: Approved) -> None:
    root = sharded(tmp_path, FOLDER)
    index = (root / INDEX).read_text()
    tar(root / "more.tar", {"cat/9.jpg": b"nine"})
    with pytest.raises(DataError) as raised:
        read_shards(root)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    (root / "more.tar").unlink()
    lines = index.splitlines(keepends=True)
    (root / INDEX).write_text("".join([*lines, lines[-1]]))
    with pytest.raises(DataError) as raised:
        read_shards(root)
    assert str(raised.value) == approved("twice", tmp_path=tmp_path)
    (root / INDEX).write_text(index.replace("train/cat/1.jpg", "train/dog/9.jpg"))
    lying = read_shards(root)
    with pytest.raises(DataError) as raised:
        contents(lying)
    assert str(raised.value) == approved("not there index", tmp_path=tmp_path)
    (root / INDEX).write_bytes(b"\xff")
    with pytest.raises(DataError) as raised:
        read_shards(root)
    assert str(raised.value) == approved("not utf", tmp_path=tmp_path)
    (root / INDEX).write_text(index)
    with (root / "shard-00000.tar").open("ab") as file:
        file.write(bytes(512))
    with pytest.raises(DataError) as raised:
        read_shards(root)
    assert str(raised.value) == approved("bytes", tmp_path=tmp_path)
    (root / "shard-00000.tar").unlink()
    with pytest.raises(DataError) as raised:
        read_shards(root)
    assert str(raised.value) == approved("cannot read such", tmp_path=tmp_path)


def test_names_of_a_folder_say_split_and_class(tmp_path: Path) -> None:
    found = labelled(
        read_shards(sharded(tmp_path, {**FOLDER, "readme.txt": b"", "train/notes.txt": b"", "test/cat/1.jpg": b""}))
    )
    assert found.names == [name for split in ("train", "val") for name in sorted(FOLDER) if name.startswith(split)]
    assert found.classes == ["cat", "dog"]
    assert found.labels == [0, 0, 0, 1, 1, 1] * 2
    assert found.train == 6
    assert [read_file(file) for file in found.files] == [FOLDER[name] for name in found.names]


def test_a_folder_without_a_split(tmp_path: Path) -> None:
    files = {name.removeprefix("train/"): content for name, content in FOLDER.items() if name.startswith("train")}
    found = labelled(read_shards(sharded(tmp_path, files)))
    assert (found.names, found.labels, found.train) == (sorted(files), [0, 0, 0, 1, 1, 1], None)


@pytest.mark.parametrize("names", [("train/0.tar", "val/0.tar"), ("train-0.tar", "val-0.tar"), ("a.tar", "b.tar")])
def test_files_of_webdataset_say_their_class(tmp_path: Path, names: tuple[str, str], approved: Approved) -> None:
    for name, numbers in zip(names, ((0, 1, 2, 10), (3, 4)), strict=True):
        files: dict[str, bytes] = {}
        for number in numbers:
            files |= {
                f"{number:06}.JPG": b"%d" % number,
                f"{number:06}.cls": b"%d\n" % (number % 9 * 10),
                f"{number:06}.json": b"{}",
            }
        tar(tmp_path / "data" / name, {**files})
    if names[0] != "a.tar":
        with pytest.raises(DataError) as raised:
            labelled(read_shards(tmp_path / "data"))
        assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)
        return
    found = labelled(read_shards(tmp_path / "data"))
    assert found.classes == ["0", "10", "20", "30", "40"]
    assert {
        int(read_file(file)): found.classes[label] for file, label in zip(found.files, found.labels, strict=True)
    } == {number: str(number % 9 * 10) for number in (0, 1, 2, 3, 4, 10)}
    assert found.train is None


@pytest.mark.parametrize(
    "files",
    [
        {"a/b/c/d.jpg": b""},
        {"a.jpg": b""},
        {"cat/a.jpg": b""},
        {"a.jpg": b"", "a.cls": b"1", "b.jpg": b""},
        {"a.jpg": b"", "a.png": b"", "a.cls": b"1"},
        {"a.cls": b"1"},
        {"a.jpg": b"", "a.cls": b""},
        {"a.jpg": b"", "a.cls": b"x" * 300},
        {"a.jpg": b"", "a.cls": b"\x1b[2J"},
        {"train/cat/a.jpg": b"", "train/dog/a.jpg": b""},
        {"train/cat/a.jpg": b"", "train/dog/a.jpg": b"", "val/cow/a.jpg": b""},
    ],
)
def test_names_that_say_no_class_are_refused(tmp_path: Path, files: dict[str, bytes], approved: Approved) -> None:
    tar(tmp_path / "data" / "a.tar", files)
    with pytest.raises(DataError) as raised:
        labelled(read_shards(tmp_path / "data"))
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)


def test_a_file_in_two_tars_is_refused(tmp_path: Path, approved: Approved) -> None:
    for name in ("a.tar", "b.tar"):
        tar(tmp_path / "data" / name, {"cat/1.jpg": b"one"})
    with pytest.raises(DataError) as raised:
        labelled(read_shards(tmp_path / "data"))
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"images/a.jpg": b"a", "masks/a.png": b"A", "images/b.c.jpg": b"b", "masks/b.c.bmp": b"B"},
        {"a.jpg": b"a", "a.png": b"A", "b.jpg": b"b", "b.png": b"B", "b.json": b"{}"},
        {"a.png": b"a", "a.mask.png": b"A", "x/b.png": b"b", "x/b.seg.png": b"B"},
    ],
)
def test_pictures_and_their_masks(tmp_path: Path, files: dict[str, bytes]) -> None:
    tar(tmp_path / "data" / "a.tar", files)
    found = paired(read_shards(tmp_path / "data"))
    assert [tuple(map(read_file, pair)) for pair in found.files] == [(b"a", b"A"), (b"b", b"B")]
    assert found.train is None


def test_pairs_may_lie_in_different_tars_of_a_split(tmp_path: Path) -> None:
    files = {
        f"{split}/{kind}/{name}.png": name.encode()
        for split in ("train", "val")
        for kind in ("images", "masks")
        for name in "abcdef"
    }
    found = paired(read_shards(sharded(tmp_path, files)))
    assert (found.names, found.train) == ([f"{split}/{name}" for split in ("train", "val") for name in "abcdef"], 6)
    assert len({file.shard for pair in found.files for file in pair}) > 1
    assert all(isinstance(file, InShard) for pair in found.files for file in pair)


@pytest.mark.parametrize(
    "files",
    [
        {"images/a.jpg": b"", "masks/b.png": b""},
        {"images/a.jpg": b"", "images/a.png": b"", "masks/a.png": b""},
        {"a.jpg": b"", "b.jpg": b"", "b.png": b""},
        {"a.png": b"", "a.jpg": b"", "a.webp": b""},
        {"a.txt": b""},
    ],
)
def test_names_that_make_no_pairs_are_refused(tmp_path: Path, files: dict[str, bytes], approved: Approved) -> None:
    tar(tmp_path / "data" / "a.tar", files)
    with pytest.raises(DataError) as raised:
        paired(read_shards(tmp_path / "data"))
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)
