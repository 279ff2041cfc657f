"""Identifies a source and its split by SHA-256 hex digests, which are the same on every machine."""

from collections.abc import Iterable, Mapping
import hashlib
import os
from pathlib import Path
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchyard.contract.errors import DataError
from trainer.data.hashing import SETTLED_NS, identity_of


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Returns the digest of the arrays' names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def listing_digest(root: Path, files: Iterable[Path]) -> str:
    """Returns the digest of the files' names below `root` and their sizes. Raises DataError."""
    return _lines_digest(f"{file.relative_to(root).as_posix()}\0{_status(file).st_size}" for file in sorted(files))


def listing_digests(root: Path, names: Iterable[str]) -> tuple[str, str | None]:
    """Returns `listing_digest` of the files with these names below `root`, and a digest that changes with any content.

    The second one is of the files' inodes and times. It is None if a file was changed so recently that it may change
    again without another time. Raises DataError.
    """
    lines: list[str] = []
    stamps: list[str] = []
    newest = 0
    for name in sorted(names, key=lambda name: name.split("/")):  # as paths are sorted
        status = _status(root / name)
        lines.append(f"{name}\0{status.st_size}")
        stamps.append(f"{name}\0{identity_of(status)}")
        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
    settled = newest < time.time_ns() - SETTLED_NS
    return _lines_digest(lines), _lines_digest(stamps) if settled else None


def split_digest(train: Iterable[str], val: Iterable[str]) -> str:
    """Returns the digest of the samples' names, each with its split."""
    return _lines_digest(sorted([f"{name}\0train" for name in train] + [f"{name}\0val" for name in val]))


def _lines_digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _status(file: Path) -> os.stat_result:
    try:
        return file.stat()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
