"""The cache of environments: `OWNER/KEY` has those of one owner of jobs with the same requirements.

Each try to install has a folder of its own in it, for ever, as scripts in an environment name their interpreter. What
it runs may write below `venv` and `work` there, and not replace these: so no name that it could change is resolved. The
file `complete` names the one that is whole, and the host's boot: what was written before a crash is not believed, so
nothing has to be synced, but in a folder that hosts share. A folder `OWNER/KEY` is also the lock of its environments.
`OWNER/.uv` is what uv has downloaded; those who install share its lock. Jobs may read the environment that is theirs,
and nothing else.
"""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Annotated
import uuid

from torchyard.contract.wire.codec import Record, matching
from torchyard.host.recordfiles import read_record, write_record
from torchyard.host.untrusted import folder_inside
from worker.bundles.cache import is_still
from worker.host import era
from worker.host.untrusted import folders_inside, remove_inside
from worker.packages import rules
from worker.packages.requirements import Requirements
from worker.packages.rules import PackageRules

DOWNLOADS = ".uv"
INPUT, WORK, VENV = "input", "work", "venv"
"""The folders of a try: what is installed, where it is built, and the environment."""
_COMPLETE = "complete"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class _Complete(Record):
    boot: str
    """The era in which it was made."""
    name: Annotated[str, matching(r"[a-z0-9]{1,32}", "letters and digits")]


@dataclass(frozen=True)
class PackageCache:
    """The environments below `root`, for any number of threads and programs."""

    root: Path
    rules: PackageRules
    shared: bool = False
    """Whether jobs on other hosts use the environments."""

    def folder(self, requirements: Requirements, *, owner: str) -> Path:
        """Returns the folder of the environments with these requirements, which need not exist."""
        base = rules.base(requirements.provided)
        key = json.dumps([requirements.digest(), self.rules.index, base], sort_keys=True)
        return self.root / owner / hashlib.sha256(key.encode()).hexdigest()

    def downloads(self, *, owner: str) -> Path:
        """Returns the folder of what uv has downloaded since the host was started."""
        return self.root / owner / DOWNLOADS


def complete_in(folder: Path, *, shared: bool = False) -> Path | None:
    """Returns the environment in the folder that is whole, if there is one: needs the folder's lock."""
    record = read_record(folder / _COMPLETE, _Complete)
    if record is None or record.boot != era.name(shared=shared):
        return None
    fresh = folder / record.name
    return fresh / VENV if has_environment(fresh) else None


def new_in(folder: Path) -> Path:
    """Makes the folder of a new try, and removes all others: needs the folder's lock. Raises OSError."""
    (folder / _COMPLETE).unlink(missing_ok=True)
    for name in folders_inside(folder):
        remove_inside(folder, name)
    fresh = folder / uuid.uuid4().hex
    for made in (fresh, fresh / INPUT, fresh / WORK, fresh / VENV):
        made.mkdir(mode=0o700)
    return fresh


def has_environment(fresh: Path) -> bool:
    """Returns whether the folder of a try has an environment, which is a folder of this user that nobody may write."""
    try:
        with folder_inside(fresh, VENV) as descriptor:
            status = os.fstat(descriptor)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o222


def mark_complete(fresh: Path, *, shared: bool = False) -> Path:
    """Returns the environment in the folder of a try, which is whole from now on. Raises OSError."""
    for name in (INPUT, WORK):
        remove_inside(fresh, name)
    era.end_write(fresh, shared=shared)
    write_record(fresh.parent / _COMPLETE, _Complete(boot=era.name(shared=shared), name=fresh.name))
    return fresh / VENV


def remove(folder: Path) -> bool:
    """Removes a folder of environments: needs its lock. Returns False if something is left. Raises OSError."""
    (folder / _COMPLETE).unlink(missing_ok=True)
    return remove_inside(folder.parent, folder.name)


def try_lock(folder: Path, *, shared: bool = False) -> int | None:
    """Makes the folder and locks it, until the returned descriptor is closed. Returns None if another one has it.

    Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError, BlockingIOError):  # it was removed a moment ago, or is locked
        descriptor = os.open(folder, _FLAGS)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if is_still(folder, descriptor):
                os.utime(descriptor)  # those that were not used for longest are removed first
                kept, descriptor = descriptor, -1
                return kept
        finally:
            if descriptor >= 0:
                os.close(descriptor)
    return None


def folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields each owner with each folder that may be removed on its own."""
    for owner in folders_inside(root):
        for name in folders_inside(root, owner):
            yield owner, root / owner / name
