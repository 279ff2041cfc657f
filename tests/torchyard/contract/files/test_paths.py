"""Which files a checkpoint may have, the digest of their list, and the tar of them."""

import hashlib
from io import BytesIO
from pathlib import Path
import subprocess
import tarfile

import pytest

from tests.archives import archive_of
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import DataError
from torchyard.contract.files import archives
from torchyard.contract.files.paths import (
    MOST_FILES,
    MOST_PATHS_BYTES,
    check_path,
    check_paths,
    digest_of,
    folder_of,
    is_file_path,
)

NAMES = [
    *("epoch=1.ckpt", ".metadata", "__0_0.distcp", "-first", "Größe 1,5.pt", "a b", "#?%&+.pt", "~", "*"),
    *("global_step10/mp_rank_00_model_states.pt", "/".join("x" * 16), "x" * 255, "a/" + "y" * 255),
]
REFUSED = [
    *("", ".", "..", "a/..", "../a", "a/../b", "/etc/passwd", "a//b", "a/", "./a", "a/./b"),
    *("a\0b", "a\nb", "a\x1b[2Jb", "a\x7f", "a\\b", "..\\a", "a\u202eb", "a\ud800b"),
    *("/".join("x" * 17), "x" * 256, "é" * 128, "/".join(["x" * 100] * 10)),
]


@pytest.mark.parametrize("path", NAMES)
def test_a_file_keeps_its_name(path: str) -> None:
    assert ManifestFile(path=path, size=0, sha256="0" * 64).path == path


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_that_leads_elsewhere_or_cannot_be_shown_is_refused(path: str) -> None:
    assert not is_file_path(path)
    with pytest.raises(ValueError, match="must be names with / between them"):
        check_path(path)
    with pytest.raises(ValueError, match="path: "):
        ManifestFile(path=path, size=0, sha256="0" * 64)


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (["a", "b", "a"], "twice"),
        (["a/b", "a"], "has 'a' as a file, and as the folder of another one"),
        (["a", "a/b/c"], "has 'a' as a file, and as the folder of another one"),
        ([f"{number:06}" for number in range(MOST_FILES + 1)], "at most 10000"),
        ([f"{number:06}/{'x' * 200}" for number in range(MOST_PATHS_BYTES // 200)], "at most 1048576"),
    ],
)
def test_paths_that_one_checkpoint_cannot_have_are_refused(paths: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_paths(paths)


def test_a_checkpoint_may_have_ten_thousand_files() -> None:
    paths = [f"shards/{number:06}.bin" for number in range(MOST_FILES)]
    check_paths(paths)
    files = [ManifestFile(path=path, size=1, sha256="0" * 64) for path in paths]
    assert Manifest.from_json(Manifest(step=1, files=files).to_json()).files == files


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["out/a/x", "out/a/y"], "out/a"),
        (["out/a/x", "out/ab/y"], "out"),
        (["out/a/x", "out/a/b/y"], "out/a"),
        (["x", "out/y"], ""),
        (["x"], ""),
        ([], ""),
    ],
)
def test_the_folder_of_a_checkpoint_has_all_of_its_files(paths: list[str], folder: str) -> None:
    assert folder_of(paths) == folder_of(reversed(paths)) == folder


def test_the_digest_is_that_of_what_sha256sum_prints(tmp_path: Path) -> None:
    files = {"b": b"1", "a/.metadata": b"2", "a-b": b"", "é=1": b"3"}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    listed = [(path, hashlib.sha256(content).hexdigest()) for path, content in files.items()]
    printed = subprocess.run(
        "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    assert digest_of(listed) == digest_of(reversed(listed)) == printed.split()[0].decode()


@pytest.mark.parametrize("change", ["name", "content", "missing", "more"])
def test_another_list_has_another_digest(change: str) -> None:
    files = {"a": "1" * 64, "b": "2" * 64}
    changed = {
        "name": {"a": "1" * 64, "c": "2" * 64},
        "content": {"a": "1" * 64, "b": "3" * 64},
        "missing": {"a": "1" * 64},
        "more": {**files, "c": "3" * 64},
    }[change]
    assert digest_of(files.items()) != digest_of(changed.items())


def test_every_name_stands_in_the_tar_as_it_is(tmp_path: Path) -> None:
    files = {path: path.encode() for path in NAMES}
    file = tmp_path / "a.tar"
    file.write_bytes(archive_of(files))
    assert file.stat().st_size == archives.size_of((path, len(content)) for path, content in files.items())
    with tarfile.open(file) as tar:
        found = tar.getmembers()
    assert [member.name for member in found] == sorted(files, key=str.encode)
    assert {(member.mode, member.mtime, member.uid, member.uname, member.type) for member in found} == {
        (0o644, 0, 0, "", tarfile.REGTYPE)
    }
    content = file.read_bytes()
    listed = archives.members(lambda at, size: content[at : at + size], size=len(content))
    assert {path: content[at : at + size] for path, at, size in listed} == files


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 1 << 40])
def test_the_size_of_a_large_file_is_told(size: int) -> None:
    for path in ("a", "é" * 100):
        raw = archives.header(path, size)
        with tarfile.TarFile(fileobj=BytesIO(raw + archives.END)) as tar:
            member = tar.next()
        assert member is not None and (member.name, member.size) == (path, size)
        listed = archives.members(lambda at, length, raw=raw: (raw + archives.END)[at : at + length], size=1 << 50)
        assert next(listed) == (path, len(raw), size)


@pytest.mark.parametrize("record", [b"size=-1", b"size=nine", b"path=\xff"])
def test_a_forged_record_is_refused(record: bytes) -> None:
    rest = b" " + record + b"\n"
    raw = archives.header("é", 5)
    forged = raw[:512] + (b"%d" % (len(rest) + 2) + rest).ljust(512, b"\0") + raw[1024:]
    forged = _with_size(forged, len(rest) + 2) + bytes(512) + archives.END
    with pytest.raises(DataError):
        [*archives.members(lambda at, size: forged[at : at + size], size=len(forged))]


def _with_size(raw: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, size
    return info.tobuf(tarfile.USTAR_FORMAT) + raw[512:]
