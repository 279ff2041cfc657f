"""Puts files that were captured back at their own paths, for the next attempt of their job.

Into a folder that the attempt before has left, only what takes the place of a torn file; into a new one all. Each path
gets the newest whole version, with its own modification time. A newer version that is not whole lies beside it, as
`NAME.torn`.
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
from store.facts.checkpoint_order import place
from store.facts.checkpoints import CAPTURED, CheckpointFacts
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import WORK, RunDir
from torchyard.contract.text import printable
from torchyard.host import disk, terminal
from torchyard.host.untrusted import folder_inside, open_inside
from worker.attempts.captured import TORN
from worker.attempts.matching import Parts
from worker.attempts.whole import is_whole
from worker.host import rundirs
from worker.host.untrusted import remove_inside

_PREFIX = ".put."
_MOST_NAMED = 5
_IN_THE_WAY = {errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EACCES}


@dataclass(frozen=True)
class Version:
    """One version of a file."""

    path: Parts
    """Below the job's folder."""
    checkpoint: CheckpointFacts
    entry: Mapping[str, Any]

    @property
    def modified_ns(self) -> int:
        return self.entry["modified_ns"]

    @property
    def size(self) -> int:
        return self.entry["size"]

    def is_same(self, status: os.stat_result) -> bool:
        """Returns whether this is the version that lies there."""
        return (status.st_mtime_ns, status.st_size) == (self.modified_ns, self.size)


@dataclass
class Told:
    """What was done, for the job's owner."""

    count: int = 0
    size: int = 0
    replaced: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])

    def messages(self) -> list[str]:
        """Returns a sentence for each kind."""
        found: list[str] = []
        if self.count:
            files = "1 file" if self.count == 1 else f"{self.count} files"
            found.append(f"restored {files} of checkpoints ({terminal.size(self.size)})")
        if self.replaced:
            found.append(f"not whole, and replaced by the version before: {_named(self.replaced)}; see NAME{TORN}")
        if self.left_out:
            found.append(f"not restored: {_named(self.left_out)}")
        return found


@dataclass(frozen=True)
class PuttingBack:
    """Puts back the captured files of one job, whose checkpoints are given newest first. Follows no link.

    `check` is called again and again, and may raise to end a long copy. Each method raises OSError, also if the newest
    whole version of a file does not fit on the disk now.
    """

    run: RunDir
    blobs: Blobs
    checkpoints: Sequence[CheckpointFacts]
    check: Callable[[], object] = lambda: None
    told: Told = field(default_factory=Told)

    def mend(self, root: str) -> None:
        """Replaces what is torn in a folder that an attempt before has left: `work`, or `artifacts`."""
        base = self._base(root)
        for path, versions in self._versions(root).items():
            self._mend((*base, *path), versions)

    def fill(self, root: str, *, folder: str | None = None) -> None:
        """Puts all paths of a folder back that are not there. `folder`: its name, if it is another one by now."""
        base = self._base(root) if folder is None else (folder,)
        wanted = {path: versions for path, versions in self._versions(root).items() if not self._lies((*base, *path))}
        placed: dict[tuple[str, str], Parts] = {}
        for path, versions in sorted(wanted.items(), key=lambda item: place(item[1][0].checkpoint), reverse=True):
            try:
                self._fill((*base, *path), versions, placed)
            except OSError as error:
                if not placed or error.errno not in disk.FULL:  # without the newest, the attempt waits
                    raise
                self.told.left_out.append("/".join(path))

    def _base(self, root: str) -> Parts:
        return (WORK,) if root == WORK else (*rundirs.job_path(self.run), root)

    def _versions(self, root: str) -> dict[Parts, list[Version]]:
        """Returns the versions of each path below the root, newest first."""
        found: dict[Parts, list[Version]] = {}
        for checkpoint in self.checkpoints:
            for entry in checkpoint.files if checkpoint.source == CAPTURED else ():
                if entry.get("modified_ns") is None or entry.get("root", WORK) != root:
                    continue
                for text in (entry["path"], *entry.get("links", ())):
                    path = tuple(text.split("/"))
                    found.setdefault(path, []).append(Version(path, checkpoint, entry))
        return found

    def _mend(self, path: Parts, versions: Sequence[Version]) -> None:
        status = self._status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        known = next((each for each in versions if each.is_same(status)), None)
        torn = known.checkpoint.damaged if known is not None else self._is_torn(path)
        whole = [each for each in versions if not each.checkpoint.damaged]
        if not torn or not whole:
            return
        for version in whole:
            with self._fetched(version) as fetched:
                if fetched is None:
                    continue
                with folder_inside(self.run.root.parent, *path[:-1]) as folder:
                    os.rename(path[-1], path[-1] + TORN, src_dir_fd=folder, dst_dir_fd=folder)
                    os.rename(fetched, path[-1], dst_dir_fd=folder)
            self.told.replaced.append("/".join(versions[0].path))
            return

    def _fill(self, path: Parts, versions: Sequence[Version], placed: dict[tuple[str, str], Parts]) -> None:
        """`placed`: where the files of checkpoints lie, to which further names of theirs lead."""
        whole = [each for each in versions if not each.checkpoint.damaged]
        torn = versions[0] if versions[0].checkpoint.damaged else None
        done = any(self._place(path, version, placed) for version in whole)
        if whole and not done:
            self.told.left_out.append("/".join(versions[0].path))
        if torn is not None:
            self._place((*path[:-1], path[-1] + TORN), torn, {})

    def _place(self, path: Parts, version: Version, placed: dict[tuple[str, str], Parts]) -> bool:
        key = (version.checkpoint.id, version.entry["path"])
        try:
            with self._made(path[:-1]) as folder:
                if key in placed:
                    with folder_inside(self.run.root.parent, *placed[key][:-1]) as other:
                        os.link(placed[key][-1], path[-1], src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
                    return True
                with self._fetched(version) as fetched:
                    if fetched is None:
                        return False
                    os.rename(fetched, path[-1], dst_dir_fd=folder)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                return False
            raise
        placed[key] = path
        self.told.count += 1
        self.told.size += version.size
        return True

    @contextmanager
    def _fetched(self, version: Version) -> Generator[Path | None]:
        """Yields a file with the version in the job's folder, to be renamed; None if it is missing or damaged."""
        target = self.run.root.parent / f"{_PREFIX}{uuid.uuid4().hex}"
        disk.require_free_space(self.run.root.parent, version.size)
        try:
            if not self.blobs.copy_out(version.entry["sha256"], target, check=self.check):
                yield None
                return
            os.utime(target, ns=(version.modified_ns, version.modified_ns))
            yield target
        finally:
            target.unlink(missing_ok=True)

    @contextmanager
    def _made(self, parts: Parts) -> Generator[int]:
        """Opens a folder, and makes it and those above it if they are missing."""
        for depth in range(1, len(parts) + 1):
            with folder_inside(self.run.root.parent, *parts[: depth - 1]) as above:
                try:
                    os.mkdir(parts[depth - 1], 0o700, dir_fd=above)
                except FileExistsError:
                    continue
        with folder_inside(self.run.root.parent, *parts) as folder:
            yield folder

    def _lies(self, path: Parts) -> bool:
        return self._status(path) is not None

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


def remove_unfinished(run: RunDir) -> None:
    """Removes files that were never put in their place, as far as possible."""
    with os.scandir(run.root.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
    for name in names:
        remove_inside(run.root.parent, name)


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    named = ", ".join(printable(path)[-200:] for path in paths[:_MOST_NAMED])
    return f"{named}, and {more} more" if more > 0 else named
