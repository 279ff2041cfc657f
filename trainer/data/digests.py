"""Identifies a source and its split by SHA-256 hex digests, which are the same on every machine."""

from collections.abc import Iterable, Mapping
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchyard.contract.errors import DataError


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Returns the digest of the arrays' names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def listing_digest(root: Path, files: Iterable[Path]) -> str:
    """Returns the digest of the files' names below `root` and their sizes. Raises DataError."""
    return _lines_digest(f"{_name(root, file)}\0{_size(file)}" for file in sorted(files))


def split_digest(train: Iterable[str], val: Iterable[str]) -> str:
    """Returns the digest of the samples' names, each with its split."""
    return _lines_digest(sorted([f"{name}\0train" for name in train] + [f"{name}\0val" for name in val]))


def _lines_digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _name(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
