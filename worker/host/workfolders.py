"""The working folders of jobs on this host: which attempt used one last, and moving one aside.

Nothing here follows a link that a job has made: the folder of the job, in which its working folder lies, is the
service's own.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
import os
from pathlib import Path
import stat
from typing import Annotated
import uuid

from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.wire.codec import Record, between
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import sync_folder, write_record
from torchyard.host.untrusted import folder_inside, read_untrusted
from worker.host import rundirs
from worker.host.untrusted import make_accessible, remove_checked

_CHUNK = 1 << 20
FRESH_PREFIX = f".{WORK}."
"""Begins the name of a working folder that is not whole."""


@dataclass(frozen=True, kw_only=True)
class WorkRecord(Record):
    """Who used a working folder last. It is written before the attempt's first process starts."""

    attempt: Annotated[int, between(1, 10**9)]
    claimed_at: int
    """As in the attempt's row: numbers are used again after an older database was restored."""
    came_ns: int
    """When all was there that came with the code, by the clock of its disk. What is newer, the job has written."""
    message: str = ""
    """The message to the job's owner of the folder, when an attempt runs in it."""
    trimmed: bool = False
    """Whether what came with the code and did not change was removed, as the job has succeeded."""
    stored: bool = False
    """Whether all that the attempt changed was stored when it ended: another folder can be made of that."""
    mounts: dict[str, str] = field(default_factory=dict[str, str])
    """The targets of the links that are the job's mounts, by their paths. They are noted before they are made."""


def record_of(run: RunDir) -> WorkRecord | None:
    """Returns the record of the job's working folder; None if there is no whole one."""
    record = read_untrusted(run.work_record, WorkRecord)
    with suppress(OSError):
        return record if stat.S_ISDIR(run.work.lstat().st_mode) else None
    return None


def came_ns(run: RunDir) -> int:
    """Returns when all was there that came with the code; 0 for a job without a working folder."""
    record = read_untrusted(run.work_record, WorkRecord)
    return 0 if record is None else record.came_ns


def note_stored(run: RunDir, attempt: int) -> None:
    """Notes that all that an attempt has changed is stored, if it used the folder last. Raises OSError."""
    record = record_of(run)
    if record is not None and record.attempt == attempt:
        write_record(run.work_record, replace(record, stored=True))


def use(run: RunDir, record: WorkRecord) -> None:
    """Notes which attempt uses the folder now, and makes it accessible to its owner. Raises OSError."""
    make_accessible(run.root.parent, WORK)
    write_record(run.work_record, record)


def fresh_name() -> str:
    """Returns a name for a folder that is not whole yet."""
    return FRESH_PREFIX + uuid.uuid4().hex


def publish(run: RunDir, name: str, record: WorkRecord) -> None:
    """Makes the folder `name`, which is whole, the job's working folder. Raises OSError."""
    write_record(run.work_record, record)  # without the folder it says nothing
    failpoint("folder.rename")
    (run.root.parent / name).rename(run.work)
    failpoint("folder.renamed")
    sync_folder(run.root.parent)


def set_aside(run: RunDir, *, check: Callable[[], object]) -> None:
    """Renames what lies at the folder's path, so that another one can be made. Raises OSError.

    The sweep removes it after the same time as an orphan. What was set aside before goes now: `check` is called at each
    entry, and may raise.
    """
    if os.path.lexists(run.work):
        aside = run.work.with_name(rundirs.STALE_PREFIX + WORK)
        remove_checked(aside.parent, aside.name, check=check)
        run.work.rename(aside)


def exists(job: Path) -> bool:
    """Returns whether the folder of a job has a working folder."""
    return os.path.lexists(job / WORK)


def withdraw(job: Path, name: str) -> None:
    """Renames the working folder in the folder of a job, and removes what was noted of it. Raises OSError."""
    run = RunDir(job / "1")
    run.work_record.unlink(missing_ok=True)
    run.came.unlink(missing_ok=True)
    run.work.rename(job / name)


def trim(run: RunDir, tree: Path) -> None:
    """Removes what came with the code, which is in `tree` still, and has not changed. Follows no link of the job.

    Raises OSError.
    """
    record = record_of(run)
    if record is None:
        return
    write_record(run.work_record, replace(record, trimmed=True))
    for folder, _, files in os.walk(tree, topdown=False):
        parts = Path(folder).relative_to(tree).parts
        with suppress(OSError):  # the job has removed or closed it, or put a link there
            with folder_inside(run.work, *parts) as opened:
                for name in files:
                    _remove_unchanged(opened, name, like=Path(folder, name), came_ns=record.came_ns)
            if parts:
                with folder_inside(run.work, *parts[:-1]) as parent:
                    os.rmdir(parts[-1], dir_fd=parent)


def _remove_unchanged(folder: int, name: str, *, like: Path, came_ns: int) -> None:
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_size != like.stat().st_size or status.st_mtime_ns > came_ns:
            return
        # Programs set the time of a file's content, such as `cp -p`; that of its status only the kernel does.
        if status.st_ctime_ns <= came_ns or _has_content_of(like, folder, name):
            os.unlink(name, dir_fd=folder)


def _has_content_of(like: Path, folder: int, name: str) -> bool:
    with suppress(OSError):  # the job has closed it, or put something else there
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as own, like.open("rb") as code:
            while (chunk := code.read(_CHUNK)) == own.read(_CHUNK):
                if not chunk:
                    return True
    return False


def remove_unfinished(run: RunDir, *, check: Callable[[], object]) -> None:
    """Removes what a killed worker has left of folders and records that were never whole, as far as possible.

    `check` is called at each entry, and may raise.
    """
    prefixes = (FRESH_PREFIX, f".{run.came.name}.")
    with suppress(OSError):
        for name in os.listdir(run.root.parent):  # noqa: PTH208 names alone
            if name.startswith(prefixes):
                remove_checked(run.root.parent, name, check=check)
