"""Copies a folder that a job has filled: `python -P -m worker.bundles.foldercopy SOURCE TARGET`, TARGET being new.

Whoever filled it may be hostile. So this process may read the source and write the target alone, where the kernel has
Landlock. It follows no link: links stay links, and names of one file stay names of one file. Holes stay holes, and
blocks are shared where the file system can do that. Pipes, sockets and devices go, and so do set-uid bits. It prints a
`CopyReport`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
import errno
import fcntl
import os
from pathlib import Path
import resource
import signal
import stat
import subprocess
import sys
import time

from torchyard.contract.wire.codec import Record
from torchyard.host import failpoints
from torchyard.host.failpoints import failpoint
from torchyard.host.parent import end_with_parent
from worker.bundles.copying import FICLONE, NO_CLONES
from worker.host.untrusted import make_accessible
from worker.sandbox import landlock, privileges
from worker.sandbox.opening import canonical

LONGEST_S = 3600.0
"""What takes longer is given up."""
_POLL_S = 0.05
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 24
_MOST_LINKED, _DEEPEST_LINKED = 1_000_000, 100
"""Files with several names that are remembered, and how deep. Others become files of their own."""
MEMORY_BYTES = 1 << 30
"""Memory of the process that copies, most of which are names."""
_CLOSED = {errno.EACCES, errno.EPERM}

Check = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class CopyReport(Record):
    """How the copy ended."""

    files: int = 0
    left_out: int = 0
    """Pipes, sockets, devices, and what this user may not read."""
    error: int = 0
    """The `errno` of the system's error that ended it; 0: the copy is whole."""


class TooLong(Exception):
    """The copy takes longer than it may."""


def copy_folder(source: Path, target: Path, *, check: Check = lambda: None) -> CopyReport:
    """Has a child copy `source` to the new folder `target`. `check` is called meanwhile, and may raise to end it.

    Raises TooLong, OSError, and what `check` raises. What is copied by then stays.
    """
    make_accessible(source.parent, source.name)
    target.mkdir(mode=0o700)
    command = [sys.executable, "-P", "-m", "worker.bundles.foldercopy", str(source.absolute()), str(target.absolute())]
    armed = {name: value for name, value in os.environ.items() if name == failpoints.VARIABLE}
    deadline = time.monotonic() + LONGEST_S
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=armed) as child:
        try:
            while (output := _output_of(child)) is None:
                check()
                if time.monotonic() > deadline:
                    raise TooLong(f"the copy of a folder takes more than {LONGEST_S / 60:.0f} minutes")
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise OSError(errno.EIO, f"the process that copies a folder ended with {child.returncode}", str(source))
    report = CopyReport.from_json(output)
    if report.error:
        raise OSError(report.error, os.strerror(report.error), str(target))
    return report


def main() -> None:
    """Copies, and prints the report. Raises OSError if this process cannot be confined."""
    source, target = canonical(Path(sys.argv[1])), canonical(Path(sys.argv[2]))
    end_with_parent(signal.SIGKILL)  # a worker that is killed leaves nobody who writes
    os.umask(0o077)
    privileges.drop()
    privileges.limit_resources()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if landlock.abi():
        landlock.restrict([(source, landlock.READ), (target, landlock.WRITE)])
    copier = Copier()
    try:
        copier.copy(source, target)
        report = CopyReport(files=copier.files, left_out=copier.left_out)
    except MemoryError:
        report = CopyReport(error=errno.ENOMEM)
    except OSError as error:
        report = CopyReport(error=error.errno or errno.EIO)
    os.write(1, report.to_json().encode())


@dataclass
class _Level:
    """A folder whose entries are being copied."""

    names: list[str]
    """Of the folders in it that are left."""
    identity: tuple[int, int]
    status: os.stat_result


