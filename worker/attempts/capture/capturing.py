"""Publishes files that a script wrote as checkpoints of the source `captured`, by the patterns of `config.checkpoints`.

A pattern is relative to the job's working folder, and to `artifacts` of the run directory. While the script runs, a
file is captured when it is whole: two looks found it unchanged, nobody seen has it open for writing, and its own bytes
say nothing else. In the end all are captured, and those that are not whole are marked as damaged.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
import time

from store.worker.records import BlobStore
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.wire.text import storable
from worker.attempts.capture import folders
from worker.attempts.capture.alike import alike
from worker.attempts.capture.captured import TORN, Candidate, CapturedCopy
from worker.attempts.capture.capturedfolder import CapturedFolder, Torn
from worker.attempts.capture.folders import FolderMatch
from worker.attempts.files.copy_queue import CopyQueue
from worker.attempts.files.copying import Changed, identity
from worker.attempts.files.matching import Search
from worker.attempts.files.writers import open_for_writing
from worker.host import rundirs, workfolders
from worker.host.looks import Match, Parts, names_of
from worker.host.mask import Mask

MOST_AT_WILL = 1000
"""Checkpoints that are captured of one job at will. Beyond, one is in each pause between two of one file."""
MOST_AT_END = 1000
"""The newest that are captured when the attempt has ended."""
_FILES_OF_ONE = 20
"""Files of a folder that count as one checkpoint: its row in the database has them all."""
_LOOK_S = 2.0
"""Seconds between two looks."""
LOOK_SHARE = 50
"""Pause after a look, as a multiple of its duration."""
_AGAIN_S, _LONGEST_AGAIN_S = 30.0, 3600.0
"""Seconds until a file that was captured is captured again while the attempt runs, and at most."""
_AGAIN_SHARE = 500
"""A job that is so many times as old as that pause has a longer one."""
_MOST_WARNED = 1000
_MOST_REFUSED = 10_000
"""Files that are remembered as left out for good. Others are looked at again."""
_MOST_LINKS = 16
"""Other names of one file that its checkpoint lists."""

Warn = Callable[[str], None]
Captured = CapturedCopy | CapturedFolder


class Capturing:
    """Captures the files of one attempt. `known` has the names of the job's captured ones, and grows with them.

    `mask`: what no path may have.
    """

    def __init__(
        self,
        run: RunDir,
        blobs: BlobStore,
        patterns: Sequence[str],
        *,
        known: set[str],
        limit: int,
        mask: Mask | None = None,
        look_s: float = _LOOK_S,
    ) -> None:
        self._run = run
        self._blobs = blobs
        self._patterns = patterns
        self._known = known
        self._limit = limit
        self._mask = mask or Mask()
        self._look_s = look_s
        self._next_look = 0.0
        self._next_at_will = 0.0
        """When the next may be captured of a job that has captured many."""
        self._left_at_end = MOST_AT_END
        self._more = 0
        """For how many checkpoints folders of many files count besides themselves."""
        self._seen: dict[Parts, tuple[int, ...]] = {}
        """The files and folders that the look before found, each with its identity."""
        self._folder_of: dict[tuple[int, ...], str] = {}
        """The name of the checkpoint that a folder is, or is to be, by each of its files as it is."""
        self._rests: dict[Parts, tuple[int, ...]] = {}
        """Those that the look before found as the one before it."""
        self._rested: dict[Parts, tuple[int, ...]] = {}
        """Those that were at rest over two looks and closed, and what each was."""
        self._torn: dict[Parts, tuple[int, ...]] = {}
        """Those that were at rest, and not whole."""
        self._captured_at: dict[Parts, float] = {}
        self._queue = CopyQueue[Captured]()
        self._chosen: dict[Parts, Candidate] = {}
        """Those in the queue."""
        self._warned: set[str] = set()
        self._refused: set[str] = set()
        self._linked: set[tuple[int, ...]] = set()
        """Captured files that have other names."""

    def has(self, match: Match) -> bool:
        """Returns whether the file was captured as it is, by itself or in a folder."""
        name = self._folder_of.get(identity(match.status)) or Candidate(match).name
        return identity(match.status) in self._linked or (name in self._known and name not in self._refused)

    @property
    def copying(self) -> bool:
        """Whether there is more to copy now."""
        return self._queue.unfinished

    def take(
        self,
        budget: int,
        *,
        step: int,
        final: bool,
        completed: bool = False,
        taken: Collection[str],
        warn: Warn,
    ) -> list[Captured]:
        """Copies at most about `budget` bytes, and returns the copies that are complete.

        `step`: the newest that the script reported. `taken`: names that this call must not return again. `final`: all
        processes have ended, so that no file changes any more; `completed`: with success. Raises OSError if `final`;
        else it tries again later.
        """
        done: list[Captured] = []
        try:
            if not self.copying and (final or time.monotonic() >= self._next_look):
                self._look(taken, final=final, completed=completed, warn=warn)
            refuse = partial(self._refuse, warn=warn)
            begin = partial(self._copy_of, step=step, final=final)
            for copy in self._queue.copy(budget, begin=begin, refuse=refuse):
                self._captured_at[copy.parts] = time.monotonic()
                if copy.candidate.names > 1:
                    self._linked.add(identity(copy.match.status))
                self._more += _weight(copy.candidate) - 1
                if copy.damaged:
                    self._say(copy.parts, "is incomplete: it is stored as a damaged checkpoint", warn)
                done.append(copy)
        except OSError as error:
            self.discard()
            if final:
                for copy in done:
                    copy.discard()
                raise
            self._next_look = time.monotonic() + _AGAIN_S
            self._warn_once(
                "disk", f"files of config.checkpoints cannot be stored now; retrying: {error.strerror}", warn
            )
        return done

    def stored(self, names: Iterable[str]) -> None:
        """Notes the checkpoints whose rows are stored."""
        self._known.update(names)

    def discard(self) -> None:
        """Discards an unfinished copy. Raises OSError."""
        self._queue.discard()

    def _look(self, taken: Collection[str], *, final: bool, completed: bool, warn: Warn) -> None:
        began, before = time.monotonic(), self._seen
        matching = self._find(warn)
        rests = self._rests
        self._seen = {item.parts: identity(item.match.status) for item in matching}
        self._rests = {parts: each for parts, each in self._seen.items() if before.get(parts) == each}
        self._folder_of = {}
        for item in matching:
            if isinstance(item.match, FolderMatch):
                self._folder_of |= dict.fromkeys((identity(file.status) for file in item.files), item.name)
        self._torn = {parts: each for parts, each in self._torn.items() if parts in self._seen}
        came_ns = workfolders.came_ns(self._run)
        matching = [item for item in matching if item.match.status.st_size and not _came(item, came_ns)]
        matching = [item for item in matching if not any(name.endswith(TORN) for name in item.parts)]
        new = [item for item in matching if item.name not in self._known and item.name not in taken]
        new = self._each_once([item for item in new if not self._has_secret(item, warn)], matching, warn)
        new = self._in_order(new)
        chosen = self._last(new, matching, completed=completed, warn=warn) if final else self._due(new, rests, warn)
        self._chosen = {item.parts: item for item in chosen}
        for left_out in [each for item in chosen for each in _left_out(item)[:1]]:
            self._say(left_out, "is a link or not a file: its checkpoint is stored without it", warn)
        self._queue.add(item.match for item in chosen)
        now = time.monotonic()
        self._next_look = now + max(self._look_s, LOOK_SHARE * (now - began))

    def _find(self, warn: Warn) -> list[Candidate]:
        """Returns the files and folders that are a checkpoint each, each once."""
        search = Search(self._run.root.parent)
        candidates = [
            Candidate(match) for root in roots(self._run) for match in folders.find(search, root, self._patterns)
        ]
        if search.is_cut:
            self._warn_once("cut", "config.checkpoints: too many files to look at all", warn)
        return candidates

    def _has_secret(self, item: Candidate, warn: Warn) -> bool:
        """Says so of a file whose path has the value of a secret. It is no checkpoint."""
        if not any(self._mask.finds("/".join(rundirs.own_path(file.parts))) for file in item.files):
            return False
        # Its name is not kept: each time that the job writes the file, it has another one.
        self._say_left_out(item.parts, "its path contains the value of a secret", warn)
        return True

    def _each_once(self, new: Sequence[Candidate], matching: Sequence[Candidate], warn: Warn) -> list[Candidate]:
        """Returns each file under one of its names, and leaves those out that have others outside the job's folders.

        A name with a number is the one that stays when the others are given to the next file.
        """
        linked = [item for item in new if item.match.status.st_nlink > 1]
        if not linked:
            return list(new)
        known = {_inode(item) for item in matching if item.name in self._known}
        by_inode: dict[tuple[int, int], list[Candidate]] = {}
        for item in linked:
            by_inode.setdefault(_inode(item), []).append(item)
        wanted = by_inode.keys() - known
        names = names_of(self._run.root.parent, [(WORK,), rundirs.job_path(self._run)], wanted)
        chosen = {item.parts: item for item in new if item.match.status.st_nlink == 1}
        for inode in wanted:
            same = sorted(by_inode[inode], key=_stays_first)
            first = same[0]
            if len(names[inode]) < first.match.status.st_nlink:
                self._leave_out(item.name for item in same)
                self._say_left_out(first.parts, "it has names outside the job's folders", warn)
                continue
            others = [parts for parts in sorted(names[inode]) if parts != first.parts]
            links = [parts for parts in others if rundirs.own_path(parts)[0] == rundirs.own_path(first.parts)[0]]
            links = [parts for parts in links[:_MOST_LINKS] if not self._mask.finds("/".join(rundirs.own_path(parts)))]
            chosen[first.parts] = replace(first, names=len(names[inode]), links=links)
        return [*chosen.values()]

    def _in_order(self, new: Iterable[Candidate]) -> list[Candidate]:
        """Returns the files, oldest first, with the times of their saving: no two have the same."""
        looked_ns, newest = time.time_ns(), 0
        ordered: list[Candidate] = []
        for item in sorted(new, key=lambda item: item.order_key(looked_ns)):
            newest = max(item.order_key(looked_ns)[0], newest + 1)
            ordered.append(replace(item, saved_at=newest))
        return ordered

    def _due(self, new: Sequence[Candidate], rested: dict[Parts, tuple[int, ...]], warn: Warn) -> list[Candidate]:
        """Returns those that are captured while the script runs. `rested`: what was at rest at the look before."""
        settled = [item for item in new if item.parts in self._rests]
        # Between two files of a folder a program may compute for seconds.
        settled = [item for item in settled if _is_sealed(item) or rested.get(item.parts) == self._rests[item.parts]]
        settled = [item for item in settled if self._torn.get(item.parts) != identity(item.match.status)]
        open_files = open_for_writing(self._run.root.parent, [file for item in settled for file in item.files])
        settled = [item for item in settled if open_files.written.isdisjoint(file.parts for file in item.files)]
        settled = [
            replace(item, rested=open_files.unknown.isdisjoint(file.parts for file in item.files)) for item in settled
        ]
        self._rested = {item.parts: identity(item.match.status) for item in settled if item.rested}
        now, pause = time.monotonic(), self._pause_s()
        due = [item for item in settled if now - self._captured_at.get(item.parts, -pause) >= pause]
        left = MOST_AT_WILL - len(self._known) - self._more
        if left > 0 or not due:
            return _fitting(due, left)
        self._warn_once(
            "count",
            f"{MOST_AT_WILL} files of config.checkpoints were stored: from now on the newest every {pause:.0f} s",
            warn,
        )
        if now < self._next_at_will:
            return []
        self._next_at_will = now + pause
        return due[-1:]

    def _last(
        self, new: Sequence[Candidate], matching: Sequence[Candidate], *, completed: bool, warn: Warn
    ) -> list[Candidate]:
        """Returns those files that are captured when the script has ended. `found`: all that match."""
        kept = _fitting(new[::-1], self._left_at_end)[::-1]
        if len(kept) < len(new):
            self._warn_once(
                "end", f"only the newest {MOST_AT_END} files of config.checkpoints are stored at the end", warn
            )
        self._left_at_end -= sum(map(_weight, kept))
        same = alike(matching, since_ns=rundirs.started_ns(self._run))
        return [
            replace(
                item,
                rested=completed
                or same.get(item.parts, False)
                or self._rested.get(item.parts) == identity(item.match.status),
                is_alike=item.parts in same,
            )
            for item in kept
        ]

    def _pause_s(self) -> float:
        """Returns how long a file that was captured waits until it is captured again: the longer, the older the job."""
        started_ns = workfolders.came_ns(self._run) or rundirs.started_ns(self._run)
        age_s = (time.time_ns() - started_ns) / 1e9 if started_ns else 0.0
        return min(max(_AGAIN_S, age_s / _AGAIN_SHARE), _LONGEST_AGAIN_S)

    def _copy_of(self, match: Match, *, step: int, final: bool) -> Captured:
        candidate = self._chosen[match.parts]
        if isinstance(match, FolderMatch):
            return CapturedFolder(self._run, self._blobs, candidate, match, step=step, limit=self._limit, final=final)
        copy = CapturedCopy(self._run, self._blobs, candidate, step=step, limit=self._limit, is_last=final)
        if copy.damaged and not final:
            copy.discard()
            raise Torn("it is incomplete")
        return copy

    def _refuse(self, match: Match, error: DataError, *, warn: Warn) -> None:
        """Leaves one out: for good, or until it is looked at again if it has only changed."""
        if isinstance(error, Torn):
            self._torn[match.parts] = identity(match.status)
        if not isinstance(error, Changed):
            self._leave_out([self._chosen[match.parts].name])
            self._say_left_out(match.parts, error.message, warn)

    def _leave_out(self, names: Iterable[str]) -> None:
        """Notes checkpoints that are never stored, as far as there is room for them."""
        if len(self._refused) < _MOST_REFUSED:
            new = {*names}
            self._known |= new
            self._refused |= new

    def _say_left_out(self, parts: Parts, why: str, warn: Warn) -> None:
        self._say(parts, f"was not stored as a checkpoint: {why}", warn)

    def _say(self, parts: Parts, what: str, warn: Warn) -> None:
        own = rundirs.own_path(parts)
        path = storable(self._mask.text("/".join(own[own[0] == WORK :])))[-200:]
        self._warn_once(path, f"{path} {what}", warn)

    def _warn_once(self, topic: str, text: str, warn: Warn) -> None:
        if topic not in self._warned and len(self._warned) < _MOST_WARNED:
            self._warned.add(topic)
            warn(text)


def roots(run: RunDir) -> tuple[Parts, ...]:
    """Returns the folders that patterns are relative to, by their paths below the job's folder."""
    return (WORK,), (*rundirs.job_path(run), run.artifacts.name)


def _came(item: Candidate, came_ns: int) -> bool:
    """Returns whether the file came with the code."""
    return item.parts[0] == WORK and item.match.status.st_mtime_ns <= came_ns


def _weight(item: Candidate) -> int:
    """Returns as how many checkpoints it counts."""
    return max(1, len(item.files) // _FILES_OF_ONE)


def _fitting(items: Sequence[Candidate], most: int) -> list[Candidate]:
    """Returns the first items, until they count as so many checkpoints."""
    fitting = list[Candidate]()
    for item in items:
        if most <= 0:
            break
        fitting.append(item)
        most -= _weight(item)
    return fitting


def _left_out(item: Candidate) -> Sequence[Parts]:
    return item.match.left_out if isinstance(item.match, FolderMatch) else ()


def _is_sealed(item: Candidate) -> bool:
    return not isinstance(item.match, FolderMatch) or item.match.is_sealed


def _inode(item: Candidate) -> tuple[int, int]:
    return item.match.status.st_dev, item.match.status.st_ino


def _stays_first(item: Candidate) -> tuple[bool, Parts]:
    return not any(character.isdigit() for character in item.parts[-1]), item.parts
