"""Gives the place of what was captured and is not whole to its newest whole version. The torn one lies beside it then.

The next attempt of a job finds it as `NAME.torn`, in the folder that the attempt before has left and in a new one. So
it does with files, and with folders that are one checkpoint each.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
import errno
import os
from pathlib import Path
import stat

from store.worker.records import CAPTURED, BlobStore, CheckpointFacts, captured_number
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.wire.text import printable
from torchyard.host import disk
from torchyard.host.untrusted import folder_inside, open_inside
from worker.attempts.capture import folders
from worker.attempts.capture.captured import TORN
from worker.attempts.capture.whole import is_whole
from worker.attempts.prepare import restoring
from worker.attempts.prepare.restoring import StoredFile
from worker.host import rundirs
from worker.host.looks import Parts
from worker.host.untrusted import remove_checked

_PREFIX = ".put."
_MOST_NAMED = 5
_IN_THE_WAY = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EACCES}
_KEPT_OUT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTEMPTY, errno.EEXIST}


@dataclass(frozen=True)
class _Version:
    """A version of a file that is stored."""

    file: StoredFile
    damaged: bool

    def is_same(self, status: os.stat_result) -> bool:
        """Returns whether this is the version that lies there."""
        return (status.st_mtime_ns, status.st_size) == (self.file.modified_ns, self.file.size)


@dataclass(frozen=True)
class TornFiles:
    """What was captured of one job and is not whole. `checkpoints` reads its checkpoints, newest first.

    `check` is called again and again, and may raise to end a long copy. Each method raises OSError, also if the disk
    has no room. It follows no link.
    """

    run: RunDir
    blobs: BlobStore
    checkpoints: Callable[[], Sequence[CheckpointFacts]]
    check: Callable[[], object] = lambda: None
    replaced: list[str] = field(default_factory=list[str])
    moved: list[str] = field(default_factory=list[str])
    """Folders that have no whole version."""

    def mend(self, root: str) -> None:
        """Replaces what is torn in a folder that an attempt before has left: `work`, or `artifacts`."""
        for path, versions in self._versions(root).items():
            self.check()
            if any(not each.damaged for each in versions):
                self._mend_if_possible((*self._base(root), *path), versions)
        for path, versions in self._versions_of_folders(root).items():
            self.check()
            if versions[0].damaged:
                self._mend_folder((*self._base(root), *path), path, versions)

    def lay(self, root: str, *, folder: str | None = None) -> None:
        """Puts what is torn and has no newer whole version into a new folder, beside where the whole ones lie.

        `folder`: its name in the job's folder, if it has another one by now.
        """
        base = self._base(root) if folder is None else (folder,)
        for path, versions in self._versions(root).items():
            if versions[0].damaged:
                self._lay((*base, *path[:-1], path[-1] + TORN), [versions[0].file])
        for path, several in self._versions_of_folders(root).items():
            if several[0].damaged:
                self._lay((*base, *path[:-1], path[-1] + TORN), _files_in(path, several[0]))

    def message(self) -> str:
        """Returns what to tell the job's owner of what was replaced; empty: nothing."""
        parts = (_name_paths(self.replaced, "replaced by the version before"), _name_paths(self.moved, "moved aside"))
        return "; ".join(text for text in parts if text)

    def remove_unfinished(self) -> None:
        """Removes files that were never put in their place, as far as possible."""
        with os.scandir(self._job) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
        for name in names:
            remove_checked(self._job, name, check=self.check)

    @property
    def _job(self) -> Path:
        """The folder of the job."""
        return self.run.root.parent

    def _base(self, root: str) -> Parts:
        return (WORK,) if root == WORK else (*rundirs.job_path(self.run), root)

    def _versions(self, root: str) -> dict[Parts, list[_Version]]:
        """Returns the versions of each path below the root, newest first."""
        versions: dict[Parts, list[_Version]] = {}
        for checkpoint in self.checkpoints():
            is_file = checkpoint.source == CAPTURED and captured_number(checkpoint.name) is None
            for entry in checkpoint.files if is_file else ():
                if entry.get("modified_ns") is None or entry.get("root", WORK) != root:
                    continue
                file = StoredFile("", entry["sha256"], entry["size"], entry["modified_ns"])
                for text in (entry["path"], *entry.get("links", ())):
                    versions.setdefault(tuple(text.split("/")), []).append(_Version(file, checkpoint.damaged))
        return versions

    def _versions_of_folders(self, root: str) -> dict[Parts, list[CheckpointFacts]]:
        """Returns the versions of each captured folder below the root, newest first."""
        versions: dict[Parts, list[CheckpointFacts]] = {}
        for checkpoint in self.checkpoints():
            path = restoring.path_of(root, checkpoint) if checkpoint.source == CAPTURED else None
            if path is not None:
                versions.setdefault(path, []).append(checkpoint)
        return versions

    def _mend_if_possible(self, path: Parts, versions: Sequence[_Version]) -> None:
        """Leaves the file where it is if the job has closed its folder, or put something else in the way."""
        try:
            self._mend(path, versions)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise

    def _mend(self, path: Parts, versions: Sequence[_Version]) -> None:
        status = self._status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        known = next((each for each in versions if each.is_same(status)), None)
        if not (self._is_torn(path) if known is None else known.damaged):
            return
        for version in [each for each in versions if not each.damaged]:
            with self._fetched([version.file]) as fetched:
                if fetched is None:
                    continue
                with folder_inside(self._job, *path[:-1]) as folder:
                    os.rename(path[-1], path[-1] + TORN, src_dir_fd=folder, dst_dir_fd=folder)
                    os.rename(fetched, path[-1], dst_dir_fd=folder)
            self.replaced.append("/".join(rundirs.own_path(path)[1:]))
            return

    def _lay(self, path: Parts, files: Sequence[StoredFile]) -> None:
        """Does nothing if the folder above is no folder, or something lies there."""
        if not files:
            return
        try:
            self._make_folders(path[:-1])
            with folder_inside(self._job, *path[:-1]) as folder, self._fetched(files) as fetched:
                if fetched is not None:
                    os.rename(fetched, path[-1], dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY | _KEPT_OUT:
                raise

    def _mend_folder(self, parts: Parts, path: Parts, versions: Sequence[CheckpointFacts]) -> None:
        """Moves a folder aside if it is as it was stored. Leaves it where it is if it cannot be moved."""
        if not self._is_as_stored(parts, versions[0]):
            return
        whole = next((each for each in versions if not each.damaged), None)
        try:
            if self._replace(parts, path, whole):
                (self.moved if whole is None else self.replaced).append("/".join(path))
        except OSError as error:
            if error.errno not in _KEPT_OUT:
                raise

    def _is_as_stored(self, parts: Parts, version: CheckpointFacts) -> bool:
        """Returns whether the folder is what was stored as not whole: the job may have gone on with it since."""
        folder_match = folders.looked_at(self._job, parts)
        if folder_match is None or folder_match.status.st_ino != captured_number(version.name):
            return False
        return folder_match.lacks is not None or any(
            self._is_torn(file.parts) for file in folder_match.files if file.status.st_size > 0
        )

    def _replace(self, parts: Parts, path: Parts, whole: CheckpointFacts | None) -> bool:
        files = [] if whole is None else _files_in(path, whole)
        with self._fetched(files) if files else nullcontext() as fetched:
            if whole is not None and fetched is None:
                return False
            torn = parts[-1] + TORN
            remove_checked(self._job, *parts[:-1], torn, check=self.check)
            with folder_inside(self._job, *parts[:-1]) as around:
                os.rename(parts[-1], torn, src_dir_fd=around, dst_dir_fd=around)
                if fetched is not None:
                    os.rename(fetched, parts[-1], dst_dir_fd=around)
        return True

    @contextmanager
    def _fetched(self, files: Sequence[StoredFile]) -> Generator[Path | None]:
        """Yields a version in the job's folder, to be renamed; None if a file of it is missing or damaged."""
        disk.require_free_space(self._job, sum(file.size for file in files))
        with restoring.fetched(files, self._job, prefix=_PREFIX, blobs=self.blobs, check=self.check) as staged:
            yield staged

    def _make_folders(self, parts: Parts) -> None:
        for depth in range(1, len(parts)):
            with folder_inside(self._job, *parts[:depth]) as above:
                try:
                    os.mkdir(parts[depth], 0o700, dir_fd=above)
                except FileExistsError:
                    continue

    def _status(self, path: Parts) -> os.stat_result | None:
        try:
            with folder_inside(self._job, *path[:-1]) as folder:
                return os.stat(path[-1], dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None

    def _is_torn(self, path: Parts) -> bool:
        """Returns whether the file's own bytes say that it is not whole."""
        try:
            file = open_inside(self._job, *path, names=1 << 16)
        except (DataError, OSError):
            return False
        if file is None:
            return False
        with file:
            return is_whole(file, path[-1]) is False


def _files_in(path: Parts, checkpoint: CheckpointFacts) -> list[StoredFile]:
    """Returns those files of a captured folder that lie in it, by their paths there."""
    below = "/".join(path) + "/"
    return [
        StoredFile(file["path"].removeprefix(below), file["sha256"], file["size"], file["modified_ns"])
        for file in checkpoint.files
        if file["path"].startswith(below)
    ]


def _name_paths(paths: Sequence[str], what: str) -> str:
    if not paths:
        return ""
    more = len(paths) - _MOST_NAMED
    named = ", ".join(printable(path)[-200:] for path in paths[:_MOST_NAMED])
    return f"not whole, and {what}: {named}{f', and {more} more' if more > 0 else ''}; see NAME{TORN}"
