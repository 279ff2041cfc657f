"""Only the copies of removed checkpoints are removed from the run directories."""

from collections.abc import Collection
import os
from pathlib import Path

import pytest

from tests.leftovers import as_nobody, leave_everything
from worker.host import rundirs

REMOVED = {1: {"epoch-0001", "epoch-0002"}, 2: {"epoch-0001", "linked"}}


def removed_among(attempt: int, names: Collection[str]) -> set[str]:
    for name in names:
        name.encode()  # a database encodes it, too
    return REMOVED.get(attempt, set()) & set(names)


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "state.pt").write_text("state")


def existing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder).parent) for path in folder.rglob("state.pt"))


def test_only_copies_of_removed_checkpoints_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job, copies = tmp_path / "job_1", "job/checkpoints"
    make(job / "1" / copies, "epoch-0001", "epoch-0002", "epoch-0003", ".epoch-0001", os.fsdecode(b"\xff"))
    make(job / "2" / copies, "epoch-0001", "epoch-0002")
    make(job / "3" / copies, "epoch-0001")
    make(job / "2", "epoch-0001", "resume")
    make(tmp_path / "job_2" / "1" / copies, "epoch-0001", "linked")
    (job / "2" / copies / "linked").symlink_to(tmp_path / "job_2" / "1" / copies / "linked")
    rundirs.remove_checkpoint_copies(job, removed_among, attempts=2)
    assert existing(job) == sorted(
        [
            *(f"1/{copies}/{name}" for name in (".epoch-0001", "epoch-0003", os.fsdecode(b"\xff"))),
            *(f"2/{copies}/epoch-0002", "2/epoch-0001", "2/resume", f"3/{copies}/epoch-0001"),
        ]
    )
    assert len(existing(tmp_path / "job_2")) == 2
    assert caplog.text == ""


def test_a_run_directory_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path / "job_2" / "1" / "job" / "checkpoints", "epoch-0001")
    (tmp_path / "job_1").mkdir()
    (tmp_path / "job_1" / "1").symlink_to(tmp_path / "job_2" / "1")
    rundirs.remove_checkpoint_copies(tmp_path / "job_1", removed_among, attempts=1)
    assert existing(tmp_path / "job_2") == ["1/job/checkpoints/epoch-0001"]


def test_a_job_without_run_directories_has_nothing_to_remove(tmp_path: Path) -> None:
    rundirs.remove_checkpoint_copies(tmp_path / "job_1", removed_among, attempts=3)
    assert not (tmp_path / "job_1").exists()
    (tmp_path / "job_1").write_text("no folder")
    rundirs.remove_checkpoint_copies(tmp_path / "job_1", removed_among, attempts=3)
    assert (tmp_path / "job_1").read_text() == "no folder"


@pytest.mark.usefixtures("removed_afterwards")
def test_whatever_lies_in_a_copy_is_removed(tmp_path: Path) -> None:
    copies = tmp_path / "job_1" / "1" / "job" / "checkpoints"
    leave_everything(copies / "epoch-0001", outside=tmp_path / "outside")
    for folder in (copies, copies.parent):
        folder.chmod(0o500)
    rundirs.remove_checkpoint_copies(tmp_path / "job_1", removed_among, attempts=1)
    assert list(copies.iterdir()) == []
    assert (tmp_path / "outside" / "kept").exists()


def test_an_owner_removes_copies_from_a_locked_folder() -> None:
    with as_nobody() as folder:
        copies = folder / "job_1" / "1" / "job" / "checkpoints"
        make(copies, "epoch-0001", "epoch-0003")
        for locked in (copies, copies.parent):
            locked.chmod(0)
        rundirs.remove_checkpoint_copies(folder / "job_1", removed_among, attempts=1)
        assert existing(copies) == ["epoch-0003"]
