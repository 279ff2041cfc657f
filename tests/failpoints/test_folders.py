"""A worker is killed while it makes the working folder of a job."""

from collections.abc import Generator
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from tests.failpoints.armed import started
from tests.worker.bundles.tars import Tree, read_tree
from torchyard.contract.attempts.rundir import RunDir
from worker.attempts.prepare.workfolder import WorkFolder
from worker.host import workfolders
from worker.host.untrusted import remove_inside

TREE: Tree = {"a": (b"1", False), "b/c": (b"2", False)}
RECORD = [f"record.work.{step}" for step in ("fsync", "rename", "renamed")]
POINTS = ["folder.copy", *RECORD, "folder.rename", "folder.renamed"]


@pytest.fixture
def tree(tmp_path: Path) -> Generator[Path]:
    folder = tmp_path / "tree"
    for name, (content, _) in TREE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    yield folder
    remove_inside(tmp_path, "tree")


def _take(root: Path, blobs: Path, tree: Path, number: int) -> None:
    run = RunDir(root / str(number))
    run.create()
    WorkFolder(run=run, number=number, claimed_at=number, blobs=BlobFolder(blobs)).take(tree)


@pytest.mark.parametrize("point", POINTS)
def test_the_next_worker_has_a_whole_folder_after_a_kill(tree: Path, tmp_path: Path, point: str) -> None:
    job, blobs = tmp_path / "job", tmp_path / "blobs"
    with started(_take, job, blobs, tree, 1, plan=f"{point}=kill", log=tmp_path / "log") as child:
        assert child.wait() == -9
        assert child.acted == [point]
    run = RunDir(job / "1")
    assert run.work.exists() == (point == "folder.renamed")
    assert (workfolders.record_of(run) is not None) == run.work.exists()
    _take(job, blobs, tree, 1)
    assert read_tree(run.work) == TREE
    assert sorted(path.name for path in job.iterdir()) == ["1", "brought.json", "work", "work.json"]
