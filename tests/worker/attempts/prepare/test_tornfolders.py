"""A captured folder that is torn lies beside its place for the next attempt, and its newest whole version in it."""

from dataclasses import replace
from datetime import UTC, datetime
import os
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from store.output.checkpoints_facts import CheckpointFacts
from store.output.facts import NewCheckpoint
from tests.worker.attempts.capture import test_capturing_folders as capturing
from tests.worker.attempts.capture.test_capturing_folders import DCP, look, look_at_once, relay_of, run, write, zipped
from torchyard.contract.attempts.rundir import WORK, RunDir
from worker.attempts.prepare import restoring
from worker.attempts.prepare.torn import TornFiles

__all__ = ["look_at_once", "run"]  # fixtures

HALF = {"__0_0.distcp": b"rank 0"}


def listed(*new: NewCheckpoint) -> list[CheckpointFacts]:
    """Returns the rows of checkpoints that were captured, newest first."""
    rows = [
        CheckpointFacts(
            id=f"ckpt_{number:032}",
            attempt=1,
            name=each.name,
            epoch=None,
            end_of_epoch=True,
            step=0,
            metrics={},
            monitored=None,
            files=each.entries,
            files_bytes=None,
            sent=None,
            source=each.source,
            saved_at=each.saved_at,
            damaged=each.damaged,
            remeasured=None,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for number, each in enumerate(new)
    ]
    return rows[::-1]


def at_end(run: RunDir, pattern: str = "out/*") -> list[NewCheckpoint]:
    return capturing.saved(look(relay_of(run, pattern), final=True))


def tree(run: RunDir) -> dict[str, bytes]:
    assert not [path for path in run.work.parent.iterdir() if path.name.startswith(".put.")]
    return {str(path.relative_to(run.work)): path.read_bytes() for path in run.work.rglob("*") if path.is_file()}


def mend(run: RunDir, *new: NewCheckpoint) -> str:
    torn = TornFiles(run, BlobFolder(run.root.parent.parent / "blobs"), lambda: listed(*new))
    torn.mend(WORK)
    return torn.message()


def test_a_half_written_folder_is_moved_aside(run: RunDir) -> None:
    whole = write(run.work / "out/step-1", DCP)
    half = write(run.work / "out/step-2", HALF)
    found = at_end(run)
    assert sorted(new.damaged for new in found) == [False, True]
    assert mend(run, *found) == "not whole, and moved aside: out/step-2; see NAME.torn"
    assert tree(run) == {**whole, **{path.replace("step-2", "step-2.torn"): text for path, text in half.items()}}
    assert capturing.saved(look(relay_of(run, "**/*"), final=True)) != []
    assert not any("torn" in file.path for new in at_end(run, "**/*") for file in new.files)


def test_a_torn_folder_gives_its_place_to_its_newest_whole_version(run: RunDir) -> None:
    whole = write(run.work / "out/last", {"deep/a": b"1", **DCP})
    (first,) = at_end(run)
    times = {path: (run.work / path).stat().st_mtime_ns for path in whole}
    os.utime(run.work / "out/last/.metadata", ns=(5 * 10**17, 5 * 10**17))
    (second,) = at_end(run)
    assert second.damaged, "its last file is older than the others"
    (run.work / "out/last/.metadata").unlink()
    torn = write(run.work / "out/last", {"__0_0.distcp": b"half"})
    (third,) = at_end(run)
    assert (first.damaged, third.damaged) == (False, True)
    mend(run, first, second, third)
    left = tree(run)
    assert {path: content for path, content in left.items() if ".torn/" not in path} == whole
    assert left["out/last.torn/__0_0.distcp"] == torn["out/last/__0_0.distcp"]
    assert {path: (run.work / path).stat().st_mtime_ns for path in whole} == times


def test_a_folder_with_a_torn_file_is_moved_aside(run: RunDir) -> None:
    write(run.work / "out/checkpoint-1", {"trainer_state.json": b"{}", "optimizer.pt": zipped(b"o" * 500)[:-10]})
    mend(run, *at_end(run))
    assert {path.split("/")[1] for path in tree(run)} == {"checkpoint-1.torn"}


@pytest.mark.parametrize("change", ["more", "nothing is torn", "gone", "link"])
def test_a_folder_that_is_not_the_torn_one_stays(run: RunDir, change: str, tmp_path: Path) -> None:
    folder = run.work / "out/step-1"
    write(folder, {"config.json": b"{}", "model.safetensors": b""} if change == "more" else HALF)
    if change == "nothing is torn":
        (folder / "__0_0.distcp").unlink()
        write(folder, {"config.json": b"{}", "pytorch_model.bin": zipped(b"1")})
    found = at_end(run)
    assert [new.damaged for new in found] == [True]
    if change == "more":
        write(folder, {"model.safetensors": b"\2\0\0\0\0\0\0\0{}"})
    elif change in {"gone", "link"}:
        folder.rename(tmp_path / "moved")
    if change == "link":
        folder.symlink_to(tmp_path / "moved")
    before = tree(run)
    assert mend(run, *found) == ""
    assert tree(run) == before


def test_in_a_new_folder_a_torn_one_lies_beside_its_place(run: RunDir, tmp_path: Path) -> None:
    write(run.work / "out/step-1", DCP)
    write(run.work / "out/deep/step-2", HALF)
    time_ns = (run.work / "out/deep/step-2/__0_0.distcp").stat().st_mtime_ns
    found = [*at_end(run), *at_end(run, "out/deep/*")]
    run.work.rename(tmp_path / "gone")
    (run.work.parent / "new").mkdir()
    TornFiles(run, BlobFolder(run.root.parent.parent / "blobs"), lambda: listed(*found)).lay(WORK, folder="new")
    (run.work.parent / "new").rename(run.work)
    assert tree(run) == {f"out/deep/step-2.torn/{name}": content for name, content in HALF.items()}
    assert (run.work / "out/deep/step-2.torn/__0_0.distcp").stat().st_mtime_ns == time_ns


def test_what_lies_at_the_place_of_a_torn_folder_stays(run: RunDir) -> None:
    write(run.work / "out/step-2", HALF)
    found = at_end(run)
    own = write(run.work / "out/step-2.torn", {"own": b"x"})
    before = tree(run)
    TornFiles(run, BlobFolder(run.root.parent.parent / "blobs"), lambda: listed(*found)).lay(WORK)
    assert tree(run) == before and before.items() >= own.items()


def test_old_checkpoints_with_very_many_files_are_not_put_back_without_a_word(run: RunDir, tmp_path: Path) -> None:
    write(run.work / "out/step-1", DCP)
    (new,) = at_end(run)
    (row,) = listed(new)
    old = replace(row, id="ckpt_old", files=[], files_bytes=1 << 20, saved_at=0)
    versions = restoring.versions_of(restoring.stored_of([row, old], []))
    restored = restoring.restore(
        versions, folders={"work": tmp_path}, blobs=BlobFolder(run.root.parent.parent / "blobs")
    )
    assert restored.checkpoints == 1
    assert restored.message(of="it").endswith("; not put back: checkpoint ckpt_old (older ones have many files)")
