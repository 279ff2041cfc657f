"""A worker, or the child that unpacks for it, is killed while a bundle is unpacked."""

from collections.abc import Generator
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from tests.failpoints.armed import started
from tests.worker.bundles.tars import Tree, folder_of, read_tree, store, tar_of
from torchyard.host import failpoints
from worker.bundles.cache import BundleCache
from worker.host.untrusted import remove_inside

CHILD = ["bundle.unpack"]
WORKER = ["bundle.rename", "bundle.renamed"]
POINTS = [*CHILD, *WORKER]
TREE: Tree = {"a": (b"1", False), "b/c": (b"2", True)}


@pytest.fixture
def cache(tmp_path: Path) -> Generator[BundleCache]:
    yield BundleCache(tmp_path / "unpacked", BlobFolder(tmp_path / "blobs"))
    remove_inside(tmp_path, "unpacked")


def _fetch(root: Path, blobs: Path, sha256: str) -> None:
    BundleCache(root, BlobFolder(blobs)).fetch(sha256, owner="ada")


@pytest.mark.parametrize("point", WORKER)
def test_the_next_worker_has_the_whole_bundle_after_a_kill(cache: BundleCache, tmp_path: Path, point: str) -> None:
    sha256 = store(cache.blobs, tar_of(TREE))
    arguments = (cache.root, folder_of(cache.blobs).root, sha256)
    with started(_fetch, *arguments, plan=f"{point}=kill", log=tmp_path / "log") as child:
        assert child.wait() == -9
        assert child.acted == [point]
    tree = cache.tree(sha256, owner="ada")
    assert tree.exists() == (point == "bundle.renamed")
    assert read_tree(cache.fetch(sha256, owner="ada")) == TREE
    assert list(tree.parent.iterdir()) == [tree]


@pytest.mark.parametrize("point", CHILD)
def test_a_bundle_is_unpacked_again_after_its_child_was_killed(
    cache: BundleCache, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    sha256 = store(cache.blobs, tar_of(TREE))
    monkeypatch.setenv(failpoints.VARIABLE, f"{point}=kill@2")
    with pytest.raises(OSError, match="ended with -9"):
        cache.fetch(sha256, owner="ada")
    monkeypatch.undo()
    assert read_tree(cache.fetch(sha256, owner="ada")) == TREE
