"""Removes run directories: those that no row knows, those that are too old, and the oldest beyond a total size.

After the end of its attempt, a run directory is a cache: everything that counts is stored by then. The directory of an
open attempt, or of one whose processes may still run, is never touched. The working folder of a job is one of them: it
ends with the job, and goes before the disk is full. Then that of a job which waits goes too, if all that its last
attempt changed is stored.
"""

from collections.abc import Callable, Collection, Generator
import contextlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
import logging
from pathlib import Path
import shutil
import time

from store.worker.protocol import Folders
from store.worker.records import KnownJob
from torchyard.contract.attempts.rundir import WORK, RunDir
from worker.host import rundirs, workfolders
from worker.host.attempt_key import AttemptKey
from worker.host.untrusted import remove_inside, walk_status

ORPHAN_AGE = timedelta(days=7)
"""An orphan is removed after so long without a change: the worker may have been started with the wrong database."""
_JOBS_PER_QUERY = 500
_ORPHAN_PREFIX = ".orphan."
_WITHDRAWN = _ORPHAN_PREFIX + WORK

logger = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class _Ended:
    """The run directory of an ended attempt, or the folder of a job that does not run. What ended first sorts first."""

    minus_age_us: int
    """The negated microseconds since its end."""
    job_id: str
    number: str
    """That of the attempt, or `WORK`."""
    job_finished: bool

    @property
    def is_folder(self) -> bool:
        return self.number == WORK


