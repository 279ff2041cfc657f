"""Tars of others: every form of a name is read, and what is hostile is refused with the tar's name."""

import os
from pathlib import Path
import tarfile
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.approved import Approved
from tests.trainer.data.tars import END, add, block, extended, header, tar
from torchyard.contract.bundles.shards import Entry
from torchyard.contract.errors import DataError
from trainer.data import tars
from trainer.data.tars import InShard, read_file, scan_tar, tar_size

FILES = {
    "./cat/1.jpg": b"one",
    f"cat/{'x' * 150}.jpg": b"long" * 300,
    f"cat/{'y' * 80}/{'z' * 60}.jpg": b"in two fields of the header",
    "dog/é日本.png": b"",
}


def scan(path: Path) -> list[Entry]:
    return list(scan_tar(path, shard=0, size=tar_size(path)))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_a_name_is_read(tmp_path: Path, form: Literal[1, 2]) -> None:
    path = tar(tmp_path / "a.tar", FILES, form=form)
    found = {entry.name: read_file(InShard(str(path), *entry[1:])) for entry in scan(path)}
    assert found == {name.removeprefix("./"): content for name, content in FILES.items()}


def test_the_beginning_of_a_name_may_be_in_another_field(tmp_path: Path) -> None:
    name = f"cat/{'y' * 80}/{'z' * 60}.jpg"
    path = tar(tmp_path / "a.tar", {name: b"one"}, form=tarfile.USTAR_FORMAT)
    (entry,) = scan(path)
    assert (entry.name, read_file(InShard(str(path), *entry[1:]))) == (name, b"one")


def test_folders_hidden_files_and_comments_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "0123"}) as content:
        for folder in (".", "cat/", ".hidden"):
            add(content, folder, type=tarfile.DIRTYPE)
        add(content, "cat/._1.jpg", b"of a Mac")
        add(content, "cat/1.jpg", b"one", pax_headers={"mtime": "1.5", "SCHILY.xattr.user.a": "b"})
    assert [entry.name for entry in scan(path)] == ["cat/1.jpg"]


