"""The places that the processes of an attempt may write besides its run directory: a home of its owner on this host,
which holds caches, and a temporary folder of its own."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
import hashlib
import os
from pathlib import Path
import stat
import tempfile

from worker.engines.base import AttemptKey
from worker.untrusted import folders_inside, remove_inside

UNPACKED = "unpacked"
"""The folder of unpacked bundles in the data directory: `OWNER/SHA256/BOOT`."""
ENVIRONMENTS = "environments"
"""The folder of the environments of jobs with packages of their own."""


@dataclass(frozen=True)
class Places:
    """The paths of one attempt."""

    home: Path
    temporary: Path

    def create(self) -> None:
        """Makes the folders, for their owner alone. Raises OSError, also if another user has made one of them."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(self.home)  # those that were not used for longest are removed first
        self.temporary.mkdir(mode=0o700, exist_ok=True)
        found = self.temporary.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self.temporary} is no folder of this user: remove it")

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables that name these places. `environ`: the worker's variables."""
        cache = self.home / ".cache"
        shared = {"HF_HUB_CACHE": str(Path(environ["HF_HOME"], "hub"))} if "HF_HOME" in environ else {}
        return shared | {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(cache),
            "HF_HOME": str(cache / "huggingface"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
        }


class WorkerPlaces:
    """The places of all attempts on this host.

    `root`: the data directory. `temporary`: where the temporary folders are, by default that of the system.
    """

    def __init__(self, root: Path, *, temporary: Path | None = None) -> None:
        self.homes = root.absolute() / "caches"
        self._folder = temporary or Path(tempfile.gettempdir())
        self._prefix = f"torchyard-{_digest(str(root.resolve()))}-"
        """Begins the names of this worker's temporary folders. They are short, as sockets in them have short paths."""

    def of(self, key: AttemptKey, *, owner: str) -> Places:
        """Returns the places of an attempt whose job belongs to `owner`."""
        return Places(self.homes / owner, self._folder / self._name(key))

    def remove_temporary(self, key: AttemptKey) -> None:
        """Removes the temporary folder of an attempt that has ended, as far as possible."""
        remove_inside(self._folder, self._name(key))

    def remove_other_temporaries(self, keep: Collection[AttemptKey]) -> None:
        """Removes the temporary folders of all attempts that are not among `keep`, as far as possible."""
        kept = {self._name(key) for key in keep}
        for name in folders_inside(self._folder):
            if name.startswith(self._prefix) and name not in kept:
                remove_inside(self._folder, name)

    def _name(self, key: AttemptKey) -> str:
        return self._prefix + _digest(f"{key.job_id}/{key.number}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
