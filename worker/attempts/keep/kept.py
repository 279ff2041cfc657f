"""Keeps files of a job's working folder that are no checkpoints, by their paths there.

With patterns it keeps what they match, while the job runs and at the end of the attempt: a file that two looks found
unchanged and that nobody seen has open for writing. Without patterns it keeps at the end what the program has created
or changed, smallest first, up to a limit; but no caches, and no file with the value of a secret.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
import errno
import heapq
from pathlib import Path
import stat
import time

from store.worker.records import DEFAULTS, BlobStore, NewArtifact, OutputLimits, Room, StoredArtifact
from torchyard.contract.errors import DataError
from torchyard.contract.files.paths import KEPT, MOST_PATH_BYTES
from worker.attempts.files.copying import FileCopy, identity
from worker.attempts.files.walking import Entry, Patterns, TooMany, Walk
from worker.attempts.files.writers import open_for_writing
from worker.attempts.keep.left_files import AGAIN_S, TOO_MANY, LeftFiles
from worker.attempts.keep.not_kept import STILL, NotKept
from worker.host.looks import Match, Parts
from worker.host.mask import Mask
from worker.host.secret_bytes import SecretBytes

CACHES = frozenset(
    {
        *("__pycache__", ".cache", ".git", ".hg", ".svn", ".triton", ".nv", ".ipynb_checkpoints"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".eggs"),
        *("site-packages", "node_modules", ".venv", "venv", ".conda"),
    }
)
"""The names of folders that nobody misses: caches and packages."""
_MOST_ENTRIES = 1_000_000
"""Entries of folders that one look considers."""
_MOST_FOUND = 10_000
"""Files that one look finds, if the limit of a job's files is not less: of more, the smallest."""
LOOK_S = 2.0
"""Seconds between two looks while the job runs."""
LOOK_SHARE = 200
"""Pause after a look, as a multiple of the processor time that it took."""
_SPACED = 1.2
"""The pause until the same file is stored again while the job runs grows by this factor, up to an hour."""
_LONGEST_SPACE_S = 3600.0
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What is kept of a working folder. `parts`: the path of the folder below `root`."""

    root: Path
    parts: Parts
    patterns: Sequence[str] = ()
    since_ns: Callable[[], int] = lambda: 0
    """When the code had been unpacked, in nanoseconds. Older files are not kept."""
    secrets: SecretBytes = SecretBytes()  # noqa: RUF009 it never changes
    """The values that no file has which is kept without a pattern."""
    captured: Callable[[Match], bool] = lambda _: False
    """Whether a file is stored as a checkpoint."""
    job_id: str = ""
    host: str = ""
    """The name of the host that has the folder. Empty: messages do not say it."""
    lasts: timedelta | None = None
    """How long that has it after the job's end. None: for ever."""


