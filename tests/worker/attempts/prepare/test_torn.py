"""An attempt finds a whole version in the place of a captured file that is torn, and the torn one beside it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
import errno
from io import BytesIO
import os
from pathlib import Path
from typing import Any

import pytest

from store.blobs.folder import BlobFolder
from store.output.checkpoints_facts import CAPTURED, CheckpointFacts
from tests.approved import Approved
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.host import disk
from worker.attempts.prepare.torn import TornFiles

Add = Callable[..., CheckpointFacts]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "job" / "2")
    run.create()
    run.work.mkdir()
    return run


@pytest.fixture
def blobs(tmp_path: Path) -> BlobFolder:
    found = BlobFolder(tmp_path / "blobs")
    found.root.mkdir()
    return found


@pytest.fixture
def saved(blobs: BlobFolder) -> Add:
    """Returns a checkpoint of one captured file, of which the later one is newer."""
    count = 0

    def add(path: str, content: bytes, *, damaged: bool = False, source: str | None = CAPTURED, **entry: Any) -> Any:
        nonlocal count
        count += 1
        blob = blobs.add(BytesIO(content))
        at: Mapping[str, Any] = {"path": path, "size": blob.size, "sha256": blob.sha256, "modified_ns": 10**9 * count}
        return CheckpointFacts(
            id=f"ckpt_{count:032}",
            attempt=1,
            name=f"captured-{count}-1-1",
            epoch=None,
            end_of_epoch=True,
            step=0,
            metrics={},
            monitored=None,
            files=[{**at, **entry}],
            files_bytes=None,
            sent=None,
            source=source,
            saved_at=count,
            damaged=damaged,
            remeasured=None,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )

    return add


def torn_files(run: RunDir, blobs: BlobFolder, *checkpoints: CheckpointFacts) -> TornFiles:
    """Of checkpoints, oldest first."""
    return TornFiles(run, blobs, lambda: checkpoints[::-1])


def tree(folder: Path) -> dict[str, bytes]:
    """Returns the files below a folder, and that nothing unfinished lies beside it."""
    assert not [name for name in os.listdir(folder.parent) if name.startswith(".put.")]  # noqa: PTH208
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_torn_version_lies_in_a_new_folder_beside_the_place_of_the_whole_one(
    run: RunDir, blobs: BlobFolder, saved: Add
) -> None:
    torn = saved("out/a=1/last.pt", b"torn", damaged=True)
    older = saved("b.pt", b"old torn", damaged=True), saved("b.pt", b"whole")
    files = torn_files(run, blobs, saved("out/a=1/last.pt", b"whole"), torn, *older, saved("c.pt", b"c", source=None))
    files.lay(WORK)
    assert tree(run.work) == {"out/a=1/last.pt.torn": b"torn"}
    assert (run.work / "out/a=1/last.pt.torn").stat().st_mtime_ns == torn.files[0]["modified_ns"]
    files.lay(WORK, folder="other")
    assert tree(run.root.parent / "other") == {}
    (run.root.parent / "other").mkdir()
    files.lay(WORK, folder="other")
    assert tree(run.root.parent / "other") == {"out/a=1/last.pt.torn": b"torn"}


def test_artifacts_go_into_their_own_folder(run: RunDir, blobs: BlobFolder, saved: Add) -> None:
    files = torn_files(
        run, blobs, saved("a.pt", b"work", damaged=True), saved("a.pt", b"artifact", damaged=True, root="artifacts")
    )
    files.lay("artifacts")
    assert (tree(run.work), tree(run.artifacts)) == ({}, {"a.pt.torn": b"artifact"})


@pytest.mark.parametrize("method", ["lay", "mend"])
def test_a_file_waits_for_room_on_the_disk(
    run: RunDir, blobs: BlobFolder, saved: Add, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def refuse(_: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, f"full: {size}")

    monkeypatch.setattr(disk, "require_free_space", refuse)
    (run.work / "a.pt").write_bytes(b"")
    with pytest.raises(OSError, match="full: 5"):
        getattr(torn_files(run, blobs, saved("a.pt", b"whole", damaged=method == "lay")), method)(WORK)
    assert tree(run.work) == {"a.pt": b""}


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_lies_in_the_way_is_not_followed(run: RunDir, blobs: BlobFolder, saved: Add, kind: str) -> None:
    outside = run.root.parent.parent / "outside"
    outside.mkdir()
    if kind == "link":
        (run.work / "out").symlink_to(outside)
    else:
        (run.work / "out").write_bytes(b"file")
    torn_files(run, blobs, saved("out/a.pt", b"a", damaged=True)).lay(WORK)
    assert list(outside.iterdir()) == []


def test_a_torn_file_in_a_kept_folder_gives_its_place_to_the_whole_one(
    run: RunDir, blobs: BlobFolder, saved: Add, approved: Approved
) -> None:
    old, torn = saved("out/last.npy", b"whole"), saved("out/last.npy", b"torn", damaged=True)
    path = run.work / "out" / "last.npy"
    path.parent.mkdir()
    path.write_bytes(b"torn")
    os.utime(path, ns=(0, torn.files[0]["modified_ns"]))
    back = torn_files(run, blobs, old, torn)
    back.mend(WORK)
    assert tree(run.work) == {"out/last.npy": b"whole", "out/last.npy.torn": b"torn"}
    assert path.stat().st_mtime_ns == old.files[0]["modified_ns"]
    assert back.message() == approved("told")
    back.mend(WORK)
    assert (tree(run.work)["out/last.npy"], len(back.replaced)) == (b"whole", 1)


@pytest.mark.parametrize(
    ("content", "stays"),
    [
        pytest.param(b"PK\x03\x04 torn", False, id="torn by its bytes"),
        pytest.param(b"", False, id="empty"),
        pytest.param(b"newer", True, id="nobody can tell"),
    ],
)
def test_a_file_that_was_not_captured_is_judged_by_its_bytes(
    run: RunDir, blobs: BlobFolder, saved: Add, content: bytes, *, stays: bool
) -> None:
    (run.work / "last.pt").write_bytes(content)
    torn_files(run, blobs, saved("last.pt", b"whole")).mend(WORK)
    assert tree(run.work) == {"last.pt": content} if stays else {"last.pt": b"whole", "last.pt.torn": content}


@pytest.mark.parametrize("versions", ["none", "torn"])
def test_a_torn_file_without_a_whole_version_stays(run: RunDir, blobs: BlobFolder, saved: Add, versions: str) -> None:
    torn = saved("last.pt", b"PK\x03\x04 torn", damaged=True)
    (run.work / "last.pt").write_bytes(b"PK\x03\x04 torn")
    os.utime(run.work / "last.pt", ns=(0, torn.files[0]["modified_ns"]))
    torn_files(run, blobs, *([torn] if versions == "torn" else [])).mend(WORK)
    assert tree(run.work) == {"last.pt": b"PK\x03\x04 torn"}


def test_what_a_program_removed_or_replaced_stays_so_in_a_kept_folder(
    run: RunDir, blobs: BlobFolder, saved: Add
) -> None:
    os.mkfifo(run.work / "pipe.pt")
    (run.work / "link.pt").symlink_to("/etc/hostname")
    (run.work / "folder.pt").mkdir()
    names = ("gone.pt", "pipe.pt", "link.pt", "folder.pt")
    torn_files(run, blobs, *(saved(name, b"whole") for name in names)).mend(WORK)
    assert sorted(os.listdir(run.work)) == ["folder.pt", "link.pt", "pipe.pt"]  # noqa: PTH208
    assert (run.work / "link.pt").is_symlink()


def test_a_torn_file_whose_whole_versions_are_lost_stays(run: RunDir, blobs: BlobFolder, saved: Add) -> None:
    whole = saved("last.pt", b"whole")
    blobs.path(whole.files[0]["sha256"]).unlink()
    (run.work / "last.pt").write_bytes(b"")
    torn_files(run, blobs, whole).mend(WORK)
    assert tree(run.work) == {"last.pt": b""}


def test_files_that_were_never_put_in_their_place_are_removed(run: RunDir) -> None:
    (run.root.parent / ".put.abc").write_bytes(b"part")
    torn_files(run, BlobFolder(run.root)).remove_unfinished()
    assert sorted(os.listdir(run.root.parent)) == ["2", "work"]  # noqa: PTH208


def test_a_torn_file_stays_where_a_folder_has_the_name_that_it_would_get(
    run: RunDir, blobs: BlobFolder, saved: Add
) -> None:
    whole, torn = saved("a.pt", b"whole"), saved("a.pt", b"torn", damaged=True)
    file = run.work / "a.pt"
    file.write_bytes(b"torn")
    os.utime(file, ns=(0, torn.files[0]["modified_ns"]))
    (run.work / "a.pt.torn").mkdir()
    files = torn_files(run, blobs, whole, torn)
    files.mend(WORK)
    assert tree(run.work) == {"a.pt": b"torn"}
    assert files.message() == ""
