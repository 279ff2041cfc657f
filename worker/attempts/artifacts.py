"""Publishes the files that an attempt left in `artifacts` of its run directory, once all its processes have ended."""

from collections import deque
from collections.abc import Callable, Sequence
import os
from pathlib import Path
import stat

from store.blobs import Blobs
from store.facts.output import DEFAULTS, NewArtifact, OutputLimits, Room
from torchyard.contract.artifacts import DEEPEST, MOST_PATH_BYTES, is_artifact_path
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import RunDir
from torchyard.contract.text import printable
from torchyard.host.untrusted import folder_inside
from worker.attempts.copy_queue import CopyQueue
from worker.attempts.copying import FileCopy
from worker.attempts.matching import Match, Parts
from worker.host.mask import Mask

_BASE = "artifacts"
_MOST_ENTRIES = 50_000
"""Entries of folders that are looked at."""
_MOST_NAMED = 10
"""Files that the message about those left out names."""
_LONGEST_NAMED = 100


class LeftOut:
    """The files that are not stored, of which a message tells."""

    def __init__(self, mask: Mask | None = None) -> None:
        self._mask = mask or Mask()
        self._count = 0
        self._named: list[str] = []

    def add(self, parts: Sequence[str], why: str) -> None:
        """Notes one file, or one folder with all below it."""
        self._count += 1
        if len(self._named) < _MOST_NAMED:
            self._named.append(f"{printable(self._mask.text('/'.join(parts)))[-_LONGEST_NAMED:]} ({why})")

    def message(self) -> str | None:
        """Returns the message, or None if nothing was left out."""
        if not self._count:
            return None
        more = self._count - len(self._named)
        listed = ", ".join(self._named) + (f", and {more} more" if more else "")
        return f"{self._count} of the files in artifacts {'is' if self._count == 1 else 'are'} not stored: {listed}"


class Artifacts:
    """The files of one attempt.

    `room` reads what is stored of the job, and how much more may be. `mask`: what no path may have.

    The caller calls `take` and commits what it returns, then `committed`, again and again while `unfinished`.
    """

    def __init__(
        self,
        run: RunDir,
        blobs: Blobs,
        *,
        room: Callable[[], Room],
        attempt: int,
        limits: OutputLimits = DEFAULTS,
        mask: Mask | None = None,
    ) -> None:
        self._run = run
        self._blobs = blobs
        self._room = room
        self._attempt = attempt
        self._limits = limits
        self._mask = mask or Mask()
        self._looked = False
        self._left_out = LeftOut(self._mask)
        self._queue = CopyQueue[FileCopy]()
        self._uncommitted = False

    @property
    def unfinished(self) -> bool:
        """Whether files that were found wait to be copied."""
        return self._queue.unfinished

    def take(self, budget: int) -> list[FileCopy]:
        """Copies at most about `budget` bytes, and returns the copies that are complete. Raises OSError.

        After an error, and if what it returned was not committed, it begins again with what is not stored.
        """
        if not self._looked or self._uncommitted:
            self._begin()
        done: list[FileCopy] = []
        try:
            for copy in self._queue.copy(budget, begin=self._copy_of, refuse=self._refuse):
                done.append(copy)  # noqa: PERF402 those before an error count
        except OSError:
            for copy in done:
                copy.discard()
            self.discard()
            raise
        self._uncommitted = bool(done)
        return done

    def committed(self) -> None:
        """Notes that the rows of the copies are stored."""
        self._uncommitted = False

    def message(self) -> str | None:
        """Returns what to tell the owner when all is copied: which files are left out. None if that is none."""
        return self._left_out.message()

    def discard(self) -> None:
        """Discards an unfinished copy. Raises OSError."""
        self._looked = False
        self._queue.discard()

    def _begin(self) -> None:
        self.discard()
        self._uncommitted = False
        self._left_out = LeftOut(self._mask)
        found = sorted(find(self._run.job, self._left_out), key=lambda match: match.parts)
        self._queue.add(self._fitting(found) if found else [])
        self._looked = True

    def _fitting(self, found: Sequence[Match]) -> list[Match]:
        """Returns the files to copy. The others are stored already, or there is no room for them."""
        room, paths = self._room(), {path_of(match) for match in found}
        own = {item.path for item in room.stored if item.attempt == self._attempt}
        kept = [item for item in room.stored if item.path in own or item.path not in paths]
        files = _less(self._limits.artifacts, len(kept))
        size = _less(self._limits.artifact_bytes, room.media_bytes + sum(item.size for item in kept))
        replaced = sum(item.size for item in room.stored) - sum(item.size for item in kept)
        quota = None if room.left is None else room.left + replaced
        fitting: list[Match] = []
        for match in found:
            if path_of(match) in own:
                continue
            if self._mask.finds(path_of(match)):
                self._left_out.add(match.parts[1:], "its path has the value of a secret")
                continue
            bytes_left, names = size, "the job's files would take more than TORCHYARD_MAX_ARTIFACT_BYTES"
            if quota is not None and (bytes_left is None or quota < bytes_left):
                bytes_left, names = quota, "over the quota of stored bytes"
            if files is not None and len(fitting) >= files:
                self._left_out.add(match.parts[1:], "the job has TORCHYARD_MAX_ARTIFACTS files already")
            elif bytes_left is not None and match.status.st_size > bytes_left:
                self._left_out.add(match.parts[1:], names)
            else:
                fitting.append(match)
                size = _less(size, match.status.st_size)
                quota = _less(quota, match.status.st_size)
        return fitting

    def _copy_of(self, match: Match) -> FileCopy:
        return FileCopy(self._run.job, self._blobs, match, what="a file")

    def _refuse(self, match: Match, error: DataError) -> None:
        self._left_out.add(match.parts[1:], error.message)


