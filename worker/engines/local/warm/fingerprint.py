"""What a warm process was made of: when it changes, a new one is needed."""

from collections.abc import Iterator, Mapping
import hashlib
import os
from pathlib import Path
import sys

_ROOT = Path(__file__).parents[4]
_PACKAGES = ("torchyard", "worker", "trainer")


def fingerprint(env: Mapping[str, str]) -> str:
    """Of the code of ours that a warm process imports, of what is installed beside it, and of its environment.

    Files count by size and time, installed packages by the folders that name them. About a millisecond.
    """
    found = hashlib.sha256(repr((sys.executable, sorted(env.items()))).encode())
    for path in sys.path:
        found.update(_stamp(path))
    found.update(_stamp(_ROOT / "requirements.lock"))
    for package in _PACKAGES:
        for path in _sources(_ROOT / package):
            found.update(_stamp(path))
    return found.hexdigest()


def _sources(folder: Path | str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path


def _stamp(path: Path | str) -> bytes:
    try:
        found = Path(path).stat()
    except OSError:
        return f"{path} is absent\n".encode()
    return f"{path} {found.st_size} {found.st_mtime_ns}\n".encode()
