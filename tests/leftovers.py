"""What a hostile or careless attempt can leave on a disk."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path
import socket
import tempfile

from worker.host.untrusted import remove_inside

NOBODY = 65534
LEVELS = 120
"""Of folders in folders whose path is longer than the longest that the system takes."""
_NAME = "d" * 40


def leave_everything(folder: Path, *, outside: Path) -> None:
    """Leaves a deep tree, odd names, pipes, sockets and links to `outside` in `folder`, and locks all that it can."""
    folder.mkdir(parents=True, exist_ok=True)
    outside.mkdir(parents=True)
    (outside / "kept").write_text("kept")
    leave_depth(folder, LEVELS)
    _leave_odd(folder, outside)
    _leave_locked(folder)


def leave_depth(folder: Path, levels: int) -> None:
    """Leaves folders in folders, beyond the longest path, and 1 MiB in the innermost."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(_NAME, dir_fd=inner)
        outer, inner = inner, os.open(_NAME, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=inner)
    os.write(file, os.urandom(1 << 20))
    os.fsync(file)
    os.close(file)
    os.close(inner)


@contextmanager
def as_nobody() -> Generator[Path]:
    """Yields a new folder. Root takes the effective user nobody meanwhile, since no mode keeps root out."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # nobody cannot enter tmp_path
    root = not os.getuid()
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        remove_inside(folder.parent, folder.name)


def _leave_odd(folder: Path, outside: Path) -> None:
    (folder / os.fsdecode(b"\xff" * 255)).mkdir()
    (folder / os.fsdecode(b"\xff\n -rf")).write_text("")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/socket")  # the whole path may be too long for a socket
        os.close(here)
    (folder / "folder link").symlink_to(outside)
    (folder / "file link").symlink_to(outside / "kept")
    (folder / "nowhere").symlink_to("x" * 4000)
    (folder / "second name").hardlink_to(outside / "kept")


def _leave_locked(folder: Path) -> None:
    inner = folder / "locked" / "inner" / "innermost"
    inner.mkdir(parents=True)
    (inner / "file").write_text("")
    for path, mode in ((inner / "file", 0), (inner, 0), (inner.parent, 0o555), (inner.parent.parent, 0), (folder, 0)):
        path.chmod(mode)
