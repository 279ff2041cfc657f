"""Fingerprints the code and the packages of a warm process: when they change, a new process is needed."""

from collections.abc import Iterator, Mapping
import hashlib
import os
from pathlib import Path
import sys

ROOT = Path(__file__).parents[4]
_PACKAGES = ("torchyard", "worker", "trainer")
_PACKAGE_SUFFIXES = (".dist-info", ".egg-info", ".pth")


def fingerprint(env: Mapping[str, str]) -> str:
    """Returns a digest of our code that a warm process imports, of the installed packages, and of its environment.

    Files are represented by size and modification time, packages by the folders that name their versions. This takes a
    few milliseconds.
    """
    parts = (sys.executable, sys.path, sorted(env.items()), list(_stamps()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _stamps() -> Iterator[tuple[object, ...]]:
    for folder in sys.path:  # the folder's own time also changes with the first bytecode
        yield from (_stamp(entry) for entry in _entries(folder) if entry.name.endswith(_PACKAGE_SUFFIXES))
    yield from (_stamp(entry) for entry in _entries(ROOT) if entry.name == "requirements.lock")
    for package in _PACKAGES:
        yield from _sources(ROOT / package)


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
        status = entry.stat()
    except OSError:
        return (entry.path, None)
    return (entry.path, status.st_size, status.st_mtime_ns)
