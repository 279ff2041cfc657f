"""A small disk of its own, which can be filled to its last byte."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import errno
import os
from pathlib import Path
import shutil
import subprocess


class Disk:
    """A tmpfs at `folder` where mounting is allowed (`mounted`), else a plain folder that is never filled."""

    def __init__(self, folder: Path, *, size: int) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir(exist_ok=True)
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "torchyard-chaos", str(folder)]
        self.mounted = (
            shutil.which("mount") is not None and subprocess.run(argv, capture_output=True, check=False).returncode == 0
        )

    def fill(self) -> None:
        """Takes all that is free. Does nothing where it is the disk of others, too."""
        if not self.mounted:
            return
        with self._ballast.open("ab") as file:
            while free := _free(self.folder):
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # Somebody else took some of it meanwhile.

    def empty(self) -> None:
        """Gives back what `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Takes the disk away, and what is on it."""
        self.empty()
        if self.mounted:
            for flags in ((), ("--lazy",)):
                if (
                    subprocess.run(["umount", *flags, str(self.folder)], capture_output=True, check=False).returncode
                    == 0
                ):
                    break
        with suppress(OSError):
            shutil.rmtree(self.folder)


@contextmanager
def disk(folder: Path, *, size: int) -> Generator[Disk]:
    made = Disk(folder, size=size)
    try:
        yield made
    finally:
        made.close()


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
