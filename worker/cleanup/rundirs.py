"""The run directories on this host, and which of them go: those that no row knows, the old ones, those beyond a size.

A run directory is a cache once its attempt has ended: all that counts is stored by then. That of an open attempt is
never touched, nor one whose processes may still run.
"""

from collections.abc import Callable, Collection, Generator, Iterator
import contextlib
from dataclasses import dataclass
from datetime import timedelta
import logging
import os
from pathlib import Path
import re
import stat
import time

from store.db.database import Database, in_us
from store.ids import is_id
from store.queries import run_dirs
from store.queries.run_dirs import KnownJob
from store.rows import jobs
from torchyard.contract.records import LaunchPlan
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_untrusted
from worker.engines.base import AttemptKey
from worker.untrusted import folders_inside, remove_inside

ORPHAN_AGE = timedelta(days=7)
"""So long must an orphan have been left alone: somebody may have started the worker with the wrong database."""
_ASKED_AT_ONCE = 500
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_ASIDE = ".orphan."
_STALE = ".stale."
_BLOCK = 512

logger = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class _Ended:
    """The directory of an ended attempt; those that ended first come first."""

    ended: int
    """Minus the microseconds since then."""
    job_id: str
    number: str
    finished: bool
    """Whether the job is."""


def is_stale(run: RunDir, *, claimed_at: int) -> bool:
    """Whether it is of another attempt with the same number, which a database had before an older one was put back."""
    plan = read_untrusted(run.launch, LaunchPlan)
    return plan is not None and plan.claimed_at not in {None, claimed_at}


def make_room(run: RunDir) -> None:
    """Puts it aside for an attempt with its number; there it is kept as long as an orphan. Raises OSError."""
    aside = run.root.with_name(_STALE + run.root.name)
    remove_inside(aside.parent, aside.name)
    run.root.rename(aside)


