"""What an attempt removes before it starts, however much it is, is ended where something is wanted of the attempt."""

from collections.abc import Callable
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from tests.worker.attempts.capture.test_capturing_folders import look_at_once, run, write
from tests.worker.attempts.prepare.test_tornfolders import HALF, at_end, listed
from torchyard.contract.attempts.rundir import WORK, RunDir
from worker.attempts.prepare.torn import TornFiles
from worker.host import rundirs, untrusted, workfolders

__all__ = ["look_at_once", "run"]  # fixtures

FILES = 50


class Wanted(Exception):
    """Raised where an attempt is cancelled."""


def wanted_at(call: int) -> Callable[[], None]:
    """Returns what raises from this call on."""
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise Wanted

    return check


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / str(number)).touch()
    return folder


def is_left_in_part(folder: Path) -> bool:
    return 0 < len(list(folder.iterdir())) < FILES


def test_what_was_set_aside_before(run: RunDir) -> None:
    before = fill(run.work.with_name(rundirs.STALE_PREFIX + WORK))
    with pytest.raises(Wanted):
        workfolders.set_aside(run, check=wanted_at(10))
    assert is_left_in_part(before)
    assert run.work.is_dir()
    workfolders.set_aside(run, check=lambda: None)
    assert ([path.name for path in before.iterdir()], run.work.exists()) == (["out"], False)


def test_a_folder_that_was_never_whole(run: RunDir) -> None:
    folder = fill(run.work.with_name(workfolders.fresh_name()))
    with pytest.raises(Wanted):
        workfolders.remove_unfinished(run, check=wanted_at(10))
    assert is_left_in_part(folder)


def test_a_torn_folder_that_is_replaced(run: RunDir) -> None:
    write(run.work / "out/step-2", HALF)
    found = at_end(run)
    assert [new.damaged for new in found] == [True]
    before = fill(run.work / "out/step-2.torn")
    torn = TornFiles(run, BlobFolder(run.root.parent.parent / "blobs"), lambda: listed(*found), wanted_at(10))
    with pytest.raises(Wanted):
        torn.mend(WORK)
    assert is_left_in_part(before)
    assert (run.work / "out/step-2").is_dir()


def test_the_copies_of_a_version_that_is_not_put_in_its_place(run: RunDir) -> None:
    copy = fill(run.work.parent / ".put.left")
    torn = TornFiles(run, BlobFolder(run.root.parent.parent / "blobs"), list, wanted_at(10))
    with pytest.raises(Wanted):
        torn.remove_unfinished()
    assert is_left_in_part(copy)


def test_a_copy_of_a_cancelled_attempt_is_removed_as_far_as_a_second_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = fill(tmp_path / "few"), fill(tmp_path / "many")
    untrusted.remove_briefly(tmp_path, few.name)
    assert not few.exists()
    monkeypatch.setattr(untrusted, "_BRIEF_S", 0.0)
    untrusted.remove_briefly(tmp_path, many.name)
    assert len(list(many.iterdir())) == FILES


def test_each_damaged_folder_is_asked_for_anew(run: RunDir) -> None:
    for number in range(3):
        write(run.work / f"out/step-{number}", HALF)
    found = at_end(run)
    torn = TornFiles(run, BlobFolder(run.root.parent.parent / "blobs"), lambda: listed(*found), wanted_at(3))
    with pytest.raises(Wanted):
        torn.mend(WORK)
    assert len(torn.moved) == 2