LINK = header("a", kind=b"1", linkname="b")
HOSTILE = {
    "hard link": (LINK, r"\('a'\) is a link"),
    "symbolic link": (header("a", kind=b"2", linkname="/etc/passwd"), r"\('a'\) is a link"),
    "long link of GNU": (
        header("././@LongLink", kind=b"K", size=3) + block(b"b\0") + LINK,
        "is a link: only plain files",
    ),
    "device": (header("a", kind=b"3"), r"\('a'\) is a device"),
    "pipe": (header("a", kind=b"6"), r"\('a'\) is a pipe"),
    "sparse file of GNU": (header("a", kind=b"S", form=tarfile.GNU_FORMAT), r"\('a'\) is a sparse file"),
    "sparse file of PAX": (
        extended([("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "1000000000000")]) + header("a"),
        "GNU.sparse.major, which says something else",
    ),
    "size of PAX": (extended([("size", "1")]) + header("a", size=3) + block(b"one"), "with size, which says"),
    "global size": (extended([("size", "1")], kind=b"g") + header("a", size=3) + block(b"one"), "with size, which"),
    "global name": (extended([("path", "b")], kind=b"g") + header("a"), "with path, which says"),
    "two names": (extended([("path", "b")]) + header("a"), "has two names: 'b' and 'a'"),
    "record without an end": (
        header("x", kind=b"x", size=20) + block(b"99 path=aaaaaaaaaaaa") + header("a"),
        "a record that is not valid",
    ),
    "record of nothing": (
        header("x", kind=b"x", size=12) + block(b"0 path=aaaaa") + header("a"),
        "a record that is not valid",
    ),
    "large extended header": (header("x", kind=b"x", size=1 << 21), "is an extended header of more than"),
    "extended header alone": (extended([("comment", "b")]), "is an extended header of nothing"),
    "name of a folder above": (header("../a"), r"the name '\.\./a', which must be relative"),
    "absolute name": (header("/etc/passwd"), "which must be relative"),
    "name of control characters": (header("a\x1b[2J"), "which has a control character"),
    "name that is no text": (header("a").replace(b"a\0\0", b"\xff\0\0", 1), "wrong checksum"),
    "no name": (header(""), "which must have 1 to"),
    "the same name twice": (header("a") + header("a"), r"\(a\) is in the tar twice"),
    "bytes beyond the end": (header("a", size=1 << 29), "lies beyond the end of the file"),
    "huge size": (header("a", size=8 << 30, form=tarfile.GNU_FORMAT), "has a size that is no number"),
    "size of letters": (header("a")[:124] + b"zzzzzzzzzzzz" + header("a")[136:], "wrong checksum"),
    "no tar": (b"\x89PNG" + bytes(600), "is no header of a tar"),
    "compressed": (b"\x1f\x8b" + bytes(600), "is no header of a tar"),
    "another tar behind the end": (header("a") + END + header("b"), "but more follows"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tar_is_refused_by_its_name(tmp_path: Path, name: str, approved: Approved) -> None:
    content, problem = HOSTILE[name]
    path = written(tmp_path / "a.tar", content + END)
    with pytest.raises(DataError) as raised:
        scan(path)
    assert str(raised.value) == approved.of_row("message", path=path, problem=problem)


@pytest.mark.parametrize("cut", [0, 1, 512, 700, 1024, 1536])
def test_a_tar_that_is_cut_off_is_refused(tmp_path: Path, cut: int, approved: Approved) -> None:
    whole = header("a", size=600) + block(b"x" * 600)
    path = written(tmp_path / "a.tar", whole[:cut])
    with pytest.raises(DataError) as raised:
        scan(path)
    assert str(raised.value) == approved.of_row("message", path=path)


def test_what_is_no_file_is_refused(tmp_path: Path, approved: Approved) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(DataError) as raised:
        tar_size(tmp_path / "a.tar")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    with pytest.raises(DataError) as raised:
        tar_size(tmp_path / "b.tar")
    assert str(raised.value) == approved("cannot read such", tmp_path=tmp_path)


@given(st.integers(0, 1535), st.binary(min_size=1, max_size=40))
def test_changed_bytes_are_read_as_a_tar_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, new: bytes
) -> None:
    content = bytearray(extended([("path", "x" * 120)]) + header("x" * 100, size=3) + block(b"one") + END)
    content[at : at + len(new)] = new
    path = written(tmp_path_factory.mktemp("tar") / "a.tar", bytes(content))
    try:
        for entry in scan(path):
            assert 0 < entry.offset <= entry.offset + entry.size <= len(content)
    except DataError as error:
        assert error.message.startswith(str(path))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "cat/2.jpg"},
        {"offset": 1024},
        {"offset": 512 * 40},
        {"size": 4},
        {"size": 2},
        {"size": 1 << 20},
        {"shard": "absent.tar"},
    ],
)
def test_a_file_is_only_read_where_the_tar_has_it(tmp_path: Path, wrong: dict[str, Any], approved: Approved) -> None:
    path = tar(tmp_path / "a.tar", {"cat/1.jpg": b"one", "cat/2.jpg": b"2"})
    right = InShard(str(path), *scan(path)[0][1:])
    assert read_file(right) == b"one"
    changed = {**right._asdict(), **wrong}
    with pytest.raises(DataError) as raised:
        read_file(InShard(**changed))
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)


def test_few_tars_are_open_at_once(tmp_path: Path) -> None:
    files: list[InShard] = []
    for number in range(tars.MOST_OPEN + 10):
        path = tar(tmp_path / f"{number}.tar", {"a": b"one"})
        files.append(InShard(str(path), *scan(path)[0][1:]))
    for file in files * 2:
        assert read_file(file) == b"one"
    descriptors = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert sum(str(tmp_path) in os.readlink(link) for link in descriptors if os.path.lexists(link)) <= tars.MOST_OPEN  # noqa: PTH115


@pytest.mark.thorough
def test_a_million_files_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        for thousand in range(1000):
            file.write(b"".join(header(f"cat/{thousand * 1000 + one}.jpg") for one in range(1000)))
        file.write(END)
    found = scan(path)
    assert (len(found), found[-1]) == (1_000_000, Entry(0, "cat/999999.jpg", 512_000_000, 0))