class KeptFiles(LeftFiles):
    """The files of one working folder, as `keeping` says. The others: as of `LeftFiles`."""

    name = "kept"

    def __init__(
        self,
        keeping: Keeping,
        blobs: BlobStore,
        *,
        room: Callable[[], Room],
        limits: OutputLimits = DEFAULTS,
        mask: Mask | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        super().__init__(keeping.root, blobs, room=room, limits=limits, mask=mask)
        self._keeping = keeping
        self._patterns = Patterns(keeping.patterns) if keeping.patterns else None
        self._look_s = look_s
        self._not_kept = NotKept(self._mask)
        self._seen: dict[Parts, tuple[int, ...]] = {}
        """The files of the look before that were not stored as they were, and what each was."""
        self._spaces: dict[str, tuple[float, float]] = {}
        """By path of a file that was stored while the job runs: when it may be stored again, and the pause."""
        self.matched = False
        """Whether the newest look found any file, stored or not."""
        self._has_links = False
        """Whether it found what is no file, of which nothing is stored."""

    def message(self) -> str | None:
        keeping, until = self._keeping, self.until
        if not keeping.host:
            return self._not_kept.message("")
        lasts = "" if until is None else f" until {until:%Y-%m-%d %H:%M} UTC"
        # The whole id: those of one minute begin alike.
        return self._not_kept.message(f"{STILL}{keeping.host}{lasts}: torchyard keep {keeping.job_id}")

    @property
    def until(self) -> datetime | None:
        lasts = self._keeping.lasts
        return (
            None
            if lasts is None or not self._keeping.host
            else (datetime.now(UTC) + lasts).replace(second=0, microsecond=0)
        )

    @property
    def is_complete(self) -> bool:
        """Whether all that the program has changed is stored, after the last look: without patterns alone."""
        return self._patterns is None and self._looked_last and not self._has_links and self.message() is None

    def _is_due(self) -> bool:
        return self._patterns is not None and time.monotonic() >= self._next_look

    def _look(self, *, final: bool) -> Iterator[Match | None]:
        self._not_kept, self.matched, self._has_links = NotKept(self._mask), False, False
        smallest: list[tuple[int, Parts, Match]] = []
        most = _MOST_FOUND if self._limits.artifacts is None else min(_MOST_FOUND, self._limits.artifacts)
        began = time.thread_time()
        took = 0.0
        try:
            for item in self._walk().entries():
                if item is None:
                    took += time.thread_time() - began
                    yield None
                    began = time.thread_time()
                    continue
                self.matched = True
                if (match := self._candidate(item)) is not None:
                    heapq.heappush(smallest, (-match.status.st_size, match.parts, match))
                    if len(smallest) > most:
                        self._leave_out(heapq.heappop(smallest)[2], TOO_MANY)
        except TooMany:
            self._not_kept.cut(f"there are more than {_MOST_ENTRIES} files and folders")
        found = [match for _, _, match in sorted(smallest, key=lambda item: (-item[0], item[1]))]
        found = found if final else self._settled(found)
        took += time.thread_time() - began
        self._next_look = time.monotonic() + max(self._look_s, LOOK_SHARE * took)
        yield from found

    def _walk(self) -> Walk:
        keeping = self._keeping
        without = CACHES if self._patterns is None else frozenset[str]()
        return Walk(
            keeping.root,
            keeping.parts,
            most=_MOST_ENTRIES,
            patterns=self._patterns,
            without=without,
            since_ns=keeping.since_ns(),
        )

    def _candidate(self, item: Entry) -> Match | None:
        """Returns the file if it is to be stored, and notes why it is not."""
        status, why = item.status, item.why_not
        if status is not None and not stat.S_ISREG(status.st_mode) and self._patterns is None:
            self._has_links = self._has_links or stat.S_ISLNK(status.st_mode)
            return None  # nobody misses a link or a pipe
        size = 0 if status is None else status.st_size
        if why is not None or status is None or len(f"{KEPT}{item.path}".encode(errors="replace")) > MOST_PATH_BYTES:
            self._not_kept.add(item.path, size=size, why=why or "its path is too long")
            return None
        match = Match((*self._keeping.parts, *item.parts), status)
        if self._is_stored(self._path_of(match), status) or self._keeping.captured(match):
            return None
        if self._mask and self._mask.finds(item.path):
            self._not_kept.add(item.path, size=size, why="its path contains the value of a secret")
            return None
        return match

    def _settled(self, matches: Sequence[Match]) -> list[Match]:
        before, self._seen = self._seen, {match.parts: identity(match.status) for match in matches}
        now = time.monotonic()
        same = [
            match
            for match in matches
            if before.get(match.parts) == self._seen[match.parts]
            and self._spaces.get(self._path_of(match), (0.0, 0.0))[0] <= now
        ]
        open_files = open_for_writing(self._root, same)
        written = open_files.written | open_files.unknown
        return [match for match in same if match.parts not in written]

    def _path_of(self, match: Match) -> str:
        return KEPT + "/".join(match.parts[len(self._keeping.parts) :])

    def _leave_out(self, match: Match, why: str) -> None:
        self._not_kept.add(self._path_of(match).removeprefix(KEPT), size=match.status.st_size, why=why)

    def _note_stored(self, new: NewArtifact) -> None:
        super()._note_stored(new)
        pause = min(max(AGAIN_S, self._spaces.get(new.path, (0.0, 0.0))[1] * _SPACED), _LONGEST_SPACE_S)
        self._spaces[new.path] = time.monotonic() + pause, pause

    def _room_of(self, room: Room, others: Sequence[StoredArtifact]) -> tuple[int | None, str]:
        most = self._limits.kept_bytes
        if self._patterns is not None or most is None:
            return None, ""
        kept = sum(item.size for item in others if item.path.startswith(KEPT) and not item.asked)
        return max(0, most - kept), ""

    def _copy_of(self, match: Match) -> FileCopy:
        if self._patterns is not None:
            return super()._copy_of(match)
        return _UnaskedCopy(self._root, self._blobs, match, self._keeping.secrets, is_last=self._looked_last)


class _UnaskedCopy(FileCopy):
    """The copy of a file that nobody has asked for: it has no secret, and waits for no room on the disk."""

    def __init__(self, root: Path, blobs: BlobStore, match: Match, secrets: SecretBytes, *, is_last: bool) -> None:
        self._scan = secrets.scan()
        with_secrets = self._scan.update if secrets else None
        try:
            super().__init__(root, blobs, match, what="a file", beside=with_secrets, is_last=is_last)
        except OSError as error:
            _refuse_if_full(error)
            raise

    def copy_some(self, limit: int) -> int:
        try:
            left = super().copy_some(limit)
        except OSError as error:
            _refuse_if_full(error)
            raise
        if self._scan.found:
            raise DataError("it has the value of a secret")
        return left


def _refuse_if_full(error: OSError) -> None:
    """Raises DataError if the disk of the blobs is full."""
    if error.errno in _NO_ROOM:
        raise DataError("the disk of the service has no room") from None
