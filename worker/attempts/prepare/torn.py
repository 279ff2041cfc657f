"""Gives the place of a captured file that is not whole to its newest whole version. The torn one lies beside it then.

The next attempt of a job finds it as `NAME.torn`, in the folder that the attempt before has left and in a new one.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import errno
import os
from pathlib import Path
import stat
from typing import Any
import uuid

from store.blobs import Blobs
from store.facts.checkpoints import CAPTURED, CheckpointFacts, captured_number
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import WORK, RunDir
from torchyard.contract.text import printable
from torchyard.host import disk
from torchyard.host.untrusted import folder_inside, open_inside
from worker.attempts.capture.captured import TORN
from worker.attempts.capture.whole import is_whole
from worker.attempts.files.matching import Parts
from worker.attempts.prepare.tornfolders import TornFolders
from worker.host import rundirs
from worker.host.untrusted import remove_inside

_PREFIX = ".put."
_MOST_NAMED = 5
_IN_THE_WAY = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EACCES}


@dataclass(frozen=True)
class _Version:
    checkpoint: CheckpointFacts
    entry: Mapping[str, Any]

    @property
    def modified_ns(self) -> int:
        return self.entry["modified_ns"]

    def is_same(self, status: os.stat_result) -> bool:
        """Returns whether this is the version that lies there."""
        return (status.st_mtime_ns, status.st_size) == (self.modified_ns, self.entry["size"])


@dataclass(frozen=True)
class TornFiles:
    """The captured files of one job that are not whole. `checkpoints` reads its checkpoints, newest first.

    `check` is called again and again, and may raise to end a long copy. Each method raises OSError, also if the disk
    has no room. It follows no link.
    """

    run: RunDir
    blobs: Blobs
    checkpoints: Callable[[], Sequence[CheckpointFacts]]
    check: Callable[[], object] = lambda: None
    replaced: list[str] = field(default_factory=list[str])
    moved: list[str] = field(default_factory=list[str])
    """Folders that have no whole version."""

    def mend(self, root: str) -> None:
        """Replaces what is torn in a folder that an attempt before has left: `work`, or `artifacts`."""
        for path, versions in self._versions(root).items():
            if any(not each.checkpoint.damaged for each in versions):
                self._mend_if_possible((*self._base(root), *path), versions)
        folders = TornFolders(self.run.root.parent, self.blobs, _PREFIX, self.check)
        for path, has_whole in folders.mend(self._base(root), root, self.checkpoints()).items():
            (self.replaced if has_whole else self.moved).append(path)

    def lay(self, root: str, *, folder: str | None = None) -> None:
        """Puts torn files that have no newer whole version into a new folder, beside where the whole ones lie.

        `folder`: its name in the job's folder, if it has another one by now.
        """
        base = self._base(root) if folder is None else (folder,)
        for path, versions in self._versions(root).items():
            if versions[0].checkpoint.damaged:
                self._lay((*base, *path[:-1], path[-1] + TORN), versions[0])

    def message(self) -> str:
        """Returns what to tell the job's owner of what was replaced; empty: nothing."""
        told = (_told(self.replaced, "replaced by the version before"), _told(self.moved, "moved aside"))
        return "; ".join(text for text in told if text)

    def remove_unfinished(self) -> None:
        """Removes files that were never put in their place, as far as possible."""
        with os.scandir(self.run.root.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
        for name in names:
            remove_inside(self.run.root.parent, name)

    def _base(self, root: str) -> Parts:
        return (WORK,) if root == WORK else (*rundirs.job_path(self.run), root)

    def _versions(self, root: str) -> dict[Parts, list[_Version]]:
        """Returns the versions of each path below the root, newest first."""
        found: dict[Parts, list[_Version]] = {}
        for checkpoint in self.checkpoints():
            is_file = checkpoint.source == CAPTURED and captured_number(checkpoint.name) is None
            for entry in checkpoint.files if is_file else ():
                if entry.get("modified_ns") is None or entry.get("root", WORK) != root:
                    continue
                for text in (entry["path"], *entry.get("links", ())):
                    found.setdefault(tuple(text.split("/")), []).append(_Version(checkpoint, entry))
        return found

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
        if not (self._is_torn(path) if known is None else known.checkpoint.damaged):
            return
        for version in [each for each in versions if not each.checkpoint.damaged]:
            with self._fetched(version) as fetched:
                if fetched is None:
                    continue
                with folder_inside(self.run.root.parent, *path[:-1]) as folder:
                    os.rename(path[-1], path[-1] + TORN, src_dir_fd=folder, dst_dir_fd=folder)
                    os.rename(fetched, path[-1], dst_dir_fd=folder)
            self.replaced.append("/".join(rundirs.own_path(path)[1:]))
            return

    def _lay(self, path: Parts, version: _Version) -> None:
        """Does nothing if the folder above is no folder."""
        try:
            self._make_folders(path[:-1])
            with folder_inside(self.run.root.parent, *path[:-1]) as folder, self._fetched(version) as fetched:
                if fetched is not None:
                    os.rename(fetched, path[-1], dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise

    @contextmanager
    def _fetched(self, version: _Version) -> Generator[Path | None]:
        """Yields a file with the version in the job's folder, to be renamed; None if it is missing or damaged."""
        target = self.run.root.parent / f"{_PREFIX}{uuid.uuid4().hex}"
        disk.require_free_space(self.run.root.parent, version.entry["size"])
        try:
            if not self.blobs.copy_out(version.entry["sha256"], target, check=self.check):
                yield None
                return
            os.utime(target, ns=(version.modified_ns, version.modified_ns))
            yield target
        finally:
            target.unlink(missing_ok=True)

    def _make_folders(self, parts: Parts) -> None:
        for depth in range(1, len(parts)):
            with folder_inside(self.run.root.parent, *parts[:depth]) as above:
                try:
                    os.mkdir(parts[depth], 0o700, dir_fd=above)
                except FileExistsError:
                    continue

    def _status(self, path: Parts) -> os.stat_result | None:
        try:
            with folder_inside(self.run.root.parent, *path[:-1]) as folder:
                return os.stat(path[-1], dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None

    def _is_torn(self, path: Parts) -> bool:
        """Returns whether the file's own bytes say that it is not whole."""
        try:
            file = open_inside(self.run.root.parent, *path, names=1 << 16)
        except (DataError, OSError):
            return False
        if file is None:
            return False
        with file:
            return is_whole(file, path[-1]) is False


def _told(paths: Sequence[str], what: str) -> str:
    if not paths:
        return ""
    more = len(paths) - _MOST_NAMED
    named = ", ".join(printable(path)[-200:] for path in paths[:_MOST_NAMED])
    return f"not whole, and {what}: {named}{f', and {more} more' if more > 0 else ''}; see NAME{TORN}"
