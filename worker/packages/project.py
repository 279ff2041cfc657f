"""The code of a job as a project that is installed: copied for its build, which may write beside its sources."""

from collections.abc import Iterator
import hashlib
import os
from pathlib import Path
import shutil

from torchyard.contract.errors import DataError

CODE = "code"
"""The name of the copy in the folder where is built."""
MOST_FILES = 20_000
MOST_BYTES = 256 << 20


def digest_of(code: Path) -> str:
    """Returns what changes with the files of the code, as hexadecimal digits. Raises DataError for too many of them."""
    digest = hashlib.sha256()
    for name, status in _files(code):
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def copy(code: Path, target: Path) -> None:
    """Copies the code, links as links. Raises OSError."""
    shutil.copytree(code, target, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    for folder, _, files in os.walk(target):
        for name in (".", *files):
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o600)


def _files(code: Path) -> Iterator[tuple[str, os.stat_result]]:
    total = 0
    count = 0
    for folder, folders, files in os.walk(code):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)  # noqa: PTH118 thousands of them
            status = os.lstat(path)
            total, count = total + status.st_size, count + 1
            if count > MOST_FILES or total > MOST_BYTES:
                raise DataError(
                    f"the code is too large to be installed: at most {MOST_FILES} files and {MOST_BYTES >> 20} MiB"
                )
            yield os.path.relpath(path, code), status
