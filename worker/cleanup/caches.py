"""Bounds the homes that jobs of one owner share on this host, which hold their caches."""

from collections.abc import Generator
import logging
from pathlib import Path
from uuid import uuid4

from store.db.database import Database
from store.queries import run_dirs
from worker.cleanup import rundirs
from worker.untrusted import folders_inside, remove_inside

_REMOVED_PREFIX = ".removed."

logger = logging.getLogger(__name__)


def remove_oldest(homes: Path, database: Database, *, keep_bytes: int | None) -> Generator[None]:
    """Removes the homes that were not used for longest until the total is at most `keep_bytes`; None keeps all.

    The home of an owner with an unfinished attempt stays. Yields after each home. Raises Unavailable.
    """
    found = folders_inside(homes)
    names = [name for name in found if not name.startswith(_REMOVED_PREFIX)]
    for name in set(found) - set(names):  # their removal was interrupted
        remove_inside(homes, name)
    if keep_bytes is None:
        return
    sizes: dict[str, int] = {}
    for name in sorted(names, key=lambda name: (homes / name).lstat().st_mtime):
        sizes[name] = rundirs.size(homes / name, unlock=False)
        yield
    total = sum(sizes.values())
    for name, size in sizes.items():
        if total <= keep_bytes:
            return
        with database.read() as session:
            in_use = run_dirs.owners_with_attempts(session)
        if name not in in_use and _remove(homes, name):
            logger.info("the caches of %s are removed: %d bytes", name, size)
            total -= size
        yield


def _remove(homes: Path, name: str) -> bool:
    """Renames the home first: the owner's next attempt makes a new one."""
    aside = f"{_REMOVED_PREFIX}{uuid4().hex}"
    try:
        (homes / name).rename(homes / aside)
    except OSError as error:
        logger.warning("the caches of %s cannot be removed: %s", name, error)
        return False
    return remove_inside(homes, aside)
