"""Moves a captured folder that is not whole aside, to `NAME.torn`, and gives its place to its newest whole version."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import errno
import hashlib
import os
from pathlib import Path
import uuid

from store.blobs import Blobs
from store.facts.checkpoints import CAPTURED, CheckpointFacts, captured_file, captured_number
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import WORK
from torchyard.host import disk
from torchyard.host.untrusted import folder_inside, open_inside
from worker.attempts.capture import folders
from worker.attempts.capture.captured import TORN
from worker.attempts.capture.whole import is_whole
from worker.attempts.files.matching import Parts
from worker.host.untrusted import remove_inside

_KEPT_OUT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTEMPTY, errno.EEXIST}


@dataclass(frozen=True)
class TornFolders:
    """The folder `job` of one job, whose processes have ended. `prefix`: that of the names of unfinished folders.

    `check` is called again and again, and may raise to end a long copy.
    """

    job: Path
    blobs: Blobs
    prefix: str
    check: Callable[[], object]

    def mend(self, base: Parts, root: str, checkpoints: Sequence[CheckpointFacts]) -> dict[str, bool]:
        """Returns the folders that were moved, and whether each had a whole version. `base`: where the root lies.

        `checkpoints`: those of the job, newest first. Raises OSError, also if the disk has no room.
        """
        moved: dict[str, bool] = {}
        for path, versions in _versions(root, checkpoints).items():
            place = (*base, *path)
            if not versions[0].damaged or not self._is_as_stored(place, versions[0]):
                continue
            whole = next((each for each in versions if not each.damaged), None)
            try:
                if self._replace(place, path, whole):
                    moved["/".join(path)] = whole is not None
            except OSError as error:
                if error.errno not in _KEPT_OUT:
                    raise
        return moved

    def _is_as_stored(self, place: Parts, version: CheckpointFacts) -> bool:
        """Returns whether the folder is what was stored as not whole: the job may have gone on with it since."""
        found = folders.looked_at(self.job, place)
        if found is None or found.status.st_ino != captured_number(version.name):
            return False
        return found.lacks is not None or any(self._is_torn(file.parts) for file in found.files)

    def _is_torn(self, parts: Parts) -> bool:
        try:
            file = open_inside(self.job, *parts, names=1 << 16)
        except (DataError, OSError):
            return False
        if file is None:
            return False
        with file:
            return os.fstat(file.fileno()).st_size > 0 and is_whole(file, parts[-1]) is False

    def _replace(self, place: Parts, path: Parts, whole: CheckpointFacts | None) -> bool:
        with self._fetched(path, whole) as fetched:
            if whole is not None and fetched is None:
                return False
            torn = place[-1] + TORN
            remove_inside(self.job, *place[:-1], torn)
            with folder_inside(self.job, *place[:-1]) as around:
                os.rename(place[-1], torn, src_dir_fd=around, dst_dir_fd=around)
                if fetched is not None:
                    os.rename(fetched, place[-1], dst_dir_fd=around)
        return True

    @contextmanager
    def _fetched(self, path: Parts, whole: CheckpointFacts | None) -> Generator[Path | None]:
        """Yields a folder with the version, to be renamed; None if there is none, or a file of it is damaged."""
        target = self.job / f"{self.prefix}{uuid.uuid4().hex}"
        below = "/".join(path) + "/"
        files = [] if whole is None else [each for each in whole.files if each["path"].startswith(below)]
        disk.require_free_space(self.job, sum(file["size"] for file in files))
        try:
            for file in files:
                copy = target / file["path"].removeprefix(below)
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not self.blobs.copy_out(file["sha256"], copy, check=self.check):
                    yield None
                    return
                os.utime(copy, ns=(file["modified_ns"], file["modified_ns"]))
            yield target if files else None
        finally:
            remove_inside(self.job, target.name)


def path_of(root: str, checkpoint: CheckpointFacts) -> Parts | None:
    """Returns a captured folder's path below its root; None if it lies below another one, or is no folder.

    The name of the checkpoint has the digest of the path. Not all files need lie in the folder.
    """
    if captured_number(checkpoint.name) is None:
        return None
    for file in checkpoint.files:
        names = file["path"].split("/") if file.get("root", WORK) == root else []
        for end in range(1, len(names)):
            path = "/".join((root, *names[:end]))
            if hashlib.sha256(os.fsencode(path)).hexdigest()[:12] == captured_file(checkpoint.name):
                return tuple(names[:end])
    return None


def _versions(root: str, checkpoints: Sequence[CheckpointFacts]) -> dict[Parts, list[CheckpointFacts]]:
    """Returns the versions of each captured folder below the root, newest first."""
    found: dict[Parts, list[CheckpointFacts]] = {}
    for checkpoint in checkpoints:
        path = path_of(root, checkpoint) if checkpoint.source == CAPTURED else None
        if path is not None:
            found.setdefault(path, []).append(checkpoint)
    return found
