"""Blobs are named by their contents, and are either complete or absent."""

import hashlib
import io
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from store.blobs.folder import BlobFolder
from store.blobs.writer import Blob
from tests.approved import Approved
from tests.store.fixture import run_together
from torchyard.contract.errors import NotFound

_BIG = bytes(range(256)) * 12_288  # 3 MiB: several chunks

_ENDLESS = """
import sys
from pathlib import Path
from store.blobs.folder import BlobFolder

class Endless:
    sent = 0
    def read(self, size):
        self.sent += 1
        if self.sent == 4:
            print("under way", flush=True)
        return b"x" * size if self.sent < 5 else sys.stdin.buffer.read(1)

BlobFolder(Path(sys.argv[1])).add(Endless())
"""


def files(blobs: BlobFolder) -> list[Path]:
    return sorted(path.relative_to(blobs.root) for path in blobs.root.rglob("*") if path.is_file())


@pytest.mark.parametrize("content", [b"", b"a", _BIG, _BIG + b"!"])
def test_a_blob_is_named_by_its_sha256(blobs: BlobFolder, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    assert blobs.add(io.BytesIO(content)) == Blob(digest, len(content))
    with blobs.open(digest) as file:
        assert file.read() == content
    assert files(blobs) == [Path(digest[:2]) / digest]
    assert blobs.path(digest).stat().st_mode & 0o077 == 0


def test_the_same_bytes_are_stored_once(blobs: BlobFolder) -> None:
    answers = run_together(*[lambda: blobs.add(io.BytesIO(_BIG))] * 8)
    assert len(set(answers)) == 1
    assert isinstance(answers[0], Blob)
    assert len(files(blobs)) == 1
    assert blobs.path(answers[0].sha256).read_bytes() == _BIG


def test_a_whole_blob_is_copied_out(blobs: BlobFolder, tmp_path: Path) -> None:
    blob = blobs.add(io.BytesIO(_BIG))
    assert blobs.copy_out(blob.sha256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == _BIG
    with pytest.raises(FileExistsError):
        blobs.copy_out(blob.sha256, tmp_path / "copy")


@pytest.mark.parametrize("damage", [_BIG[:-1], b"", _BIG[:1000] + b"?" + _BIG[1001:]])
def test_a_damaged_blob_is_not_copied_out_and_is_replaced_when_added_again(
    blobs: BlobFolder, tmp_path: Path, damage: bytes
) -> None:
    blob = blobs.add(io.BytesIO(_BIG))
    blobs.path(blob.sha256).write_bytes(damage)
    assert not blobs.copy_out(blob.sha256, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    blobs.add(io.BytesIO(_BIG))
    assert blobs.copy_out(blob.sha256, tmp_path / "copy")


def test_a_missing_blob_is_not_found(blobs: BlobFolder, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        blobs.open("0" * 64)
    assert not blobs.copy_out("0" * 64, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_failing_source_leaves_no_file(blobs: BlobFolder, approved: Approved) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= 2 << 20:
                raise OSError("the disk is gone")
            return super().read(size)

    with pytest.raises(OSError) as raised:
        blobs.add(Failing(_BIG))
    assert str(raised.value) == approved("message")
    assert files(blobs) == []


def test_a_crash_during_a_copy_leaves_no_named_blob(blobs: BlobFolder) -> None:
    argv = [sys.executable, "-c", _ENDLESS, str(blobs.root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"under way\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert [path.parts[0] for path in files(blobs)] == ["incoming"]
    whole = b"x" * (4 << 20)
    assert not blobs.path(hashlib.sha256(whole).hexdigest()).exists()
    assert blobs.copy_out(blobs.add(io.BytesIO(whole)).sha256, blobs.root / "copy")
