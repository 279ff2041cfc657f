"""The caches of owners are bounded, those of unfinished jobs stay."""

import os
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.worker.folders import HostFolders
from tests.store.fixture import StoreFixture, store_on
from tests.worker.bundles.tars import read_tree, tar_of
from tests.worker.bundles.tars import store as store_blob
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.states import EndReason
from worker.bundles.cache import BundleCache, locked
from worker.cleanup.caches import Caches
from worker.host import era
from worker.packages import cache as packages

MIB = 1 << 20
BOTH = (True, False)


def _home(homes: Path, owner: str, *, used: int) -> Path:
    """Makes a home of 1 MiB that was last used `used` seconds after the epoch."""
    home = homes / owner
    (home / ".cache").mkdir(parents=True)
    (home / ".cache" / "x").write_bytes(os.urandom(MIB))
    os.utime(home, (used, used))
    return home


def _remove(homes: Path, database: Database, keep_bytes: int | None) -> list[str]:
    for _ in Caches(homes, homes / "none", homes / "none", HostFolders(store_on(database), "")).remove_oldest(
        keep_bytes=keep_bytes
    ):
        pass
    return sorted(path.name for path in homes.iterdir())


def test_homes_that_were_not_used_for_longest_are_removed_until_the_rest_fits(
    tmp_path: Path, database: Database
) -> None:
    for used, owner in enumerate(("carol", "alice", "bob")):
        _home(tmp_path, owner, used=used)
    assert _remove(tmp_path, database, None) == ["alice", "bob", "carol"]
    assert _remove(tmp_path, database, 4 * MIB) == ["alice", "bob", "carol"]
    assert _remove(tmp_path, database, 5 * MIB // 2) == ["alice", "bob"]
    assert _remove(tmp_path, database, 0) == []


def test_the_home_of_an_owner_with_an_unfinished_attempt_stays(tmp_path: Path, database: Database) -> None:
    store = StoreFixture(database)
    claim = store.starting(store.submit(), store.worker())
    owner = store.job(claim.job_id).owner
    _home(tmp_path, owner, used=1)
    _home(tmp_path, "another", used=2)
    assert _remove(tmp_path, database, 0) == [owner]


def test_an_interrupted_removal_is_completed_and_a_link_is_left_to_its_target(
    tmp_path: Path, database: Database
) -> None:
    homes, target = tmp_path / "homes", tmp_path / "target"
    _home(homes, ".removed.x", used=1)
    target.mkdir()
    (homes / "link").symlink_to(target)
    assert _remove(homes, database, 0) == ["link"]
    assert target.exists()


def test_no_homes_are_no_error(tmp_path: Path, database: Database) -> None:
    caches = Caches(tmp_path / "absent", tmp_path / "none", tmp_path / "none", HostFolders(store_on(database), ""))
    assert [*caches.remove_oldest(keep_bytes=0)] == []


def _bundle(folder: Path, *, owner: str, used: int) -> str:
    """Unpacks a bundle of 1 MiB that was last used `used` seconds after the epoch. Returns its digest."""
    cache = BundleCache(folder / "unpacked", BlobFolder(folder / "blobs"))
    sha256 = store_blob(cache.blobs, tar_of({"x": (os.urandom(MIB), False)}))
    os.utime(cache.fetch(sha256, owner=owner).parent, (used, used))
    return sha256


def _evict(folder: Path, database: Database, keep_bytes: int | None) -> list[str]:
    for _ in Caches(
        folder / "homes", folder / "unpacked", folder / "environments", HostFolders(store_on(database), "")
    ).remove_oldest(keep_bytes=keep_bytes):
        pass
    homes, bundles = (folder / "homes").glob("*"), (folder / "unpacked").glob("*/*")
    return sorted(path.name for path in (*homes, *bundles))


def test_bundles_and_homes_are_bounded_together_by_their_last_use(tmp_path: Path, database: Database) -> None:
    _home(tmp_path / "homes", "ada", used=2)
    old, new = (_bundle(tmp_path, owner="ada", used=used) for used in (1, 3))
    assert _evict(tmp_path, database, None) == sorted(["ada", old, new])
    assert _evict(tmp_path, database, 4 * MIB) == sorted(["ada", old, new])
    assert _evict(tmp_path, database, 5 * MIB // 2) == sorted(["ada", new])
    assert _evict(tmp_path, database, 3 * MIB // 2) == [new]
    assert _evict(tmp_path, database, 0) == []


def test_a_bundle_of_an_unfinished_attempt_stays_and_others_of_its_owner_go(tmp_path: Path, database: Database) -> None:
    service = StoreFixture(database)
    used, unused = (_bundle(tmp_path, owner="admin", used=time) for time in (1, 2))
    job_id = service.submit(config={"code": "file:///code", "mounts": {"data": bundle_url(used)}})
    claim = service.running(job_id, service.worker())
    owner = service.job(job_id).owner
    if owner != "admin":
        (tmp_path / "unpacked" / "admin").rename(tmp_path / "unpacked" / owner)
    assert _evict(tmp_path, database, 0) == [used]
    assert unused != used
    service.end(claim, EndReason.COMPLETED)
    assert _evict(tmp_path, database, 0) == []


def test_a_bundle_that_is_being_unpacked_stays(tmp_path: Path, database: Database) -> None:
    sha256 = _bundle(tmp_path, owner="ada", used=1)
    with locked(tmp_path / "unpacked" / "ada" / sha256):
        assert _evict(tmp_path, database, 0) == [sha256]
    assert _evict(tmp_path, database, 0) == []


def test_a_removed_bundle_is_unpacked_again(tmp_path: Path, database: Database) -> None:
    sha256 = _bundle(tmp_path, owner="ada", used=1)
    assert _evict(tmp_path, database, 0) == []
    cache = BundleCache(tmp_path / "unpacked", BlobFolder(tmp_path / "blobs"))
    assert list(read_tree(cache.fetch(sha256, owner="ada"))) == ["x"]


def _environment(folder: Path, *, owner: str, name: str, used: int) -> Path:
    """Makes a folder of 1 MiB as of an environment, which was last used `used` seconds after the epoch."""
    made = folder / "environments" / owner / name
    (made / "try" / "venv").mkdir(parents=True)
    (made / "try" / "venv" / "x").write_bytes(os.urandom(MIB))
    packages.mark_complete(made / "try")
    os.utime(made, (used, used))
    return made


def test_what_is_kept_is_measured_before_and_after_a_removal(tmp_path: Path, database: Database) -> None:
    _environment(tmp_path, owner="ada", name="a" * 64, used=1)
    _environment(tmp_path, owner="ada", name="b" * 64, used=3)
    _home(tmp_path / "homes", "ada", used=2)
    folders = (tmp_path / "homes", tmp_path / "unpacked", tmp_path / "environments")
    caches = Caches(*folders, HostFolders(store_on(database), ""))
    for _ in caches.remove_oldest(keep_bytes=None):
        pass
    assert caches.measured is None, "nothing limits it, so nobody measures it"
    for keep, packages_mib, total_mib in ((4 * MIB, 2, 3), (5 * MIB // 2, 1, 2)):
        for _ in caches.remove_oldest(keep_bytes=keep):
            pass
        assert caches.measured is not None
        assert round(caches.measured.packages_bytes / MIB) == packages_mib
        assert round(caches.measured.total_bytes / MIB) == total_mib
        assert caches.measured.limit_bytes == keep


def test_an_environment_stays_while_its_owner_may_use_it(tmp_path: Path, database: Database) -> None:
    service = StoreFixture(database)
    job_id = service.submit(config={"code": "file:///code", "requirements": "requirements.txt"})
    claim = service.running(job_id, service.worker())
    used = _environment(tmp_path, owner=service.job(job_id).owner, name="a", used=1)
    unused = [_environment(tmp_path, owner="other", name=name, used=2) for name in ("b", packages.DOWNLOADS)]
    locked = _environment(tmp_path, owner="other", name="c", used=3)
    lock = packages.try_lock(locked, shared=True)
    assert lock is not None
    _evict(tmp_path, database, 0)
    assert [path.exists() for path in (used, *unused, locked)] == [True, False, False, True]
    os.close(lock)
    service.end(claim, EndReason.COMPLETED)
    _evict(tmp_path, database, 0)
    assert [path.exists() for path in (used, locked)] == [False, False]


def test_an_environment_of_a_shared_folder_stays_whole_for_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shared in BOTH:
        (tmp_path / str(shared)).mkdir()
    made = {shared: packages.mark_complete(packages.new_in(tmp_path / str(shared)), shared=shared) for shared in BOTH}
    for environment in made.values():
        environment.chmod(0o500)
    assert {shared: packages.complete_in(tmp_path / str(shared), shared=shared) for shared in BOTH} == made
    monkeypatch.setattr(era, "boot_id", lambda: "of another host")
    found = {shared: packages.complete_in(tmp_path / str(shared), shared=shared) for shared in BOTH}
    assert found == {True: made[True], False: None}


def test_a_folder_that_cannot_be_synced_is_told(tmp_path: Path) -> None:
    era.end_write(tmp_path, shared=True)
    era.end_write(tmp_path / "missing", shared=False)
    with pytest.raises(FileNotFoundError):
        era.end_write(tmp_path / "missing", shared=True)
