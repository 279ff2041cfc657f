"""Stores files that a job left, by their paths: what all of them have in common, wherever they lie."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
import os
from pathlib import Path
import time

from store.worker.records import DEFAULTS, BlobStore, NewArtifact, OutputLimits, Room, StoredArtifact
from torchyard.contract.errors import DataError
from worker.attempts.files.copy_queue import CopyQueue
from worker.attempts.files.copying import Changed, FileCopy
from worker.host.looks import Match
from worker.host.mask import Mask

Warn = Callable[[str], None]
AGAIN_S = 30.0
"""Pause after an error, or after a look whose files had no room."""
TOO_MANY = "the job has TORCHYARD_MAX_ARTIFACTS files already"
"""Why a file is not stored."""
_LATEST_NS = 2**63 - 1
_SLICE_S = 0.1
"""How long one call looks. What is left of the look follows in the next calls."""


class LeftFiles(ABC):
    """The files of one folder of an attempt.

    `room` reads what is stored of the job, and how much more may be. `mask`: what no path may have.

    The caller calls `take` and commits what it returns, then `committed`, again and again while `unfinished`.
    """

    name: str
    """That of the folder, in the state that a later worker reads."""

    def __init__(
        self,
        root: Path,
        blobs: BlobStore,
        *,
        room: Callable[[], Room],
        limits: OutputLimits = DEFAULTS,
        mask: Mask | None = None,
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._room = room
        self._limits = limits
        self._mask = mask or Mask()
        self._looking: Iterator[None] | None = None
        """The look that goes on, in slices."""
        self._looked_last = False
        """Whether the look after the end of all processes was begun."""
        self._next_look = 0.0
        self._queue = CopyQueue[FileCopy]()
        self._uncommitted: list[NewArtifact] = []
        self._stored: dict[str, tuple[int, int | None]] | None = None
        """Size and modification time of the files that are stored, by path. None: not read yet."""
        self._warned: set[str] = set()

    @property
    def unfinished(self) -> bool:
        """Whether a look goes on, or files that were found wait to be copied."""
        return self._looking is not None or self._queue.unfinished

    @property
    def copied(self) -> int:
        """Bytes of the file that is copied now."""
        return self._queue.copied

    def take(self, budget: int, *, final: bool = True, warn: Warn = lambda _: None) -> list[FileCopy]:
        """Copies at most about `budget` bytes, and returns the copies that are complete.

        After an error, and if what it returned was not committed, it begins again with what is not stored. `final`: all
        processes have ended. Raises OSError if `final`; else it tries again later.
        """
        if self._uncommitted or (final and not self._looked_last):
            self.discard()
        if not self._look_on(final=final):
            return []
        done: list[FileCopy] = []
        try:
            for copy in self._queue.copy(budget, begin=self._copy_of, refuse=self._refuse):
                done.append(copy)  # noqa: PERF402 those before an error count
        except OSError as error:
            for copy in done:
                copy.discard()
            self.discard()
            if final:
                raise
            self._next_look = time.monotonic() + AGAIN_S
            self._warn_once(f"files of keep cannot be stored now; retrying: {error.strerror}", warn)
            return []
        self._uncommitted = [self.row(copy) for copy in done]
        return done

    def row(self, copy: FileCopy) -> NewArtifact:
        """Returns the row of a complete copy."""
        modified_ns = _modified_ns(copy.match.status)
        return NewArtifact(self._path_of(copy.match), copy.blob.size, copy.blob.sha256, modified_ns=modified_ns)

    def committed(self) -> None:
        """Notes that the rows of the copies are stored."""
        assert self._stored is not None or not self._uncommitted
        for new in self._uncommitted:
            self._note_stored(new)
        self._uncommitted = []

    @abstractmethod
    def message(self) -> str | None:
        """Returns what to tell the owner when all is copied: which files are left out. None if that is none."""

    @property
    def until(self) -> datetime | None:
        """The time that the message says, if it says one."""
        return None

    def discard(self) -> None:
        """Forgets what was looked at, and discards an unfinished copy. Raises OSError."""
        self._looking, self._looked_last = None, False
        self._uncommitted = []
        self._stored = None
        self._queue.discard()

    @abstractmethod
    def _look(self, *, final: bool) -> Iterator[Match | None]:
        """Yields the files to store, in the order in which they are, and None now and then.

        `_is_stored` says which are stored as they are.
        """

    def _is_due(self) -> bool:
        """Whether to look while the job runs."""
        return False

    @abstractmethod
    def _path_of(self, match: Match) -> str: ...

    @abstractmethod
    def _leave_out(self, match: Match, why: str) -> None:
        """Notes a file that is not stored after all."""

    def _room_of(self, room: Room, others: Sequence[StoredArtifact]) -> tuple[int | None, str]:
        """Returns how many bytes the files may have besides the limits of all, and why not more."""
        return None, ""

    def _copy_of(self, match: Match) -> FileCopy:
        return FileCopy(self._root, self._blobs, match, what="a file", is_last=self._looked_last)

    def _note_stored(self, new: NewArtifact) -> None:
        if self._stored is not None:
            self._stored[new.path] = new.size, new.modified_ns

    def _is_stored(self, path: str, status: os.stat_result) -> bool:
        assert self._stored is not None
        return self._stored.get(path) == (status.st_size, _modified_ns(status))

    def _look_on(self, *, final: bool) -> bool:
        """Goes on with the look. Returns whether it has come to its end, or none is due."""
        if self._looking is None and not self._queue.unfinished and (final or self._is_due()):
            if final and self._looked_last:
                return True
            self._looking, self._looked_last = self._whole_look(final=final), final
        ends = time.monotonic() + _SLICE_S
        while self._looking is not None:
            if next(self._looking, self) is self:
                self._looking = None
            elif time.monotonic() >= ends:
                return False
        return True

    def _whole_look(self, *, final: bool) -> Iterator[None]:
        if self._stored is None:
            self._stored = {item.path: (item.size, item.modified_ns) for item in self._room().stored}
        matches: list[Match] = []
        for match in self._look(final=final):
            if match is None:
                yield
            else:
                matches.append(match)
        fitting = self._fitting(matches) if matches else []
        if matches and not fitting:
            self._next_look = max(self._next_look, time.monotonic() + AGAIN_S)
        self._queue.add(fitting)

    def _fitting(self, matches: Sequence[Match]) -> list[Match]:
        """Returns the files for which there is room."""
        room, paths = self._room(), {self._path_of(match) for match in matches}
        others = [item for item in room.stored if item.path not in paths]
        replaced = sum(item.size for item in room.stored) - sum(item.size for item in others)
        files = _less(self._limits.artifacts, len(others))
        taken = room.media_bytes + sum(item.size for item in others)
        limits = [
            self._room_of(room, others),
            (
                _less(self._limits.artifact_bytes, taken),
                "the job's files would take more than TORCHYARD_MAX_ARTIFACT_BYTES",
            ),
            (None if room.left is None else room.left + replaced, "over the quota of stored bytes"),
        ]
        fitting: list[Match] = []
        size = 0
        for match in matches:
            over = [why for most, why in limits if most is not None and size + match.status.st_size > most]
            if files is not None and len(fitting) >= files:
                self._leave_out(match, TOO_MANY)
            elif over:
                self._leave_out(match, over[-1])
            else:
                fitting.append(match)
                size += match.status.st_size
        return fitting

    def _refuse(self, match: Match, error: DataError) -> None:
        """Leaves a file out that has changed, or cannot be stored."""
        if not isinstance(error, Changed) or self._looked_last:
            self._leave_out(match, error.message)

    def _warn_once(self, text: str, warn: Warn) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def _modified_ns(status: os.stat_result) -> int:
    """Returns the time of the last change, or the nearest that a database can keep: a job sets it at will."""
    return max(-_LATEST_NS - 1, min(status.st_mtime_ns, _LATEST_NS))


def _less(limit: int | None, taken: int) -> int | None:
    return None if limit is None else max(0, limit - taken)
