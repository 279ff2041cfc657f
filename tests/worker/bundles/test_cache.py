"""The cache of bundles: each is unpacked once for an owner, whole or not at all."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import errno
import multiprocessing
import os
from pathlib import Path
import signal
import stat

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest

from store.blobs.folder import BlobFolder
from tests.approved import Approved
from tests.disks import mounted
from tests.worker.attempt import wait_for
from tests.worker.bundles.tars import Tree, folder_of, read_tree, store, store_as, tar_of
from torchyard.client.packing.bundle import pack
from torchyard.contract.errors import DataError, InvalidBundle
from torchyard.host import failpoints
from worker.bundles import unpack
from worker.bundles.cache import BundleCache, locked
from worker.bundles.copying import copy_tree
from worker.host import era
from worker.host.untrusted import remove_inside

SMALL: Tree = {"train.py": (b"print(1)", False), "a/run.sh": (b"#!/bin/sh\n", True), "a/b/empty": (b"", False)}
_PART = st.text("abcXYZ01._- éß漢", min_size=1, max_size=60).filter(lambda part: part.strip(".") == part)
_NAMES = st.lists(st.lists(_PART, min_size=1, max_size=4).map("/".join), max_size=10, unique=True)
_TREES = _NAMES.flatmap(
    lambda names: st.fixed_dictionaries(dict.fromkeys(names, st.tuples(st.binary(max_size=3000), st.booleans())))
)


def _fits(tree: Tree) -> bool:
    """Whether a folder can have all of these files, whatever its file system."""
    parents = {"/".join(name.split("/")[:depth]) for name in tree for depth in range(1, name.count("/") + 1)}
    every = [*tree, *parents]
    return len({name.casefold() for name in every}) == len(every)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=_TREES.filter(_fits))
def test_what_was_packed_comes_out_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, tree: Tree) -> None:
    folder = tmp_path_factory.mktemp("packed")
    source, unpacked = folder / "source", folder / "unpacked"
    source.mkdir()
    unpacked.mkdir()
    for name, (content, executable) in tree.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if executable else 0o644)
    with pack(source) as bundle:
        (folder / "tar").write_bytes(b"".join(bundle.read()))
    with (folder / "tar").open("rb", buffering=0) as tar:
        unpack.unpack(tar, unpacked, sha256=bundle.sha256)
    copy_tree(unpacked, folder / "copy")
    assert read_tree(unpacked) == read_tree(folder / "copy") == tree
    remove_inside(folder.parent, folder.name)


def test_a_bundle_is_unpacked_once_and_read_only(cache: BundleCache) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    tree = cache.fetch(sha256, owner="ada")
    assert read_tree(tree) == SMALL
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (tree, *tree.rglob("*"))}
    assert modes == {0o400, 0o500}
    before = tree.lstat().st_ino
    folder_of(cache.blobs).path(sha256).unlink()
    assert cache.fetch(sha256, owner="ada").lstat().st_ino == before


def test_an_unwanted_fetch_ends_while_it_waits_and_while_it_unpacks(
    cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unwanted(Exception):
        pass

    def refuse() -> None:
        raise Unwanted

    sha256 = store(cache.blobs, tar_of(SMALL))
    tree = cache.tree(sha256, owner="ada")
    cache.root.mkdir()
    monkeypatch.setattr("worker.bundles.cache.POLL_S", 0.0)
    with locked(tree.parent), pytest.raises(Unwanted):
        cache.fetch(sha256, owner="ada", check=refuse)
    with pytest.raises(Unwanted):
        cache.fetch(sha256, owner="ada", check=refuse)
    assert not list(tree.parent.iterdir())
    monkeypatch.undo()
    assert read_tree(cache.fetch(sha256, owner="ada")) == SMALL


def test_each_owner_has_their_own(cache: BundleCache) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    trees = [cache.fetch(sha256, owner=owner) for owner in ("ada", "bob")]
    assert not trees[0].samefile(trees[1])
    assert not (trees[0] / "train.py").samefile(trees[1] / "train.py")


def test_a_bundle_that_was_written_before_a_restart_of_the_host_is_unpacked_again(cache: BundleCache) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    tree = cache.fetch(sha256, owner="ada")
    old = tree.with_name("another-boot")
    tree.rename(old)
    (old / "train.py").chmod(0o600)
    (old / "train.py").write_bytes(b"")
    assert read_tree(cache.fetch(sha256, owner="ada")) == SMALL
    assert [path.name for path in tree.parent.iterdir()] == [tree.name]


@pytest.fixture
def shared(cache: BundleCache) -> BundleCache:
    """A cache in a folder of several hosts."""
    return replace(cache, shared=True)


def test_what_other_hosts_read_stays_when_another_host_fetches_it(
    shared: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = store(shared.blobs, tar_of(SMALL))
    read = shared.fetch(sha256, owner="ada")
    monkeypatch.setattr(era, "boot_id", lambda: "of another host")
    assert shared.fetch(sha256, owner="ada") == read
    assert read_tree(read) == SMALL


def test_what_other_hosts_read_is_not_whole_before_it_is_durable(
    shared: BundleCache, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    sha256 = store(shared.blobs, tar_of(SMALL))
    with monkeypatch.context() as patched:
        patched.setattr(era, "end_write", broken)
        with pytest.raises(OSError) as raised:
            shared.fetch(sha256, owner="ada")
        assert str(raised.value) == approved("message")
    assert not shared.tree(sha256, owner="ada").exists()
    assert read_tree(shared.fetch(sha256, owner="ada")) == SMALL


def test_a_bundle_that_the_cache_lost_is_unpacked_again(cache: BundleCache) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    cache.fetch(sha256, owner="ada")
    remove_inside(cache.root.parent, cache.root.name)
    assert read_tree(cache.fetch(sha256, owner="ada")) == SMALL


def test_many_that_ask_at_once_get_the_same_tree(cache: BundleCache) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(cache.fetch, sha256, owner="ada") for _ in range(6)]
    assert len({one.result().lstat().st_ino for one in asked}) == 1
    tree = cache.tree(sha256, owner="ada")
    assert list(tree.parent.iterdir()) == [tree]


def test_a_bundle_that_the_store_lost_is_named(cache: BundleCache) -> None:
    with pytest.raises(DataError) as raised:
        cache.fetch("0" * 64, owner="ada")
    assert raised.value.message == f"the bundle {'0' * 64} is no longer stored: upload it again"


@pytest.mark.parametrize("content", [tar_of({**SMALL, "z": (b"more", False)}), tar_of(SMALL)[:-700], b"", b"x" * 5000])
def test_a_damaged_blob_is_refused(cache: BundleCache, content: bytes, approved: Approved) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    store_as(cache.blobs, sha256, content)
    with pytest.raises(DataError) as raised:
        cache.fetch(sha256, owner="ada")
    assert str(raised.value) == approved("message")
    assert list(cache.tree(sha256, owner="ada").parent.iterdir()) == []


@pytest.mark.parametrize("point", ["bundle.unpack=error:ENOSPC@2", "bundle.unpack=error:EDQUOT"])
def test_a_full_disk_leaves_nothing_and_passes(cache: BundleCache, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    monkeypatch.setenv(failpoints.VARIABLE, point)
    with pytest.raises(OSError, match=r"No space|quota") as raised:
        cache.fetch(sha256, owner="ada")
    assert raised.value.errno in {errno.ENOSPC, errno.EDQUOT}
    assert list(cache.tree(sha256, owner="ada").parent.iterdir()) == []
    monkeypatch.undo()
    assert read_tree(cache.fetch(sha256, owner="ada")) == SMALL


@pytest.mark.parametrize("sizes", [(3_000_000,), (1,) * 500], ids=["one", "many"])
def test_a_disk_that_is_really_full_is_told(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    root, blobs = tmp_path / "small", BlobFolder(tmp_path / "blobs")
    root.mkdir()
    sha256 = store(blobs, tar_of({f"{number}": (bytes(size), False) for number, size in enumerate(sizes)}))
    with mounted(root, kibibytes=1000):
        with pytest.raises(OSError, match="No space left") as raised:
            BundleCache(root / "unpacked", blobs).fetch(sha256, owner="ada")
        assert raised.value.errno == errno.ENOSPC
        assert list((root / "unpacked" / "ada" / sha256).iterdir()) == []


def test_a_killed_child_leaves_nothing_that_looks_whole(cache: BundleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    monkeypatch.setenv(failpoints.VARIABLE, "bundle.unpack=kill@2")
    with pytest.raises(OSError, match="the process that unpacks a bundle ended with -9") as raised:
        cache.fetch(sha256, owner="ada")
    assert raised.value.errno == errno.EIO
    assert list(cache.tree(sha256, owner="ada").parent.iterdir()) == []
    monkeypatch.undo()
    assert read_tree(cache.fetch(sha256, owner="ada")) == SMALL


def test_a_worker_that_is_killed_takes_its_child_along(cache: BundleCache) -> None:
    sha256 = store(cache.blobs, tar_of(SMALL))
    folder = cache.tree(sha256, owner="ada").parent
    fetching = multiprocessing.get_context("fork").Process(target=_fetch_and_stop, args=(cache, sha256))
    fetching.start()
    try:
        wait_for(lambda: folder.exists() and any(_files(folder)), "the child has begun")
        (child,) = (
            int(text) for text in Path(f"/proc/{fetching.pid}/task/{fetching.pid}/children").read_text().split()
        )
    finally:
        fetching.kill()
        fetching.join()
    wait_for(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child), "the end of the child")
    assert not cache.tree(sha256, owner="ada").exists()
    assert read_tree(cache.fetch(sha256, owner="ada")) == SMALL
    assert [path.name for path in folder.iterdir()] == [cache.tree(sha256, owner="ada").name]


def _fetch_and_stop(cache: BundleCache, sha256: str) -> None:
    os.environ[failpoints.VARIABLE] = "bundle.unpack=stop@2"
    cache.fetch(sha256, owner="ada")


def _files(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names]


def _is_zombie(pid: int) -> bool:
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_the_child_may_write_its_folder_alone(cache: BundleCache, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    confined = multiprocessing.get_context("fork").Process(target=_try_to_escape, args=(tmp_path,))
    confined.start()
    confined.join()
    assert confined.exitcode == 0
    assert (tmp_path / "folder" / "x").read_text() == "mine"
    assert not (tmp_path / "x").exists()


def _try_to_escape(folder: Path) -> None:
    unpack.confine(folder / "folder")
    (folder / "folder" / "x").write_text("mine")
    for change in (
        lambda: (folder / "x").write_text("out"),
        lambda: (folder / "folder" / "x").rename(folder / "x"),
        lambda: Path("/etc/passwd").read_text(),
        lambda: os.kill(os.getppid(), signal.SIGCONT),
    ):
        try:
            change()
        except OSError:
            continue
        os._exit(1)
    os._exit(0)


def test_unpacking_refuses_another_digest_even_of_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(tar_of(SMALL))
    (tmp_path / "out").mkdir()
    with (tmp_path / "tar").open("rb", buffering=0) as tar, pytest.raises(InvalidBundle, match="another digest"):
        unpack.unpack(tar, tmp_path / "out", sha256="0" * 64)
