"""Gives an attempt the working folder of its job: as the attempt before has left it, or a new one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
import errno
import logging
import os
from pathlib import Path
import shutil

from store.worker.records import AttemptFacts, BlobStore, EarlierAttempt, Inherited
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.spec.spec import parse_spec
from torchyard.host import terminal
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import folder_inside
from worker.attempts.prepare import restoring
from worker.attempts.prepare.code import CODE
from worker.attempts.prepare.restoring import Stored
from worker.attempts.prepare.torn import TornFiles
from worker.bundles.cache import BundleCache
from worker.bundles.copying import copy_missing, copy_tree
from worker.bundles.foldercopy import TooLong, copy_folder
from worker.curves.brought import Brought
from worker.host import mountpoints, rundirs, workfolders
from worker.host.untrusted import remove_briefly, remove_checked
from worker.host.workfolders import WorkRecord

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
        logger.warning("%s: cannot trim the working folder: %s", run.root.parent.name, error)


@dataclass(frozen=True, kw_only=True)
class WorkFolder:
    """The working folder of one job, for the attempt that has `run`. No process of an earlier one runs any more.

    `earlier`: the attempts that were claimed before. `inherited`: of a retry, what it finds of the other job;
    `attempts_of`: reads the attempts of that. `not_kept_of`: reads what an attempt has reported as not kept. `in_pool`:
    a node that was cut off may write on what an attempt had open. `stored`: reads the versions of files that the
    service has. `torn` replaces a file that is not whole by a whole version. `mounts`: the folders that lie
    in it, by their paths. `check` is called again and again, and may raise to end a step.
    """

    run: RunDir
    number: int
    claimed_at: int
    earlier: Sequence[EarlierAttempt] = ()
    inherited: Inherited | None = None
    attempts_of: Callable[[str], Sequence[EarlierAttempt]] = lambda _: ()
    not_kept_of: Callable[[int], str] = lambda _: ""
    in_pool: bool = False
    blobs: BlobStore
    stored: Callable[[], Sequence[Sequence[Stored]]] = tuple
    torn: TornFiles | None = None
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])
    check: Callable[[], object] = lambda: None

    def take(self, tree: Path | None) -> str:
        """Makes the folder and `artifacts` the attempt's. Returns what to tell the job's owner; empty: nothing.

        `tree`: the job's code, unpacked; None: it runs where it is, and has no such folder. Raises OSError, and what
        `check` raises.
        """
        message = self._take(tree)
        if self.torn is None or self._origin is None:
            return message
        self.torn.remove_unfinished()
        for root in (WORK, self.run.artifacts.name):
            self.torn.mend(root)
        return "; ".join(text for text in (message, self.torn.message()) if text)

    def _take(self, tree: Path | None) -> str:
        artifacts = not self._bring_artifacts() and self._origin is not None and _is_empty(self.run.artifacts)
        if tree is None:
            return self._restore(None, artifacts=artifacts)
        workfolders.remove_unfinished(self.run, check=self.check)
        record = workfolders.record_of(self.run)
        if record is None or not self._was_used_last(record):
            workfolders.set_aside(self.run, check=self.check)
            return self._make(tree, artifacts=artifacts)
        if self.in_pool and self._is_silent(record):
            return self._make(tree, artifacts=artifacts, silent=record)
        if artifacts:
            self._restore(None, artifacts=True)
        message = record.message
        if self._last is not None and record.attempt <= self._last:
            message = f"continues in the folder of attempt {self._last}"
        mountpoints.withdraw(self.run.work, record.mounts)
        mounts = {**self.mounts}
        own = replace(
            record, attempt=self.number, claimed_at=self.claimed_at, message=message, mounts=mounts, stored=False
        )
        workfolders.use(self.run, own)
        return _joined(message, mountpoints.make(self.run.work, self.mounts))

    @property
    def _last(self) -> int | None:
        """The last attempt that ran."""
        return max((each.number for each in self.earlier if each.ran), default=None)

    @property
    def _origin(self) -> str | None:
        """What stored files are from; None if there can be none."""
        if self._last is not None:
            return f"attempt {self._last}"
        return None if self.inherited is None else f"job {self.inherited.job_id}"

    def _was_used_last(self, record: WorkRecord) -> bool:
        own = (record.attempt, record.claimed_at) == (self.number, self.claimed_at)
        return own or _is_of_last(record, self.earlier)

    def _is_silent(self, record: WorkRecord) -> bool:
        """Returns whether the attempt that used the folder last may have ended without the knowledge of its nodes."""
        before = RunDir(self.run.root.with_name(str(record.attempt)))
        return record.attempt != self.number and not os.path.lexists(before.exit)

    def _make(self, tree: Path, *, artifacts: bool, silent: WorkRecord | None = None) -> str:
        """Makes a new folder: a copy of another one, or the code with what is stored. `silent`: of the folder here."""
        folder = self.run.root.parent
        name = workfolders.fresh_name()
        try:
            came_ns, message = self._fill(folder / name, tree, silent)
            if came_ns is None:
                remove_checked(folder, name, check=self.check)  # what was copied by then
                self._require_room(tree)
                copy_tree(tree, folder / name, check=self.check)
                failpoint("folder.copy")
                write_record(self.run.came, Brought.found_in(folder / name, check=self.check))
                message = _joined(message, self._restore(folder / name, artifacts=artifacts))
                message = _joined(message, mountpoints.make(folder / name, self.mounts))
                came_ns = _touched_ns(folder / name)
            if silent is not None:
                workfolders.set_aside(self.run, check=self.check)
            own = WorkRecord(
                attempt=self.number,
                claimed_at=self.claimed_at,
                came_ns=came_ns,
                message=message,
                mounts={**self.mounts},
            )
            workfolders.publish(self.run, name, own)
        finally:
            remove_briefly(folder, name)  # a cancel may wait; the sweep and the next attempt remove the rest
        return message

    def _fill(self, fresh: Path, tree: Path, silent: WorkRecord | None) -> tuple[int | None, str]:
        """Copies a folder that another attempt has left, if there is one. Returns since when files are the job's own.

        Returns None if nothing is copied. And what to tell the job's owner; empty: nothing.
        """
        if silent is not None:
            why = self._copy(self.run.work, fresh)
            message = f"continues in a copy of the folder of attempt {self._last or silent.attempt}"
            if why is not None:
                return None, f"the folder cannot be copied: {why}"
            return silent.came_ns, _joined(message, self._mount_anew(fresh, silent))
        if self._last is not None or self.inherited is None or self.inherited.inherits != "folder":
            return None, ""
        other = RunDir(self.run.root.parent.with_name(self.inherited.job_id) / "1")
        record = workfolders.record_of(other)
        if record is None or not _is_of_last(record, self.attempts_of(self.inherited.job_id)):
            return None, ""
        why = self._copy(other.work, fresh)
        if why is None and workfolders.record_of(other) != record:
            why = "it was removed meanwhile"
        if why is not None:
            return None, f"the folder of job {self.inherited.job_id} cannot be copied: {why}"
        if record.trimmed:
            copy_missing(tree, fresh, check=self.check)
        message = _joined(
            f"begins in a copy of the folder of job {self.inherited.job_id}", self._mount_anew(fresh, record)
        )
        write_record(self.run.came, Brought.found_in(fresh, check=self.check))
        return _touched_ns(fresh), message

    def _mount_anew(self, fresh: Path, record: WorkRecord) -> str:
        """Makes the mounts in a copy of the folder that has this record. Returns what to tell."""
        mountpoints.withdraw(fresh, record.mounts)
        return mountpoints.make(fresh, self.mounts)

    def _copy(self, source: Path, fresh: Path) -> str | None:
        """Returns why a folder cannot be copied, or None: it is. Raises what `check` raises."""
        size, free = rundirs.size(source, unlock=True), shutil.disk_usage(fresh.parent).free
        if size > free:
            return f"it takes {terminal.size(size)}, and the disk has {terminal.size(free)} free"
        try:
            copy_folder(source, fresh, check=self.check)
        except TooLong as error:
            return str(error)
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _require_room(self, tree: Path) -> None:
        """Raises the OSError of a full disk if the code and the checkpoints to put back have no room."""
        checkpoints = 0 if self._origin is None else restoring.needed_for(self.stored())
        needed, free = rundirs.size(tree, unlock=False) + checkpoints, shutil.disk_usage(self.run.root.parent).free
        if needed > free:
            parts = "the code and the checkpoints of the job take" if checkpoints else "the code takes"
            why = f"{parts} {terminal.size(needed)}, and the disk has {terminal.size(free)} free"
            raise OSError(errno.ENOSPC, why, str(self.run.root.parent))

    def _restore(self, work: Path | None, *, artifacts: bool) -> str:
        """Puts back what is stored. Returns what to tell the job's owner; empty: nothing."""
        folders = restoring.folders_of(self.run, work=work, artifacts=artifacts)
        if not folders or self._origin is None:
            return ""
        restored = restoring.restore(self.stored(), folders=folders, blobs=self.blobs, check=self.check)
        for root, folder in folders.items():
            if self.torn is not None:
                self.torn.lay(root, folder=folder.name if root == WORK else None)
        lost = "" if work is None or self._last is None else self.not_kept_of(self._last)
        return "; ".join(filter(None, (restored.message(of=self._origin), lost and f"not captured: {lost}")))

    def _bring_artifacts(self) -> bool:
        """Moves `artifacts` of the attempt before, if that was on this host, to the attempt's run directory."""
        later = [each for each in self.earlier if each.number >= (self._last or 0)]
        return any(self._move_artifacts(each) for each in reversed(later))

    def _move_artifacts(self, attempt: EarlierAttempt) -> bool:
        """Returns whether the attempt had anything there, and has ended for sure. Follows no link."""
        theirs = RunDir(self.run.root.with_name(str(attempt.number)))
        if rundirs.is_stale(theirs, claimed_at=attempt.started_at):
            return False
        if self.in_pool and not os.path.lexists(theirs.exit):
            return False  # what is stored of them is put back
        root, name = self.run.root.parent, self.run.artifacts.name
        try:
            with folder_inside(root, *rundirs.job_path(theirs), name) as folder, os.scandir(folder) as entries:
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


def _joined(*messages: str) -> str:
    return "; ".join(text for text in messages if text)


def _is_of_last(record: WorkRecord, attempts: Sequence[EarlierAttempt]) -> bool:
    """Returns whether the attempt that used a folder last is the last one that ran, or came after it."""
    known = {(each.number, each.started_at) for each in attempts}
    ran_later = any(each.ran for each in attempts if each.number > record.attempt)
    return (record.attempt, record.claimed_at) in known and not ran_later


def _touched_ns(folder: Path) -> int:
    """Returns the time now, by the clock of the folder's disk."""
    os.utime(folder)
    return folder.stat().st_mtime_ns


def _is_empty(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None
