"""Bounds what this host keeps for the next jobs of an owner: homes, which hold caches, bundles and environments."""

from collections.abc import Collection, Generator
from dataclasses import dataclass
import logging
from pathlib import Path
import stat
from uuid import uuid4

from store.worker.protocol import Folders
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.cluster.devices import CachesReport
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.spec import ScriptSpec, parse_spec
from worker.bundles import cache
from worker.host import rundirs
from worker.host.untrusted import folders_inside, remove_inside
from worker.packages import cache as environments

_REMOVED_PREFIX = ".removed."

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CachedFolder:
    """A folder that may be removed when no unfinished attempt uses it."""

    path: Path
    owner: str
    sha256: str | None = None
    """That of a bundle."""
    packages: bool = False
    """It is one environment of packages, or what was downloaded for all. Neither: it is the owner's home."""

    def is_in_use(self, asked: Folders) -> bool:
        """Raises Unavailable."""
        if self.sha256 is None and not self.packages:
            return self.owner in asked.list_active_owners()
        specs = asked.list_active_specs(self.owner)
        if self.packages:  # which of them a job uses is known when its code is read
            return any(_has_packages(spec) for spec in specs)
        return any(self.sha256 in _bundles(spec) for spec in specs)


class Caches:
    """`homes` has a folder for each owner. `bundles` and `environments` have folders in a folder for each owner."""

    def __init__(self, homes: Path, bundles: Path, environments: Path, asked: Folders) -> None:
        self._environments = environments
        self._homes = homes
        self._bundles = bundles
        self._asked = asked
        self.measured: CachesReport | None = None
        """What they had when they were measured last."""
        self._sizes: dict[tuple[Path, int], int] = {}
        """Of bundles by the time of their last use: measuring them takes long, and they do not change."""

    def remove_oldest(self, *, keep_bytes: int | None) -> Generator[None]:
        """Removes what was not used for longest until the total is at most `keep_bytes`; None keeps all.

        What unfinished attempts use stays. Yields after each folder. Raises Unavailable.
        """
        folders = [*self._found_homes(), *self._found_bundles(), *self._found_environments()]
        if keep_bytes is None:
            return
        used = {folder: _used_at(folder.path) for folder in folders}
        sizes: dict[CachedFolder, int] = {}
        for folder in sorted(folders, key=lambda folder: used[folder]):
            sizes[folder] = self._size(folder, used[folder])
            yield
        self._sizes = {(folder.path, used[folder]): size for folder, size in sizes.items() if folder.sha256 is not None}
        total = sum(sizes.values())
        packages = sum(size for folder, size in sizes.items() if folder.packages)
        self.measured = CachesReport(packages_bytes=packages, total_bytes=total, limit_bytes=keep_bytes)
        for folder, size in sizes.items():
            if total <= keep_bytes:
                return
            if self._remove(folder):
                logger.info("deleted %s: %d bytes", folder.path, size)
                total -= size
                packages -= size if folder.packages else 0
                self.measured = CachesReport(packages_bytes=packages, total_bytes=total, limit_bytes=keep_bytes)
            yield

    def _found_homes(self) -> Generator[CachedFolder]:
        for name in folders_inside(self._homes):
            if name.startswith(_REMOVED_PREFIX):
                remove_inside(self._homes, name)  # its removal was interrupted
            else:
                yield CachedFolder(self._homes / name, name)

    def _found_bundles(self) -> Generator[CachedFolder]:
        for owner in folders_inside(self._bundles):
            for name in folders_inside(self._bundles, owner):
                yield CachedFolder(self._bundles / owner / name, owner, name)

    def _found_environments(self) -> Generator[CachedFolder]:
        for owner, path in environments.folders(self._environments):
            yield CachedFolder(path, owner, packages=True)

    def _size(self, folder: CachedFolder, used_at: int) -> int:
        known = self._sizes.get((folder.path, used_at))
        return rundirs.size(folder.path, unlock=False) if known is None else known

    def _remove(self, folder: CachedFolder) -> bool:
        try:
            if folder.packages:
                return self._remove_environment(folder)
            if folder.sha256 is None:
                return not folder.is_in_use(self._asked) and _remove_home(folder.path)
            with cache.locked_if_free(folder.path) as locked:  # an attempt that begins now waits, and unpacks it again
                return locked and not folder.is_in_use(self._asked) and cache.remove(folder.path)
        except OSError as error:
            logger.warning("cannot delete %s: %s", folder.path, error)
            return False

    def _remove_environment(self, folder: CachedFolder) -> bool:
        """Raises OSError."""
        with cache.locked_if_free(folder.path) as locked:  # as above; who installs something has the downloads' lock
            return locked and not folder.is_in_use(self._asked) and environments.remove(folder.path)


def _has_packages(spec: object) -> bool:
    try:
        parsed = parse_spec(spec)
    except InvalidSpec:
        return False
    return isinstance(parsed, ScriptSpec) and parsed.config.requirements is not None


def _bundles(spec: object) -> Collection[str]:
    try:
        return bundles_of(parse_spec(spec)).values()
    except InvalidSpec:  # no attempt can be prepared with it
        return ()


def _used_at(path: Path) -> int:
    try:
        status = path.lstat()
    except OSError:  # it was removed meanwhile
        return 0
    return status.st_mtime_ns if stat.S_ISDIR(status.st_mode) else 0


def _remove_home(home: Path) -> bool:
    """Renames the home first: the owner's next attempt makes a new one. Raises OSError."""
    aside = f"{_REMOVED_PREFIX}{uuid4().hex}"
    home.rename(home.with_name(aside))
    return remove_inside(home.parent, aside)
