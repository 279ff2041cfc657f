"""The folders that the processes of an attempt may write besides its run directory: a home of its owner on this host,
which holds caches, and a temporary folder of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
import contextlib
from dataclasses import dataclass
import hashlib
import os
from pathlib import Path
import stat
import tempfile
from typing import TYPE_CHECKING

from worker.host.untrusted import folders_inside, remove_inside
from worker.sandbox.shared import shared_caches

if TYPE_CHECKING:
    from worker.host.attempt_key import AttemptKey


@dataclass(frozen=True)
class AttemptFolders:
    """The paths of one attempt."""

    home: Path
    temporary: Path
    is_alone: bool = True
    """Whether the parent of `temporary` holds nothing else. A job cannot change its mode, as it can that of its own."""

    def create(self) -> None:
        """Makes the folders, for their owner alone. Raises OSError, also if another user has made one of them."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(self.home)  # those that were not used for longest are removed first
        if self.is_alone:
            _make_own(self.temporary.parent)
        try:
            _make_own(self.temporary)
        except FileNotFoundError:  # the last attempt that had one there has just ended
            _make_own(self.temporary.parent)
            _make_own(self.temporary)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables that name these folders. `environ`: the worker's variables."""
        cache = self.home / ".cache"
        return shared_caches(environ) | {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(cache),
            "HF_HOME": str(cache / "huggingface"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
        }


class WritableFolders:
    """The writable folders of all attempts on this host.

    `root`: the data directory. `temporary`: where the temporary folders are, by default a folder of its own in that of
    the system.
    """

    def __init__(self, root: Path, *, temporary: Path | None = None) -> None:
        self.homes = root.absolute() / "caches"
        name = f"torchyard-{_digest(str(root.resolve()))}"
        self._shared = temporary is not None
        self._folder = temporary or Path(tempfile.gettempdir(), name)
        self._prefix = f"{name}-" if self._shared else ""
        """Begins the names of this worker's temporary folders. They are short, as sockets in them have short paths."""

    def of(self, key: AttemptKey, *, owner: str) -> AttemptFolders:
        """Returns the folders of an attempt whose job belongs to `owner`."""
        return AttemptFolders(self.homes / owner, self._folder / self._name(key), is_alone=not self._shared)

    def remove_temporary(self, key: AttemptKey) -> None:
        """Removes the temporary folder of an attempt that has ended, as far as possible."""
        remove_inside(self._folder, self._name(key))
        self._remove_empty()

    def remove_other_temporaries(self, keep: Collection[AttemptKey]) -> None:
        """Removes the temporary folders of all attempts that are not among `keep`, as far as possible."""
        kept = {self._name(key) for key in keep}
        for name in folders_inside(self._folder):
            if name.startswith(self._prefix) and name not in kept:
                remove_inside(self._folder, name)
        self._remove_empty()

    def _remove_empty(self) -> None:
        if not self._shared:
            with contextlib.suppress(OSError):  # it is missing, or has folders of attempts
                self._folder.rmdir()

    def _name(self, key: AttemptKey) -> str:
        return self._prefix + _digest(f"{key.job_id}/{key.number}")


def _make_own(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of this user: remove it")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
