"""A small disk that can be filled completely."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import os
from pathlib import Path
import shutil
import subprocess


class Disk:
    """A tmpfs of `size` bytes at `folder` if mounting is allowed (`mounted`), else a plain folder, never full."""

    def __init__(self, folder: Path, *, size: int) -> None:
        self.folder = folder
        self._size = size
        folder.mkdir(exist_ok=True)
        self.mounted = shutil.which("mount") is not None and self._mount(f"size={size},mode=755")

    def fill(self) -> None:
        """Leaves no byte free. Does nothing without a disk of its own."""
        # Concurrent writes make the mount refuse a size that has become too small.
        while self.mounted and not self._mount(f"remount,size={_used(self.folder)}"):
            pass

    def empty(self) -> None:
        """Restores the size."""
        if self.mounted:
            self._mount(f"remount,size={self._size}")

    def close(self) -> None:
        """Removes the disk and its contents."""
        if self.mounted:
            for flags in ((), ("--lazy",)):
                if _succeeds("umount", *flags, str(self.folder)):
                    break
        with suppress(OSError):
            shutil.rmtree(self.folder)

    def _mount(self, options: str) -> bool:
        return _succeeds("mount", "-t", "tmpfs", "-o", options, "torchyard-chaos", str(self.folder))


@contextmanager
def disk(folder: Path, *, size: int) -> Generator[Disk]:
    made = Disk(folder, size=size)
    try:
        yield made
    finally:
        made.close()


def _used(folder: Path) -> int:
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
