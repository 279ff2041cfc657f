"""The working folders of jobs on this host: which attempt used one last, and moving one aside.

Nothing here follows a link that a job has made: the folder of the job, in which its working folder lies, is the
service's own.
"""

from collections.abc import Collection
from dataclasses import dataclass
import os
from typing import Annotated
import uuid

from torchyard.contract.codec import Record, between
from torchyard.contract.rundir import WORK, RunDir
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import sync_folder, write_record
from torchyard.host.untrusted import read_untrusted
from worker.host import rundirs
from worker.host.untrusted import make_accessible, remove_inside

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


def record_of(run: RunDir) -> WorkRecord | None:
    """Returns the record of the job's working folder; None if there is no whole one."""
    found = read_untrusted(run.work_record, WorkRecord)
    return found if found is not None and os.path.isdir(run.work) and not os.path.islink(run.work) else None  # noqa: PTH112, PTH114 neither may raise


def came_ns(run: RunDir) -> int:
    """Returns when all was there that came with the code; 0 for a job without a working folder."""
    found = read_untrusted(run.work_record, WorkRecord)
    return 0 if found is None else found.came_ns


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


def set_aside(run: RunDir) -> None:
    """Renames what lies at the folder's place, so that another one can be made. Raises OSError.

    The sweep removes it after the same time as an orphan.
    """
    if os.path.lexists(run.work):
        aside = run.work.with_name(rundirs.STALE_PREFIX + WORK)
        remove_inside(aside.parent, aside.name)
        run.work.rename(aside)


def remove_unfinished(run: RunDir, *, keep: Collection[str] = ()) -> None:
    """Removes folders that were never whole, as far as possible."""
    for name in rundirs.folders(run.root.parent.parent, run.root.parent.name):
        if name.startswith(FRESH_PREFIX) and name not in keep:
            remove_inside(run.root.parent, name)
