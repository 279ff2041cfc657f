"""An attempt finds the newest whole version of each captured file at its own path, and a torn one beside it."""

from collections.abc import Callable, Mapping
import errno
from io import BytesIO
import os
from pathlib import Path
from typing import Any

import pytest

from store.blobs import Blobs
from store.facts.checkpoints import CAPTURED, CheckpointFacts
from tests.approved import Approved
from torchyard.contract.rundir import WORK, RunDir
from torchyard.host import disk
from worker.attempts import putting_back
from worker.attempts.putting_back import PuttingBack

Add = Callable[..., CheckpointFacts]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "job" / "2")
    run.create()
    run.work.mkdir()
    return run


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    found = Blobs(tmp_path / "blobs")
    found.root.mkdir()
    return found


@pytest.fixture
def saved(blobs: Blobs) -> Add:
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
            created_at=0,
        )

    return add


def putting(run: RunDir, blobs: Blobs, *checkpoints: CheckpointFacts) -> PuttingBack:
    """Of checkpoints, oldest first."""
    return PuttingBack(run, blobs, checkpoints[::-1])


def tree(folder: Path) -> dict[str, bytes]:
    """Returns the files below a folder, and that nothing unfinished lies beside it."""
    assert not [name for name in os.listdir(folder.parent) if name.startswith(".put.")]  # noqa: PTH208
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_folder_gets_the_newest_whole_version_of_each_path(run: RunDir, blobs: Blobs, saved: Add) -> None:
    back = putting(run, blobs, saved("out/a=1/last.pt", b"old"), saved("out/a=1/last.pt", b"new"), saved("b.pt", b"b"))
    back.fill(WORK)
    assert tree(run.work) == {"out/a=1/last.pt": b"new", "b.pt": b"b"}
    assert (run.work / "out/a=1/last.pt").stat().st_mtime_ns == 2 * 10**9
    assert (back.told.count, back.told.size, back.told.left_out) == (2, 4, [])
    back.fill(WORK)
    assert back.told.count == 2


def test_a_torn_version_lies_beside_the_whole_one_in_a_new_folder(run: RunDir, blobs: Blobs, saved: Add) -> None:
    old, torn = saved("last.pt", b"whole"), saved("last.pt", b"torn", damaged=True)
    putting(run, blobs, old, torn, saved("only.pt", b"only", damaged=True)).fill(WORK)
    assert tree(run.work) == {"last.pt": b"whole", "last.pt.torn": b"torn", "only.pt.torn": b"only"}


def test_what_the_program_has_published_is_not_put_back(run: RunDir, blobs: Blobs, saved: Add) -> None:
    putting(run, blobs, saved("state.pt", b"state", source=None)).fill(WORK)
    assert tree(run.work) == {}


def test_artifacts_go_into_their_own_folder(run: RunDir, blobs: Blobs, saved: Add) -> None:
    back = putting(run, blobs, saved("a.pt", b"work"), saved("a.pt", b"artifact", root="artifacts"))
    back.fill("artifacts")
    assert (tree(run.work), tree(run.artifacts)) == ({}, {"a.pt": b"artifact"})
    back.fill(WORK)
    assert tree(run.work) == {"a.pt": b"work"}


def test_all_names_of_one_file_lead_to_one_file_again(run: RunDir, blobs: Blobs, saved: Add) -> None:
    first = saved("epoch-1.pt", b"1", links=["last.pt"])
    putting(run, blobs, first, saved("epoch-2.pt", b"2", links=["last.pt"])).fill(WORK)
    assert tree(run.work) == {"epoch-1.pt": b"1", "epoch-2.pt": b"2", "last.pt": b"2"}
    assert (run.work / "last.pt").samefile(run.work / "epoch-2.pt")


def test_a_file_whose_path_could_not_be_kept_is_not_put_back(run: RunDir, blobs: Blobs, saved: Add) -> None:
    putting(run, blobs, saved("a_.pt", b"x", modified_ns=None)).fill(WORK)
    assert tree(run.work) == {}


def test_a_missing_blob_gives_the_version_before(run: RunDir, blobs: Blobs, saved: Add, approved: Approved) -> None:
    old, new, lost = saved("a.pt", b"old"), saved("a.pt", b"new"), saved("b.pt", b"lost")
    for each in (new, lost):
        blobs.path(each.files[0]["sha256"]).unlink()
    back = putting(run, blobs, old, new, lost)
    back.fill(WORK)
    assert tree(run.work) == {"a.pt": b"old"}
    assert back.told.messages() == [approved("restored"), approved("left out")]


