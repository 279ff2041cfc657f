"""Blobs of a worker that has joined."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from store.blobs.facts import DiskSpace
from store.worker.records import BlobWriter

NOT_STORED = "this version moves no files between the service and workers that have joined"


class NoBlobs:
    """A `store.blobs.facts.BlobStore` that refuses all."""

    def create(self, *, beside: Callable[[bytes], object] | None = None) -> BlobWriter:
        raise OSError(NOT_STORED)

    def open(self, sha256: str) -> BinaryIO:
        raise OSError(NOT_STORED)

    def copy_out(self, sha256: str, target: Path, *, check: Callable[[], object] = lambda: None) -> bool:
        raise OSError(NOT_STORED)

    def disk_space(self) -> DiskSpace:
        raise OSError(NOT_STORED)