class RunDirSweeper:
    """`keep`: the age of an attempt's end; `keep_folders`: that of a job's, for its working folder; `keep_bytes`: the
    total size; None keeps all.

    `in_use` returns whether the worker still handles an attempt, or one of its processes runs.
    """

    def __init__(
        self,
        runs: Path,
        asked: Folders,
        *,
        keep: timedelta | None,
        keep_folders: timedelta | None = None,
        keep_bytes: int | None,
        in_use: Callable[[AttemptKey], bool],
        claiming: AbstractContextManager[object] | None = None,
    ) -> None:
        """`claiming`: the lock under which this worker claims jobs: nothing else makes run directories here."""
        self._runs = runs.resolve()
        self._asked = asked
        self._claiming = claiming or nullcontext()
        self._keep = keep
        self._keep_folders = keep_folders
        self._keep_bytes = keep_bytes
        self._in_use_by_worker = in_use
        self._final_sizes: dict[Path, int] = {}
        """The sizes of the directories that no longer change."""

    def sweep(self, *, orphan_age: timedelta = ORPHAN_AGE) -> Generator[None]:
        """Makes one pass. Yields after each query and after each directory. Raises Unavailable."""
        runs = rundirs.by_job(self._runs)
        ended: list[_Ended] = []
        waiting: list[_Ended] = []
        """Folders of which another one can be made."""
        job_ids = sorted(runs)
        for first in range(0, len(job_ids), _JOBS_PER_QUERY):
            some = job_ids[first : first + _JOBS_PER_QUERY]
            known = self._asked.find_known(some)
            yield
            for job_id in some:
                if job_id not in known:
                    yield from self._remove_orphaned_job(job_id, orphan_age)
                    continue
                if known[job_id].finished and not runs[job_id]:
                    self._remove_empty(job_id)
                ended += _ended(job_id, runs[job_id], known[job_id])
                ended += self._ended_folder(job_id, known[job_id])
                waiting += self._waiting_folder(job_id, known[job_id])
                yield from self._remove_orphaned_attempts(job_id, runs[job_id], known[job_id], orphan_age)
        for attempt in sorted(ended):
            if not attempt.is_folder:
                yield from self._remove_unfinished_checkpoints(attempt)
        yield from self._remove_old(sorted(ended))
        for folder in sorted(waiting):
            if not self._lacks_room():
                break
            self._remove_waiting(folder.job_id)
            yield

    def _remove_orphaned_job(self, job_id: str, age: timedelta) -> Generator[None]:
        if self._is_unchanged(self._runs / job_id, age, job_id, rundirs.attempts_in(self._runs / job_id)):
            logger.warning("%s: deleted the run directories in %s, which belong to no job", job_id, self._runs)
            self._remove(job_id)
        yield

    def _remove_orphaned_attempts(
        self, job_id: str, numbers: Collection[str], known: KnownJob, age: timedelta
    ) -> Generator[None]:
        folder = self._runs / job_id
        for number in numbers:
            if int(number) in known.attempts or not self._is_unchanged(folder / number, age, job_id, [number]):
                continue
            if self._rename_orphan(job_id, number):
                logger.warning("%s: deleted the run directory %s, which belongs to no attempt", job_id, number)
                self._remove(job_id, _ORPHAN_PREFIX + number)
            yield
        for name in rundirs.folders(self._runs, job_id):
            unfinished = name.startswith(workfolders.FRESH_PREFIX) and not known.runs
            interrupted = unfinished or name.startswith(_ORPHAN_PREFIX)
            stale = name.startswith(rundirs.STALE_PREFIX)
            if interrupted or (stale and self._is_unchanged(folder / name, age, job_id, [])):
                self._remove(job_id, name)
                yield

    def _is_unchanged(self, folder: Path, age: timedelta, job_id: str, numbers: Collection[str]) -> bool:
        """Returns whether nothing in the folder changed within `age`, and none of its attempts is in use."""
        before = time.time() - age.total_seconds()
        # A job can set every other time of its files.
        if any(status.st_ctime >= before for status in walk_status(folder)):
            return False
        return not any(self._in_use(job_id, number) for number in numbers)

    def _rename_orphan(self, job_id: str, number: str) -> bool:
        """Renames the directory while no job is claimed: its next attempt may get this very number."""
        folder = self._runs / job_id
        with self._claiming:
            known = self._asked.find_known([job_id]).get(job_id)
            if (known is not None and int(number) in known.attempts) or self._in_use(job_id, number):
                return False
            try:
                (folder / number).rename(folder / (_ORPHAN_PREFIX + number))
            except OSError as error:
                logger.warning("%s: cannot delete the run directory %s: %s", job_id, number, error)
                return False
        return True

    def _remove_unfinished_checkpoints(self, attempt: _Ended) -> Generator[None]:
        """Removes checkpoints that a killed attempt had begun to write. Their names start with a dot."""
        run = RunDir(self._runs / attempt.job_id / attempt.number)
        path = rundirs.checkpoints_path(run)
        unfinished = [name for name in rundirs.folders(run.root, *path) if name.startswith(".")]
        if unfinished and not self._in_use(attempt.job_id, attempt.number):
            logger.info(
                "%s: attempt %s left %d incomplete checkpoints", attempt.job_id, attempt.number, len(unfinished)
            )
            for name in unfinished:
                self._remove(attempt.job_id, attempt.number, *path, name)
                yield

    def _remove_old(self, ended: list[_Ended]) -> Generator[None]:
        """Removes what is older than it is kept, and then the oldest until the disk has room and the total is small."""
        for one in ended:
            keep = self._keep_folders if one.is_folder else self._keep
            if keep is not None and -one.minus_age_us * timedelta(microseconds=1) >= keep:
                self._remove_ended(one)
                yield
        for folder in [one for one in ended if one.is_folder]:
            if not self._lacks_room():
                break
            self._remove_ended(folder)
            yield
        if self._keep_bytes is None:
            return
        sizes = yield from self._measure({self._path(attempt) for attempt in ended if attempt.job_finished})
        total = sum(sizes.values())
        for attempt in ended:
            size = sizes.get(self._path(attempt))
            if total > self._keep_bytes and size is not None and self._remove_ended(attempt):
                total -= size
                yield

    def _remove_ended(self, ended: _Ended) -> bool:
        removed = self._remove_folder(ended.job_id) if ended.is_folder else self._remove_attempt(ended)
        if removed and ended.job_finished:
            self._remove_empty(ended.job_id)
        return removed

    def _remove_attempt(self, attempt: _Ended) -> bool:
        if self._in_use(attempt.job_id, attempt.number) or not self._remove(attempt.job_id, attempt.number):
            return False
        logger.info("%s: deleted the run directory of attempt %s", attempt.job_id, attempt.number)
        return True

    def _remove_folder(self, job_id: str) -> bool:
        """Removes the working folder of an ended job."""
        self._remove(job_id, _WITHDRAWN)
        return self._withdraw(job_id) and self._remove_withdrawn(job_id)

    def _withdraw(self, job_id: str) -> bool:
        """Gives a working folder another name, so that nobody finds half of it. Returns whether that was possible."""
        folder = self._runs / job_id
        if not workfolders.exists(folder) or any(self._in_use(job_id, each) for each in rundirs.attempts_in(folder)):
            return False
        try:
            workfolders.withdraw(folder, _WITHDRAWN)
        except OSError as error:
            logger.warning("%s: cannot delete its working folder: %s", job_id, error)
            return False
        return True

    def _remove_withdrawn(self, job_id: str) -> bool:
        if self._remove(job_id, _WITHDRAWN):
            logger.info("%s: deleted its working folder", job_id)
        return True

    def _remove_waiting(self, job_id: str) -> None:
        """Removes the folder of a job that waits or is paused, while no attempt of it can begin."""
        run = RunDir(self._runs / job_id / "1")
        self._remove(job_id, _WITHDRAWN)
        with self._claiming:
            known = self._asked.find_known([job_id]).get(job_id)
            record = workfolders.record_of(run)
            waits = known is None or not known.runs
            withdrawn = waits and record is not None and record.stored and self._withdraw(job_id)
        if withdrawn:
            self._remove_withdrawn(job_id)

    def _lacks_room(self) -> bool:
        """Returns whether less than a tenth of the disk is free."""
        usage = shutil.disk_usage(self._runs)
        return usage.free < usage.total // 10

    def _remove_empty(self, job_id: str) -> None:
        """Removes the folder of a finished job. An unfinished job may be about to get its next run directory."""
        with contextlib.suppress(OSError):
            (self._runs / job_id).rmdir()

    def _measure(self, final: Collection[Path]) -> Generator[None, None, dict[Path, int]]:
        """Returns the bytes on disk of each run directory and working folder. `final`: those that no longer change."""
        sizes: dict[Path, int] = {}
        for job_id, numbers in rundirs.by_job(self._runs).items():
            for number in (*numbers, *([WORK] if workfolders.exists(self._runs / job_id) else [])):
                path = self._runs / job_id / number
                size = self._final_sizes.get(path)
                sizes[path] = size if size is not None else rundirs.size(path, unlock=path in final)
                yield
        self._final_sizes = {path: size for path, size in sizes.items() if path in final}
        return sizes

    def _ended_folder(self, job_id: str, known: KnownJob) -> list[_Ended]:
        if known.age is None or known.runs or known.asked or not workfolders.exists(self._runs / job_id):
            return []
        return [_Ended(-known.age, job_id, WORK, job_finished=True)]

    def _waiting_folder(self, job_id: str, known: KnownJob) -> list[_Ended]:
        last = max(known.attempts, default=None)
        age = None if last is None else known.attempts[last]
        if age is None or known.age is not None or known.runs or known.asked:
            return []
        record = workfolders.record_of(RunDir(self._runs / job_id / "1"))
        if record is None or not record.stored or record.attempt != last:
            return []
        return [_Ended(-age, job_id, WORK, job_finished=False)]

    def _path(self, attempt: _Ended) -> Path:
        return self._runs / attempt.job_id / attempt.number

    def _in_use(self, job_id: str, number: str) -> bool:
        return self._in_use_by_worker(AttemptKey(job_id, int(number)))

    def _remove(self, *parts: str) -> bool:
        removed = remove_inside(self._runs, *parts)
        if not removed:
            logger.warning("%s: cannot delete its remaining files in %s", "/".join(parts), self._runs)
        return removed


def _ended(job_id: str, numbers: Collection[str], known: KnownJob) -> list[_Ended]:
    ages = {number: known.attempts.get(int(number)) for number in numbers}
    return [_Ended(-age, job_id, number, known.finished) for number, age in ages.items() if age is not None]
