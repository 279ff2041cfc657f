"""The caches of owners are bounded, those of unfinished jobs stay."""

import os
from pathlib import Path

from store.db.database import Database
from tests.store.fixture import StoreFixture
from worker.cleanup.caches import Caches

MIB = 1 << 20


def _home(homes: Path, owner: str, *, used: int) -> Path:
    """Makes a home of 1 MiB that was last used `used` seconds after the epoch."""
    home = homes / owner
    (home / ".cache").mkdir(parents=True)
    (home / ".cache" / "x").write_bytes(os.urandom(MIB))
    os.utime(home, (used, used))
    return home


def _remove(homes: Path, database: Database, keep_bytes: int | None) -> list[str]:
    for _ in Caches(homes, homes / "none", database).remove_oldest(keep_bytes=keep_bytes):
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
    assert [*Caches(tmp_path / "absent", tmp_path / "none", database).remove_oldest(keep_bytes=0)] == []