def artifact_of(copy: FileCopy) -> NewArtifact:
    """Returns the artifact that a complete copy is."""
    return NewArtifact("/".join(copy.parts[1:]), copy.blob.size, copy.blob.sha256)


def path_of(match: Match) -> str:
    """Returns the artifact's path."""
    return "/".join(match.parts[1:])


def find(job: Path, left_out: LeftOut) -> list[Match]:
    """Returns the regular files in the folder `artifacts` of the job, at most 50,000. Follows no link."""
    found: list[Match] = []
    folders: deque[Parts] = deque([(_BASE,)])
    left = _MOST_ENTRIES
    while folders:
        folder = folders.popleft()
        try:
            with folder_inside(job, *folder) as opened, os.scandir(opened) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        left_out.add(("the rest",), f"there are more than {_MOST_ENTRIES} files and folders")
                        return found
                    _sort_in((*folder, entry.name), entry, found, folders, left_out)
        except FileNotFoundError:
            continue  # it vanished
        except OSError:
            left_out.add(folder[1:] or folder, "cannot be read")
    return found


def _sort_in(
    parts: Parts, entry: os.DirEntry[str], found: list[Match], folders: deque[Parts], left_out: LeftOut
) -> None:
    """Adds an entry of a folder to what belongs to it. Raises FileNotFoundError if it is gone."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    why = _why_not("/".join(parts[1:]), status)
    if why is not None:
        left_out.add(parts[1:], why)
    elif stat.S_ISDIR(status.st_mode):
        folders.append(parts)
    else:
        found.append(Match(parts, status))


def _why_not(path: str, status: os.stat_result) -> str | None:
    if not is_artifact_path(path):
        return f"its path is unusual, has more than {DEEPEST} names or more than {MOST_PATH_BYTES} bytes"
    if stat.S_ISLNK(status.st_mode):
        return "a link"
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return "no regular file"
    return "has other names" if status.st_nlink > 1 else None


def _less(limit: int | None, taken: int) -> int | None:
    return None if limit is None else max(0, limit - taken)
