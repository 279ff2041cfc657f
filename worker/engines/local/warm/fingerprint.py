"""What a warm process was made of: when it changes, a new one is needed."""

from collections.abc import Iterator, Mapping
import hashlib
import os
from pathlib import Path
import sys

_ROOT = Path(__file__).parents[4]
_PACKAGES = ("torchyard", "worker", "trainer")
_INSTALLED = (".dist-info", ".egg-info", ".pth")


def fingerprint(env: Mapping[str, str]) -> str:
    """Of the code of ours that a warm process imports, of what is installed beside it, and of its environment.

    Files count by size and time, installed packages by the folders that name their versions. A few milliseconds.
    """
    found = hashlib.sha256(repr((sys.executable, sys.path, sorted(env.items()))).encode())
    for stamp in _stamps():
        found.update(repr(stamp).encode())
    return found.hexdigest()


def _stamps() -> Iterator[tuple[object, ...]]:
    for folder in sys.path:  # the folder's own time changes with the first bytecode, too
        yield from (_stamp(entry) for entry in _entries(folder) if entry.name.endswith(_INSTALLED))
    yield from (_stamp(entry) for entry in _entries(_ROOT) if entry.name == "requirements.lock")
    for package in _PACKAGES:
        yield from _sources(_ROOT / package)


def _sources(folder: Path | str) -> Iterator[tuple[object, ...]]:
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _sources(entry.path)
        elif entry.name.endswith(".py"):
            yield _stamp(entry)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _stamp(entry: os.DirEntry[str]) -> tuple[object, ...]:
    try:
        found = entry.stat()
    except OSError:
        return (entry.path, None)
    return (entry.path, found.st_size, found.st_mtime_ns)
