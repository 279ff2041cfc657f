"""Gives an attempt the working folder of its job: as the attempt before has left it, or a new one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
import errno
import logging
import os
from pathlib import Path
import shutil

from store.blobs import Blobs
from store.facts.attempts import AttemptFacts, EarlierAttempt
from torchyard.contract.bundles import bundles_of
from torchyard.contract.rundir import RunDir
from torchyard.contract.spec import parse_spec
from torchyard.host import terminal
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import folder_inside
from worker.attempts import restoring
from worker.attempts.code import CODE
from worker.attempts.restoring import Place, Stored
from worker.bundles.cache import BundleCache
from worker.bundles.copying import copy_tree
from worker.host import rundirs, workfolders
from worker.host.untrusted import remove_inside
from worker.host.workfolders import WorkRecord
from worker.tensorboard.brought import Brought

logger = logging.getLogger(__name__)

_NOT_MOVED = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EACCES}
"""There is none, it is a link, or the attempt has closed it; or this one has its files already."""


def trim(run: RunDir, facts: AttemptFacts, bundles: BundleCache) -> None:
    """Removes from the folder of a job that has succeeded what came with its code and has not changed."""
    sha256 = bundles_of(parse_spec(facts.spec)).get(CODE)
    tree = None if sha256 is None else bundles.tree(sha256, owner=facts.owner)
    if tree is None or not tree.is_dir():
        return
    try:
        workfolders.trim(run, tree)
    except OSError as error:
        logger.warning("%s: the working folder cannot be trimmed: %s", run.root.parent.name, error)


@dataclass(frozen=True, kw_only=True)
class WorkFolder:
    """The working folder of one job, for the attempt that has `run`. No process of an earlier one runs any more.

    `earlier`: the attempts that were claimed before. `stored`: reads the versions of files that the service has.
    `check` is called again and again, and may raise to end a step.
    """

    run: RunDir
    number: int
    claimed_at: int
    earlier: Sequence[EarlierAttempt] = ()
    blobs: Blobs
    stored: Callable[[], Sequence[Sequence[Stored]]] = tuple
    check: Callable[[], object] = lambda: None

    def take(self, tree: Path | None) -> str:
        """Makes the folder and `artifacts` the attempt's. Returns what to tell the job's owner; empty: nothing.

        `tree`: the job's code, unpacked; None: it runs where it is, and has no such folder. Raises OSError, and what
        `check` raises.
        """
        brings = not self._bring_artifacts() and self._last is not None and _is_empty(self.run.artifacts)
        if tree is None:
            return self._restore(restoring.folders_of(self.run, work=None, artifacts=brings))
        workfolders.remove_unfinished(self.run)
        record = workfolders.record_of(self.run)
        if record is None or not self._was_used_last(record):
            workfolders.set_aside(self.run)
            return self._make(tree, artifacts=brings)
        if brings:
            self._restore(restoring.folders_of(self.run, work=None, artifacts=True))
        told = record.told
        if self._last is not None and record.attempt <= self._last:
            told = f"continues in the folder of attempt {self._last}"
        workfolders.use(self.run, replace(record, attempt=self.number, claimed_at=self.claimed_at, told=told))
        return told

    @property
    def _last(self) -> int | None:
        """The last attempt that ran."""
        return max((each.number for each in self.earlier if each.ran), default=None)

    def _was_used_last(self, record: WorkRecord) -> bool:
        """Returns whether the attempt that used the folder last is the job's last one that ran, or came after it."""
        if (record.attempt, record.claimed_at) == (self.number, self.claimed_at):
            return True
        known = {(each.number, each.started_at) for each in self.earlier}
        ran_later = any(each.ran for each in self.earlier if each.number > record.attempt)
        return (record.attempt, record.claimed_at) in known and not ran_later

    def _make(self, tree: Path, *, artifacts: bool) -> str:
        folder = self.run.root.parent
        name = workfolders.fresh_name()
        self._require_room(tree)
        try:
            copy_tree(tree, folder / name, check=self.check)
            failpoint("folder.copy")
            write_record(self.run.came, Brought.found_in(folder / name, check=self.check))
            work = folder / name if self._last is not None else None
            told = self._restore(restoring.folders_of(self.run, work=work, artifacts=artifacts))
            os.utime(folder / name)  # by the clock of its disk
            came_ns = (folder / name).stat().st_mtime_ns
            own = WorkRecord(attempt=self.number, claimed_at=self.claimed_at, came_ns=came_ns, told=told)
            workfolders.publish(self.run, name, own)
        finally:
            remove_inside(folder, name)
        return told

    def _require_room(self, tree: Path) -> None:
        """Raises the OSError of a full disk if the code and the checkpoints to put back have no room."""
        checkpoints = 0 if self._last is None else restoring.needed_for(self.stored())
        needed, free = rundirs.size(tree, unlock=False) + checkpoints, shutil.disk_usage(self.run.root.parent).free
        if needed > free:
            parts = "the code and the checkpoints of the job take" if checkpoints else "the code takes"
            why = f"{parts} {terminal.size(needed)}, and the disk has {terminal.size(free)} free"
            raise OSError(errno.ENOSPC, why, str(self.run.root.parent))

    def _restore(self, folders: dict[Place, Path]) -> str:
        """Puts back what is stored. Returns what to tell the job's owner; empty: nothing."""
        if not folders or self._last is None:
            return ""
        restored = restoring.restore(self.stored(), folders=folders, blobs=self.blobs, check=self.check)
        return restored.message(attempt=self._last) or ""

    def _bring_artifacts(self) -> bool:
        """Moves `artifacts` of the attempt before, if that was on this host, to the attempt's run directory."""
        later = [each for each in self.earlier if each.number >= (self._last or 0)]
        return any(self._move_artifacts(each) for each in reversed(later))

    def _move_artifacts(self, attempt: EarlierAttempt) -> bool:
        """Returns whether the attempt had anything there. Follows no link."""
        theirs = RunDir(self.run.root.with_name(str(attempt.number)))
        if rundirs.is_stale(theirs, claimed_at=attempt.started_at):
            return False
        root, name = self.run.root.parent, self.run.artifacts.name
        try:
            with folder_inside(root, *rundirs.job_path(theirs), name) as found, os.scandir(found) as entries:
                if next(entries, None) is None:
                    return False
            with (
                folder_inside(root, *rundirs.job_path(theirs)) as source,
                folder_inside(root, *rundirs.job_path(self.run)) as target,
            ):
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)  # over an empty folder
        except OSError as error:
            if error.errno in _NOT_MOVED:
                return False
            raise
        return True


def _is_empty(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None
