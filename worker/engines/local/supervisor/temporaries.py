"""What a program writes to the temporary folder of its attempt, which it sees as `/tmp`.

It goes on with the job: at the end of an attempt it is moved to FROM_TMP in the working folder. What is there, the next
attempt finds in `/tmp`, on another host too as far as it was kept. Where that cannot be, the owner is notified.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
import os
from pathlib import Path
import re
import stat
import sys
import uuid

from torchyard.contract.attempts.records import LaunchPlan, Sandbox
from torchyard.contract.attempts.rundir import FROM_TMP, RunDir
from torchyard.contract.wire.text import printable
from torchyard.host import terminal
from torchyard.host.untrusted import folder_inside
from worker.engines.local.supervisor.ending import log, tell_owner
from worker.host.untrusted import make_accessible, remove_inside, walk_status

_SCRATCH = re.compile(
    r"tmp[a-z0-9_]{8}(\..*)?|(pymp|torchelastic|torchinductor|triton|nccl|cuda|ompi|openmpi|pmix|pip|uv|hsperfdata"
    r"|matplotlib)[-_.].*|ray|MIOpen.*|\.(X11|ICE)-unix|\.tensorboard-info|\.cache|__pycache__"
)
"""The names of what libraries leave, which nobody misses."""
_MOST_ENTRIES = 100_000
"""Files and folders that are counted."""
_MOST_NAMED = 5
_TMP = "/tmp"  # noqa: S108 its own
_LONGEST = 100
"""Characters of a name that are shown."""
_STORE = b"refcount"
"""The first key of a file by which the ranks of a process group meet: one that is left would stop the next attempt."""


@dataclass
class _Left:
    """A file or folder at the top of the temporary folder."""

    name: str
    is_folder: bool
    files: int = 0
    size: int = 0

    def describe(self, folder: str) -> str:
        count = f"{self.files} file{'' if self.files == 1 else 's'}, " if self.is_folder else ""
        shown = printable(os.fsencode(self.name).decode(errors="replace"))[:_LONGEST]
        return f"{folder}/{shown}{'/' if self.is_folder else ''} ({count}{terminal.size(self.size)})"


def begin(run: RunDir, plan: LaunchPlan) -> None:
    """Gives the attempt, of which nothing runs yet, what the one before has left in its temporary folder."""
    if plan.sandbox is None or not _is_of_first_node(plan):
        return
    folder = Path(plan.sandbox.temporary)
    with suppress(OSError), folder_inside(run.work) as work, folder_inside(folder.parent) as parent:
        make_accessible(run.work, FROM_TMP)
        os.rename(FROM_TMP, folder.name, src_dir_fd=work, dst_dir_fd=parent)  # over an empty folder
        _clear_places(run, plan.sandbox, folder)


def end(run: RunDir, plan: LaunchPlan) -> None:
    """Moves what the processes, which have ended, left in the temporary folder to the working folder.

    Removes it where nothing is of note, or it cannot be moved.
    """
    if plan.sandbox is None:
        return
    folder = Path(plan.sandbox.temporary)
    _remove_places(run, plan.sandbox, folder)
    if left := _left_in(folder):
        shown = _shown_at(plan.sandbox)
        named = ", ".join(each.describe(shown) for each in left[:_MOST_NAMED])
        named += f", and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        moved = _move(run, folder, attempt=plan.attempt) if _is_of_first_node(plan) else None
        if moved is not None:
            text = f"{named} {'is' if len(left) == 1 else 'are'} in the working folder now, in {moved}/"
            tell_owner(run, plan, text, level="info")
            return
        tell_owner(run, plan, f"not kept: {named}: write to the working folder, or to $TORCHYARD_RUN_DIR")
    remove_inside(folder.parent, folder.name)


def _clear_places(run: RunDir, sandbox: Sandbox, folder: Path) -> None:
    """Sets aside what a program has left where something will be mounted: a link would lead the mount elsewhere."""
    with folder_inside(folder) as opened:
        for name in _places_of_mounts(run, sandbox):
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode):
                    os.rename(name, f"{name}.{uuid.uuid4()}", src_dir_fd=opened, dst_dir_fd=opened)


def _remove_places(run: RunDir, sandbox: Sandbox, folder: Path) -> None:
    with suppress(OSError), folder_inside(folder) as opened:
        for name in _places_of_mounts(run, sandbox):
            with suppress(OSError):  # the program has left something there
                os.rmdir(name, dir_fd=opened)


def _places_of_mounts(run: RunDir, sandbox: Sandbox) -> set[str]:
    """Returns the names in the temporary folder below which an attempt finds what else it may see."""
    folders = sandbox.temporary_at or ([_TMP] if sandbox.strict is not None else [])
    named = (*sandbox.readable, *sandbox.writable, *sandbox.shown, str(run.root), sys.prefix, sys.base_prefix)
    return {path.removeprefix(f"{at}/").split("/")[0] for at in folders for path in named if path.startswith(f"{at}/")}


def _left_in(folder: Path) -> list[_Left]:
    """Returns what is of note, the largest first. Removes what would stop the next attempt, and what nobody misses."""
    left_over: list[_Left] = []
    counted = 0
    try:
        make_accessible(folder.parent, folder.name)
        with folder_inside(folder) as opened, os.scandir(opened) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                left = _look(folder, opened, entry.name, most=max(1, _MOST_ENTRIES - counted))
                if left is None:
                    remove_inside(folder, entry.name)
                elif left.size:
                    counted += left.files
                    left_over.append(left)
    except FileNotFoundError:
        return []
    except OSError as error:
        log(f"{folder} cannot be read: {error}")
    return sorted(left_over, key=lambda each: (-each.size, each.name))


def _look(folder: Path, opened: int, name: str, *, most: int) -> _Left | None:
    """Returns what lies under a name; None if nobody misses it. Of more than `most` files, counts no more."""
    if _SCRATCH.fullmatch(name):
        return None
    status = os.stat(name, dir_fd=opened, follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        return None if _is_store(opened, name) else _Left(name, is_folder=False, files=1, size=status.st_size)
    if not stat.S_ISDIR(status.st_mode):
        return None
    left = _Left(name, is_folder=True)
    for below in walk_status(folder / name, unlock=True):
        if stat.S_ISREG(below.st_mode):
            left.files += 1
            left.size += below.st_size
        if left.files >= most:
            break
    return left


def _is_store(folder: int, name: str) -> bool:
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            return os.read(descriptor, 4 + len(_STORE))[4:] == _STORE
        finally:
            os.close(descriptor)
    return False


def _move(run: RunDir, folder: Path, *, attempt: int) -> str | None:
    """Returns the name in the working folder, or None if there is no such folder on the same disk."""
    for name in (FROM_TMP, f"{FROM_TMP}-{attempt}"):  # the program may have made one
        try:
            with folder_inside(run.work) as work, folder_inside(folder.parent) as parent:
                os.rename(folder.name, name, src_dir_fd=parent, dst_dir_fd=work)
        except OSError as error:
            log(f"{folder} cannot be moved to {name}: {error}")
        else:
            return name
    return None


def _is_of_first_node(plan: LaunchPlan) -> bool:
    return 0 in plan.ranks


def _shown_at(sandbox: Sandbox) -> str:
    """Returns the path by which the program knows the folder."""
    if sandbox.strict is not None:
        return _TMP
    return sandbox.temporary_at[0] if sandbox.temporary_at else "$TMPDIR"
