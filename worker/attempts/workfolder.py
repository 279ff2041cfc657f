"""Gives an attempt the working folder of its job: as the attempt before has left it, or a new one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import errno
import os
from pathlib import Path

from store.facts.attempts import EarlierAttempt
from torchyard.contract.rundir import RunDir
from torchyard.host import disk
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import folder_inside
from worker.bundles.copying import copy_tree
from worker.host import rundirs, workfolders
from worker.host.untrusted import remove_inside
from worker.host.workfolders import WorkRecord
from worker.tensorboard.brought import Brought

_NOT_MOVED = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EACCES}
"""There is none, it is a link, or the attempt has closed it; or this one has its files already."""


@dataclass(frozen=True)
class WorkFolder:
    """The working folder of one job, for the attempt that has `run`. No process of an earlier one runs any more.

    `earlier`: the attempts that were claimed before. `check` is called again and again, and may raise to end a step.
    """

    run: RunDir
    number: int
    claimed_at: int
    earlier: Sequence[EarlierAttempt]
    check: Callable[[], object] = lambda: None

    def take(self, tree: Path) -> str | None:
        """Makes the folder the attempt's. Returns what to tell the job's owner, if there is anything.

        `tree`: the job's code, unpacked. Raises OSError, and what `check` raises.
        """
        workfolders.remove_unfinished(self.run)
        record = workfolders.record_of(self.run)
        if record is None or not self._was_used_last(record):
            workfolders.set_aside(self.run)
            return self._make(tree)
        own = WorkRecord(attempt=self.number, claimed_at=self.claimed_at, came_ns=record.came_ns)
        workfolders.use(self.run, own)
        before = max((each.number for each in self.earlier if each.ran), default=None)
        return None if before is None else f"continues in the folder of attempt {before}"

    def bring_artifacts(self) -> None:
        """Moves `artifacts` of the attempt before, if that was on this host, to the attempt's run directory."""
        last = max((each.number for each in self.earlier if each.ran), default=0)
        for each in reversed(self.earlier):
            if each.number < last or self._move_artifacts(each):
                return

    def _was_used_last(self, record: WorkRecord) -> bool:
        """Returns whether the attempt that used the folder last is the job's last one that ran, or came after it."""
        if (record.attempt, record.claimed_at) == (self.number, self.claimed_at):
            return True
        known = {(each.number, each.started_at) for each in self.earlier}
        ran_later = any(each.ran for each in self.earlier if each.number > record.attempt)
        return (record.attempt, record.claimed_at) in known and not ran_later

    def _make(self, tree: Path) -> str | None:
        folder = self.run.root.parent
        name = workfolders.fresh_name()
        disk.require_free_space(folder, rundirs.size(tree, unlock=False))
        try:
            copy_tree(tree, folder / name, check=self.check)
            failpoint("folder.copy")
            write_record(self.run.came, Brought.found_in(folder / name, check=self.check))
            os.utime(folder / name)  # by the clock of its disk
            came_ns = (folder / name).stat().st_mtime_ns
            record = WorkRecord(attempt=self.number, claimed_at=self.claimed_at, came_ns=came_ns)
            workfolders.publish(self.run, name, record)
        finally:
            remove_inside(folder, name)
        return None

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