@dataclass
class Copier:
    """Walks down and up again with two descriptors, so that no depth needs more."""

    files: int = 0
    left_out: int = 0
    _linked: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    _root: int = -1
    _path: list[str] = field(default_factory=list[str])
    """The names of the folder that is copied now."""

    def copy(self, source: str, target: str) -> None:
        """Raises OSError."""
        here, there = os.open(source, _FOLDER), os.open(target, _FOLDER)
        self._root = os.dup(there)
        levels = [self._enter(here, there, os.fstat(here))]
        while levels:
            level = levels[-1]
            if level.names:
                name = level.names.pop()
                inner = self._open_folder(here, name)
                if inner is None:
                    continue
                os.mkdir(name, 0o700, dir_fd=there)
                below = os.open(name, _FOLDER, dir_fd=there)
                os.close(here)
                os.close(there)
                here, there = inner, below
                self._path.append(name)
                levels.append(self._enter(here, there, os.fstat(here)))
                continue
            levels.pop()
            done = there
            if levels:
                self._path.pop()
                here, there = _up(here), os.open("..", _FOLDER, dir_fd=there)
                if _identity(os.fstat(here)) != levels[-1].identity:
                    raise OSError(errno.ESTALE, "the folder was moved while it was copied")
            _set_status(done, level.status)  # it may close the folder
            os.close(done)

    def _enter(self, here: int, there: int, status: os.stat_result) -> _Level:
        """Copies what is in a folder but folders, whose names it returns."""
        folders: list[str] = []
        with os.scandir(here) as entries:
            for entry in entries:
                listed = os.stat(entry.name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISDIR(listed.st_mode):
                    folders.append(entry.name)
                elif stat.S_ISLNK(listed.st_mode):
                    os.symlink(os.readlink(entry.name, dir_fd=here), entry.name, dir_fd=there)
                elif stat.S_ISREG(listed.st_mode):
                    self._copy_file(here, there, entry.name, listed)
                else:
                    self.left_out += 1
        return _Level(folders, _identity(status), status)

    def _copy_file(self, here: int, there: int, name: str, listed: os.stat_result) -> None:
        known = self._linked.get(_identity(listed)) if listed.st_nlink > 1 else None
        if known is not None and self._link(known, there, name):
            return
        reading = _opened(here, name, _FILE, stat.S_IRUSR)
        if reading is None:
            self.left_out += 1
            return
        try:
            status = os.fstat(reading)
            if not stat.S_ISREG(status.st_mode):
                self.left_out += 1
                return
            writing = os.open(name, _NEW, 0o600, dir_fd=there)
            try:
                _clone(reading, writing, status.st_size)
                _set_status(writing, listed)
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        self.files += 1
        failpoint("folder.copy")
        if listed.st_nlink > 1 and len(self._linked) < _MOST_LINKED and len(self._path) < _DEEPEST_LINKED:
            self._linked[_identity(listed)] = "/".join((*self._path, name))

    def _link(self, known: str, there: int, name: str) -> bool:
        try:
            os.link(known, name, src_dir_fd=self._root, dst_dir_fd=there, follow_symlinks=False)
        except OSError as error:
            if error.errno in {errno.ENAMETOOLONG, errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EACCES}:
                return False
            raise
        return True

    def _open_folder(self, here: int, name: str) -> int | None:
        descriptor = _opened(here, name, _FOLDER, stat.S_IRWXU)
        if descriptor is None:
            self.left_out += 1
        return descriptor


def _opened(folder: int, name: str, flags: int, needed: int) -> int | None:
    """Opens an entry, which its owner may have closed. Returns None if this user may not."""
    try:
        opened = os.open(name, flags, dir_fd=folder)
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            os.stat(".", dir_fd=opened)
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
    else:
        return opened
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        os.chmod(f"/proc/self/fd/{handle}", mode | needed)  # noqa: PTH101 exactly this entry
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in _CLOSED | {errno.ENOENT}:
            raise
        return None
    finally:
        os.close(handle)


def _clone(reading: int, writing: int, size: int) -> None:
    try:
        fcntl.ioctl(writing, FICLONE, reading)
    except OSError as error:
        if error.errno not in NO_CLONES:
            raise
        _copy_data(reading, writing, size)


def _copy_data(reading: int, writing: int, size: int) -> None:
    """Copies what is no hole, up to `size`: a file that grows or shrinks meanwhile ends there."""
    os.ftruncate(writing, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(reading, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no more data
                return
            raise
        end = min(os.lseek(reading, at, os.SEEK_HOLE), size)
        os.lseek(writing, at, os.SEEK_SET)
        os.lseek(reading, at, os.SEEK_SET)
        while at < end:
            copied = os.sendfile(writing, reading, None, min(_CHUNK, end - at))
            if not copied:
                return
            at += copied


def _set_status(descriptor: int, like: os.stat_result) -> None:
    os.fchmod(descriptor, like.st_mode & 0o777)
    os.utime(descriptor, ns=(like.st_atime_ns, like.st_mtime_ns))


def _up(folder: int) -> int:
    above = os.open("..", _FOLDER, dir_fd=folder)
    os.close(folder)
    return above


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _output_of(child: "subprocess.Popen[bytes]") -> bytes | None:
    """Returns what the child has written, or None if it has not ended after a moment."""
    try:
        return child.communicate(timeout=_POLL_S)[0]
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    main()
