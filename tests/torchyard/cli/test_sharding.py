"""`torchyard data shard`: what it writes, and that it leaves nothing behind where it cannot."""

import hashlib
import json
import os
from pathlib import Path
import tarfile

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import run_in_process
from torchyard.cli.sharding import find_files, write_shards
from torchyard.contract.bundles.shards import INDEX, parse_index
from torchyard.contract.bundles.tar import verify
from torchyard.contract.errors import DataError

LONG = f"cat/{'x' * 120}.jpg"
FILES = {"cat/1.jpg": b"a" * 700, "cat/2.jpg": b"b" * 512, LONG: b"c" * 10, "dog/é.png": b"", "readme.txt": b"d" * 3000}


def folder(root: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def digests(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


def test_shards_hold_the_files_of_the_folder_where_the_index_says(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    index = write_shards(find_files(folder(tmp_path / "data")), out, most=4096)
    assert parse_index((out / INDEX).read_text().splitlines(), where="index") == index
    assert index.shards == {path.name: path.stat().st_size for path in out.glob("*.tar")}
    assert len(index.shards) > 1
    assert all(
        size <= 4096 or len([e for e in index.entries if e.shard == place]) == 1
        for place, size in enumerate(index.shards.values())
    )
    names = list(index.shards)
    read = {
        entry.name: (out / names[entry.shard]).read_bytes()[entry.offset : entry.offset + entry.size]
        for entry in index.entries
    }
    assert read == FILES
    extracted: dict[str, bytes] = {}
    for path in out.glob("*.tar"):
        with path.open("rb") as tar:
            verify(tar)
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                extracted[member.name] = file.read()
    assert extracted == FILES


def test_the_same_files_give_the_same_shards(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "one"), folder(tmp_path / "other", dict(reversed(FILES.items())))
    for path in other.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (1, 1))
    for root in (one, other):
        write_shards(find_files(root), tmp_path / f"{root.name}-out", most=4096)
    assert digests(tmp_path / "one-out") == digests(tmp_path / "other-out")


def test_hidden_files_are_left_out_and_links_to_files_are_followed(tmp_path: Path) -> None:
    root = folder(tmp_path / "data", {"cat/1.jpg": b"a", "cat/.hidden": b"b", ".git/c": b"c"})
    (root / "cat" / "2.jpg").symlink_to(root / "cat" / "1.jpg")
    assert list(find_files(root).files) == ["cat/1.jpg", "cat/2.jpg"]


def test_what_cannot_be_packed_is_named_and_leaves_nothing(tmp_path: Path, approved: Approved) -> None:
    root = folder(tmp_path / "data", {"cat/1.jpg": b"a"})
    (root / "link").symlink_to(root / "cat")
    with pytest.raises(DataError) as raised:
        find_files(root)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    (root / "link").unlink()
    os.mkfifo(root / "pipe")
    with pytest.raises(DataError) as raised:
        find_files(root)
    assert str(raised.value) == approved("neither file nor", tmp_path=tmp_path)
    (root / "pipe").unlink()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as raised:
        find_files(tmp_path / "empty")
    assert str(raised.value) == approved("there file", tmp_path=tmp_path)
    with pytest.raises(DataError, match="exists"):
        write_shards(find_files(root), tmp_path / "empty", most=4096)
    (root / "bad\nname").write_bytes(b"a")
    with pytest.raises(DataError, match="control character"):
        write_shards(find_files(root), tmp_path / "out", most=4096)
    (root / "bad\nname").unlink()
    found = find_files(root)
    (root / "cat" / "1.jpg").unlink()
    with pytest.raises(FileNotFoundError):
        write_shards(found, tmp_path / "out", most=4096)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "empty"]


FIRST = '{"format": 1, "shards": [["a.tar", 2048]]}'


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["[]"],
        ['{"format": 2, "shards": []}'],
        ['{"format": 1, "shards": [["../a.tar", 9]]}'],
        ['{"format": 1, "shards": [["/a.tar", 9]]}'],
        ['{"format": 1, "shards": [["a.tar", -1]]}'],
        ['{"format": 1, "shards": [["a.tar", 9], ["a.tar", 9]]}'],
        ["?"],
        ["[" * 100_000],
        [FIRST, "x"],
        *(
            [FIRST, json.dumps(entry)]
            for entry in (
                [0, "a", 512],
                [0, 1, 512, 1],
                [1, "a", 512, 1],
                [-1, "a", 512, 1],
                [0, "../a", 512, 1],
                [0, "a\u001b[2J", 512, 1],
                [0, "\ud800", 512, 1],
                [0, "a" * 2000, 512, 1],
                [0, "a", 512, -1],
                [0, "a", 512, 1 << 40],
                [0, "a", 512, 1537],
                [0, "a", 0, 1],
                [0, "a", -512, 1],
                [0, "a", 513, 1],
                [0, "a", 1 << 62, 1],
            )
        ),
    ],
)
def test_a_wrong_index_is_refused_with_its_line(lines: list[str], approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        parse_index(lines, where="index")
    assert str(raised.value) == approved.of_row("message")


def test_the_command_prints_what_names_the_shards_in_a_job(tmp_path: Path, approved: Approved) -> None:
    root = folder(tmp_path / "data")
    arguments = ["data", "shard", str(root), "out", "--size", "4KiB"]
    done = run_in_process(arguments, {}, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"file://{tmp_path}/out\n")
    assert "5 files in 4 shards" in done.stderr
    again = run_in_process(arguments, {}, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (1, approved("stderr"))
    as_json = json.loads(run_in_process([*arguments[:3], "two", "--json"], {}, cwd=tmp_path).stdout)
    size = sum(path.stat().st_size for path in (tmp_path / "two").glob("*.tar"))
    assert as_json == {"url": f"file://{tmp_path}/two", "files": 5, "shards": 1, "size": size}
    assert run_in_process([*arguments[:3], "three", "--size", "x"], {}, cwd=tmp_path).stderr == approved("errors")