def test_without_room_for_the_newest_the_attempt_waits(
    run: RunDir, blobs: Blobs, saved: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, size: int) -> None:
        if size > 10:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(disk, "require_free_space", refuse)
    back = putting(run, blobs, saved("old.pt", b"x" * 20), saved("new.pt", b"x"))
    back.fill(WORK)
    assert (tree(run.work), back.told.left_out) == ({"new.pt": b"x"}, ["old.pt"])
    with pytest.raises(OSError, match="full"):
        putting(run, blobs, saved("newest.pt", b"x" * 20)).fill(WORK)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_lies_in_the_way_is_not_followed(run: RunDir, blobs: Blobs, saved: Add, kind: str) -> None:
    outside = run.root.parent.parent / "outside"
    outside.mkdir()
    if kind == "link":
        (run.work / "out").symlink_to(outside)
    else:
        (run.work / "out").write_bytes(b"file")
    back = putting(run, blobs, saved("out/a.pt", b"a"))
    back.fill(WORK)
    assert (list(outside.iterdir()), back.told.left_out) == ([], ["out/a.pt"])


def test_a_torn_file_in_a_kept_folder_gives_its_place_to_the_whole_one(
    run: RunDir, blobs: Blobs, saved: Add, approved: Approved
) -> None:
    old, torn = saved("out/last.npy", b"whole"), saved("out/last.npy", b"torn", damaged=True)
    path = run.work / "out" / "last.npy"
    path.parent.mkdir()
    path.write_bytes(b"torn")
    os.utime(path, ns=(0, torn.files[0]["modified_ns"]))
    back = putting(run, blobs, old, torn)
    back.mend(WORK)
    assert tree(run.work) == {"out/last.npy": b"whole", "out/last.npy.torn": b"torn"}
    assert path.stat().st_mtime_ns == old.files[0]["modified_ns"]
    assert back.told.messages() == [approved("told")]
    back.mend(WORK)
    assert (tree(run.work)["out/last.npy"], len(back.told.replaced)) == (b"whole", 1)


@pytest.mark.parametrize(
    ("content", "stays"),
    [
        pytest.param(b"PK\x03\x04 torn", False, id="torn by its bytes"),
        pytest.param(b"", False, id="empty"),
        pytest.param(b"newer", True, id="nobody can tell"),
    ],
)
def test_a_file_that_was_not_captured_is_judged_by_its_bytes(
    run: RunDir, blobs: Blobs, saved: Add, content: bytes, *, stays: bool
) -> None:
    (run.work / "last.pt").write_bytes(content)
    putting(run, blobs, saved("last.pt", b"whole")).mend(WORK)
    assert tree(run.work) == {"last.pt": content} if stays else {"last.pt": b"whole", "last.pt.torn": content}


@pytest.mark.parametrize("versions", ["none", "torn"])
def test_a_torn_file_without_a_whole_version_stays(run: RunDir, blobs: Blobs, saved: Add, versions: str) -> None:
    torn = saved("last.pt", b"PK\x03\x04 torn", damaged=True)
    (run.work / "last.pt").write_bytes(b"PK\x03\x04 torn")
    os.utime(run.work / "last.pt", ns=(0, torn.files[0]["modified_ns"]))
    putting(run, blobs, *([torn] if versions == "torn" else [])).mend(WORK)
    assert tree(run.work) == {"last.pt": b"PK\x03\x04 torn"}


def test_what_a_program_removed_or_replaced_stays_so_in_a_kept_folder(run: RunDir, blobs: Blobs, saved: Add) -> None:
    os.mkfifo(run.work / "pipe.pt")
    (run.work / "link.pt").symlink_to("/etc/hostname")
    (run.work / "folder.pt").mkdir()
    names = ("gone.pt", "pipe.pt", "link.pt", "folder.pt")
    putting(run, blobs, *(saved(name, b"whole") for name in names)).mend(WORK)
    assert sorted(os.listdir(run.work)) == ["folder.pt", "link.pt", "pipe.pt"]  # noqa: PTH208
    assert (run.work / "link.pt").is_symlink()


def test_a_torn_file_whose_whole_versions_are_lost_stays(run: RunDir, blobs: Blobs, saved: Add) -> None:
    whole = saved("last.pt", b"whole")
    blobs.path(whole.files[0]["sha256"]).unlink()
    (run.work / "last.pt").write_bytes(b"")
    putting(run, blobs, whole).mend(WORK)
    assert tree(run.work) == {"last.pt": b""}


def test_files_that_were_never_put_in_their_place_are_removed(run: RunDir) -> None:
    (run.root.parent / ".put.abc").write_bytes(b"part")
    putting_back.remove_unfinished(run)
    assert sorted(os.listdir(run.root.parent)) == ["2", "work"]  # noqa: PTH208
