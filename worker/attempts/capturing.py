"""Publishes files that a script wrote as checkpoints of the source `captured`, by the patterns of `config.checkpoints`.

A pattern is relative to the job's working folder, and to `artifacts` of the run directory. A file is captured when two
looks found it unchanged and nobody seen has it open for writing, or when the attempt has ended.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
import hashlib
import os
import re
import time

from store.blobs import Blobs
from store.facts.checkpoints import CAPTURED
from store.facts.output import NewCheckpoint
from torchyard.contract.errors import DataError
from torchyard.contract.records import Manifest, ManifestFile
from torchyard.contract.rundir import WORK, RunDir
from torchyard.contract.text import storable
from worker.attempts.copy_queue import CopyQueue
from worker.attempts.copying import Changed, FileCopy, identity
from worker.attempts.matching import Match, Parts, Search
from worker.attempts.writers import open_for_writing
from worker.host import rundirs, workfolders
from worker.host.mask import Mask

MOST_CAPTURED = 1000
"""Checkpoints that are captured of one attempt."""
_LOOK_S = 2.0
"""Seconds between two looks."""
LOOK_SHARE = 50
"""Pause after a look, as a multiple of its duration."""
_AGAIN_S = 30.0
"""Seconds until a file that was captured is captured again, while the attempt runs."""
_PREFIX = "captured-"
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST, _DEEPEST = 100, 5
"""Of the path that a checkpoint lists: characters of a name, and names."""


class CapturedCopy(FileCopy):
    """Copies one file that becomes a checkpoint. Has the interface of `CheckpointCopy`, too."""

    def __init__(self, run: RunDir, blobs: Blobs, match: Match, *, name: str, step: int, limit: int) -> None:
        """Raises as `FileCopy` does."""
        super().__init__(run.root.parent, blobs, match, limit=limit, what="a checkpoint")
        self.name = name
        self._step = step

    @property
    def checkpoint(self) -> NewCheckpoint:
        """What is listed, once all is copied."""
        file = ManifestFile(path=_listed_path(self.parts), size=self.blob.size, sha256=self.blob.sha256)
        manifest = Manifest(step=self._step, files=[file])
        return NewCheckpoint(self.name, manifest, [file], source=CAPTURED)


class Capturing:
    """Captures the files of one attempt. `known` has the names of what its job has captured, and grows with them.

    `mask`: what no path may have.
    """

    def __init__(
        self,
        run: RunDir,
        blobs: Blobs,
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
        self._seen: dict[Parts, tuple[int, ...]] = {}
        """The files of the look before, and what each was."""
        self._captured_at: dict[Parts, float] = {}
        self._queue = CopyQueue[CapturedCopy]()
        self._warned: set[str] = set()
        self._refused: set[str] = set()

    def has(self, match: Match) -> bool:
        """Returns whether the file was captured as it is."""
        name = _name_of(match)
        return name in self._known and name not in self._refused

    @property
    def copying(self) -> bool:
        """Whether there is more to copy now."""
        return self._queue.unfinished

    def take(
        self, budget: int, *, step: int, final: bool, taken: Collection[str], warn: Callable[[str], None]
    ) -> "list[CapturedCopy]":
        """Copies at most about `budget` bytes, and returns the copies that are complete.

        `step`: the newest that the script reported. `taken`: names that this call must not return again. `final`: all
        processes have ended, so that no file changes any more. Raises OSError if `final`; else it tries again later.
        """
        done: list[CapturedCopy] = []
        try:
            if not self.copying and (final or time.monotonic() >= self._next_look):
                self._look(taken, final=final, warn=warn)
            refuse = partial(self._refuse, warn=warn)
            for copy in self._queue.copy(budget, begin=partial(self._copy_of, step=step), refuse=refuse):
                self._captured_at[copy.parts] = time.monotonic()
                done.append(copy)
        except OSError as error:
            self.discard()
            if final:
                for copy in done:
                    copy.discard()
                raise
            self._next_look = time.monotonic() + _AGAIN_S
            self._warn_once(
                "disk", f"files of config.checkpoints cannot be stored now, and wait: {error.strerror}", warn
            )
        return done

    def discard(self) -> None:
        """Discards an unfinished copy. Raises OSError."""
        self._queue.discard()

    def _look(self, taken: Collection[str], *, final: bool, warn: Callable[[str], None]) -> None:
        began = time.monotonic()
        search, before = Search(self._run.root.parent), self._seen
        found = [match for root in roots(self._run) for match in search.find(root, self._patterns).values()]
        self._seen = {match.parts: identity(match.status) for match in found}
        came_ns = workfolders.came_ns(self._run)
        new = [match for match in found if match.status.st_size and not _came(match, came_ns)]
        new = [match for match in new if (name := _name_of(match)) not in self._known and name not in taken]
        for match in [match for match in new if self._mask.finds("/".join(rundirs.own_path(match.parts)))]:
            # Its name is not kept: each time that the job writes the file, it has another one.
            self._say_left_out(match.parts, "its path has the value of a secret", warn)
            new.remove(match)
        if not final:
            new = [match for match in new if self._is_settled(match, before)]
            written = open_for_writing(self._run.root.parent, new)
            new = [match for match in new if match.parts not in written]
        room = MOST_CAPTURED - sum(name.startswith(_PREFIX) for name in self._known)
        if len(new) > room:
            self._warn_once(
                "count", f"{MOST_CAPTURED} files of config.checkpoints were stored; further ones are not", warn
            )
        self._queue.add(new[: max(room, 0)])
        now = time.monotonic()
        self._next_look = now + max(self._look_s, LOOK_SHARE * (now - began))

    def _is_settled(self, match: Match, before: dict[Parts, tuple[int, ...]]) -> bool:
        if before.get(match.parts) != identity(match.status):
            return False
        captured_at = self._captured_at.get(match.parts)
        return captured_at is None or time.monotonic() - captured_at >= _AGAIN_S

    def _copy_of(self, match: Match, *, step: int) -> CapturedCopy:
        return CapturedCopy(self._run, self._blobs, match, name=_name_of(match), step=step, limit=self._limit)

    def _refuse(self, match: Match, error: DataError, *, warn: Callable[[str], None]) -> None:
        """Leaves a file out: for good, or until it is looked at again if it has only changed."""
        if not isinstance(error, Changed):
            self._known.add(_name_of(match))
            self._refused.add(_name_of(match))
            self._say_left_out(match.parts, error.message, warn)

    def _say_left_out(self, parts: Parts, why: str, warn: Callable[[str], None]) -> None:
        own = rundirs.own_path(parts)
        path = storable(self._mask.text("/".join(own[own[0] == WORK :])))[-200:]
        self._warn_once(path, f"{path} is not stored as a checkpoint: {why}", warn)

    def _warn_once(self, topic: str, text: str, warn: Callable[[str], None]) -> None:
        if topic not in self._warned and len(self._warned) < MOST_CAPTURED:
            self._warned.add(topic)
            warn(text)


def roots(run: RunDir) -> tuple[Parts, ...]:
    """Returns the folders that patterns are relative to, by their paths below the job's folder."""
    return (WORK,), (*rundirs.job_path(run), run.artifacts.name)


def _came(match: Match, came_ns: int) -> bool:
    """Returns whether the file came with the code."""
    return match.parts[0] == WORK and match.status.st_mtime_ns <= came_ns


def _name_of(match: Match) -> str:
    """Returns the checkpoint's name. It is another one when the file was replaced, and the same in each attempt."""
    path = hashlib.sha256(os.fsencode("/".join(rundirs.own_path(match.parts)))).hexdigest()[:12]
    return f"{_PREFIX}{path}-{match.status.st_mtime_ns:x}-{match.status.st_size:x}"


def _listed_path(parts: Parts) -> str:
    """Returns the path that the checkpoint lists: below the working folder, with `_` for unusual characters."""
    names = [_UNUSUAL.sub("_", name)[-_LONGEST:] for name in rundirs.own_path(parts)[1:]][-_DEEPEST:]
    return "/".join(name if name[0] not in ".-" else f"_{name[1:]}" for name in names)