class RunDirs:
    """`keep` is the age of an attempt's end, `keep_bytes` the size of all; None keeps all. `in_use` answers
    whether the worker still has an attempt in hand, or something of it runs."""

    def __init__(
        self,
        runs: Path,
        database: Database,
        *,
        keep: timedelta | None,
        keep_bytes: int | None,
        in_use: Callable[[AttemptKey], bool],
    ) -> None:
        self._runs = runs.resolve()
        self._database = database
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._in_use_by = in_use
        self._sizes: dict[Path, int] = {}
        """Of the directories that change no more."""

    def sweep(self, *, orphan_age: timedelta = ORPHAN_AGE) -> Generator[None]:
        """One pass over all. Yields after each look at the database and each directory. Raises Unavailable."""
        there = _listed(self._runs)
        ended: list[_Ended] = []
        names = sorted(there)
        for first in range(0, len(names), _ASKED_AT_ONCE):
            some = names[first : first + _ASKED_AT_ONCE]
            with self._database.read() as session:
                known = run_dirs.known_jobs(session, some)
            yield
            for job_id in some:
                if job_id in known:
                    if known[job_id].finished and not there[job_id]:
                        self._remove_empty(job_id)
                    ended += _ended(job_id, there[job_id], known[job_id])
                    yield from self._orphaned_attempts(job_id, there[job_id], known[job_id], orphan_age)
                else:
                    yield from self._orphaned_job(job_id, orphan_age)
        for attempt in sorted(ended):
            yield from self._remove_half_made(attempt)
        yield from self._remove_old(sorted(ended))

    def _orphaned_job(self, job_id: str, age: timedelta) -> Generator[None]:
        if self._left_alone(self._runs / job_id, age, job_id, _attempts(self._runs / job_id)):
            logger.warning("%s: no job has the run directories in %s: they are removed", job_id, self._runs)
            self._remove(job_id)
        yield

    def _orphaned_attempts(
        self, job_id: str, numbers: Collection[str], known: KnownJob, age: timedelta
    ) -> Generator[None]:
        for number in numbers:
            if int(number) in known.attempts or not self._left_alone(
                self._runs / job_id / number, age, job_id, [number]
            ):
                continue
            if self._set_aside(job_id, number):
                logger.warning("%s: no attempt has the run directory %s: it is removed", job_id, number)
                self._remove(job_id, _ASIDE + number)
            yield
        for name in _folders(self._runs, job_id):
            cut_off = name.startswith(_ASIDE)
            if cut_off or (name.startswith(_STALE) and self._left_alone(self._runs / job_id / name, age, job_id, [])):
                self._remove(job_id, name)
                yield

    def _left_alone(self, folder: Path, age: timedelta, job_id: str, numbers: Collection[str]) -> bool:
        before = time.time() - age.total_seconds()
        # A job can set every other time of its files.
        if any(status.st_ctime >= before for status in _statuses(folder)):
            return False
        return not any(self._in_use(job_id, number) for number in numbers)

    def _set_aside(self, job_id: str, number: str) -> bool:
        """Renames the directory while the job cannot be claimed: its next attempt may have this very number."""
        folder = self._runs / job_id
        with self._database.write("move_aside") as session:
            jobs.lock(session, job_id)
            job = run_dirs.known_jobs(session, [job_id]).get(job_id)
            if job is not None and int(number) in job.attempts:
                return False
            try:
                (folder / number).rename(folder / (_ASIDE + number))
            except OSError as error:
                logger.warning("%s: the run directory %s cannot be removed: %s", job_id, number, error)
                return False
        return True

    def _remove_half_made(self, attempt: _Ended) -> Generator[None]:
        """What an attempt that was killed had begun to write: checkpoints without a name, and no other has them."""
        run = RunDir.found(self._runs / attempt.job_id / attempt.number)
        half_made = [name for name in _folders(run.root, *_copies(run)) if name.startswith(".")]
        if half_made and not self._in_use(attempt.job_id, attempt.number):
            logger.info("%s: attempt %s left %d half-made checkpoints", attempt.job_id, attempt.number, len(half_made))
            for name in half_made:
                self._remove(attempt.job_id, attempt.number, *_copies(run), name)
                yield

    def _remove_old(self, ended: list[_Ended]) -> Generator[None]:
        """`ended`: by the time of their end."""
        if self._keep is not None:
            kept_us = in_us(self._keep)
            for attempt in [attempt for attempt in ended if -attempt.ended >= kept_us]:
                self._remove_ended(attempt)
                yield
        if self._keep_bytes is None:
            return
        sizes = yield from self._measure({self._runs / item.job_id / item.number for item in ended if item.finished})
        total = sum(sizes.values())
        for attempt in ended:
            size = sizes.get(self._runs / attempt.job_id / attempt.number)
            if total > self._keep_bytes and size is not None and self._remove_ended(attempt):
                total -= size
                yield

    def _remove_ended(self, attempt: _Ended) -> bool:
        if self._in_use(attempt.job_id, attempt.number) or not self._remove(attempt.job_id, attempt.number):
            return False
        logger.info("%s: the run directory of attempt %s is removed", attempt.job_id, attempt.number)
        if attempt.finished:
            self._remove_empty(attempt.job_id)
        return True

    def _remove_empty(self, job_id: str) -> None:
        """The folder of a finished job: that of another may be about to get its next run directory."""
        with contextlib.suppress(OSError):
            (self._runs / job_id).rmdir()

    def _measure(self, unchanging: Collection[Path]) -> Generator[None, None, dict[Path, int]]:
        """The bytes on the disk of each run directory there is."""
        found: dict[Path, int] = {}
        for job_id, numbers in _listed(self._runs).items():
            for number in numbers:
                path = self._runs / job_id / number
                size = self._sizes.get(path)
                found[path] = size if size is not None else sum(item.st_blocks * _BLOCK for item in _statuses(path))
                yield
        self._sizes = {path: size for path, size in found.items() if path in unchanging}
        return found

    def _in_use(self, job_id: str, number: str) -> bool:
        return self._in_use_by(AttemptKey(job_id, int(number)))

    def _remove(self, *parts: str) -> bool:
        removed = remove_inside(self._runs, *parts)
        if not removed:
            logger.warning("%s: what is left of it in %s cannot be removed", "/".join(parts), self._runs)
        return removed


def _listed(runs: Path) -> dict[str, list[str]]:
    """The numbers of the run directories there are, by their job; what no job of this service made is left out."""
    return {name: _attempts(runs / name) for name in _folders(runs.parent, runs.name) if is_id(name, "job")}


def _attempts(folder: Path) -> list[str]:
    return [name for name in _folders(folder.parent, folder.name) if _NUMBER.fullmatch(name)]


def _ended(job_id: str, numbers: Collection[str], known: KnownJob) -> list[_Ended]:
    ages = {number: known.attempts.get(int(number)) for number in numbers}
    return [_Ended(-age, job_id, number, known.finished) for number, age in ages.items() if age is not None]


def _copies(run: RunDir) -> tuple[str, ...]:
    return run.checkpoints.relative_to(run.root).parts


def _folders(root: Path, *parts: str) -> list[str]:
    with contextlib.suppress(OSError):
        return folders_inside(root, *parts)
    return []


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    """Of the folder and of all below it. No link is followed, and what vanishes meanwhile is left out."""
    pending = [str(folder)]
    with contextlib.suppress(OSError):
        yield folder.lstat()
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield status
                if stat.S_ISDIR(status.st_mode):
                    pending.append(entry.path)
