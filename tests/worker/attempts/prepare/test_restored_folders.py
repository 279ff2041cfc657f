"""On another host a captured folder lies at its own path, as it was when it was saved."""

import os
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from tests.worker.attempts.capture.test_capturing_folders import DCP, look_at_once, run, write
from tests.worker.attempts.prepare.test_tornfolders import at_end, listed
from torchyard.contract.attempts.rundir import RunDir
from worker.attempts.prepare import restoring
from worker.attempts.prepare.restoring import Root

__all__ = ["look_at_once", "run"]  # fixtures


def restored(run: RunDir, target: Path, pattern: str = "out/*") -> tuple[dict[str, bytes], str]:
    """Returns what lies in a new folder, and the message."""
    rows = listed(*at_end(run, pattern))
    versions = restoring.versions_of(restoring.stored_of(rows, []))
    folders: dict[Root, Path] = {"work": target / "work", "artifacts": target / "artifacts"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    told = restoring.restore(versions, folders=folders, blobs=BlobFolder(run.root.parent.parent / "blobs")).message(
        of="it"
    )
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}, told


def test_a_folder_is_put_back_with_its_times(run: RunDir, tmp_path: Path) -> None:
    whole = write(run.work / "out/step=1", {"deep/ü": b"1", **DCP})
    for number, path in enumerate(whole):
        os.utime(run.work / path, ns=(10**18 + number, 10**18 + number))
    write(run.work / "out/step=2", {"__0_0.distcp": b"half"})
    found, told = restored(run, tmp_path / "new")
    assert found == {f"work/{path}": content for path, content in whole.items()}
    for number, path in enumerate(whole):
        assert (tmp_path / "new/work" / path).stat().st_mtime_ns == 10**18 + number
    assert told.startswith("restored 1 checkpoint ")


def test_a_folder_of_artifacts_is_put_back_there(run: RunDir, tmp_path: Path) -> None:
    write(run.artifacts / "out/step=1", DCP)
    found, _ = restored(run, tmp_path / "new")
    assert found == {f"artifacts/out/step=1/{name}": content for name, content in DCP.items()}


@pytest.mark.parametrize("newest", [1, 2])
def test_latest_of_deepspeed_names_the_newest_folder(run: RunDir, tmp_path: Path, newest: int) -> None:
    steps = (1, 2) if newest == 2 else (2, 1)
    (run.work / "out").mkdir(exist_ok=True)
    (run.work / "out/latest").write_text("")
    rows = []
    for count, step in enumerate(steps):
        folder = run.work / f"out/global_step{step}"
        write(folder, {"mp_rank_00_model_states.pt": b"m"})
        (run.work / "out/latest").write_text(folder.name)
        for path in (folder / "mp_rank_00_model_states.pt", run.work / "out/latest"):
            os.utime(path, ns=(10**18 + count, 10**18 + count))
        rows += at_end(run, f"out/global_step{step}/*")
    for each in rows:
        object.__setattr__(each, "damaged", False)
    assert [len(each.files) for each in rows] == [2, 2]
    versions = restoring.versions_of(restoring.stored_of(listed(*rows), []))
    target = tmp_path / "new"
    target.mkdir()
    restoring.restore(versions, folders={"work": target}, blobs=BlobFolder(run.root.parent.parent / "blobs"))
    assert (target / "out/latest").read_text() == f"global_step{newest}"
    assert {path.parent.name for path in target.rglob("*.pt")} == {"global_step1", "global_step2"}
