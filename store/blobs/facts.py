"""What a worker does with blobs: immutable files named by their sha256."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
import shutil
from typing import BinaryIO, ClassVar, Protocol, Self

from store.blobs.writer import Blob, BlobWriter
from torchyard.contract.errors import DataError


@dataclass(frozen=True)
class DiskSpace:
    """Bytes of a disk."""

    total: int
    free: int

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Returns the space of the folder's disk. Raises OSError."""
        usage = shutil.disk_usage(folder)
        return cls(total=usage.total, free=usage.free)


@dataclass(frozen=True, slots=True)
class Put:
    """Blobs that were put together, and that no row names yet."""

    blobs: frozenset[str] = frozenset()
    """Their digests."""
    began_at: int = 0
    """The database's time before they got their names; 0 where the service gives them these."""


class RefusedBlob(DataError):
    """A file that was lent is not what it should be."""

    def __init__(self, blob: Blob, message: str) -> None:
        super().__init__(message)
        self.blob = blob


class BlobStore(Protocol):
    """Where a worker has its blobs: the service's folder, or, on another host, what reaches it. Threads may share it.

    Each call may raise OSError, which passes once the store can be reached again.
    """

    travel: ClassVar[bool]
    """Whether blobs are put into the store over a network, which may take hours. Then it takes files that are lent."""

    def create(self, *, beside: Callable[[bytes], object] | None = None) -> BlobWriter:
        """Returns a writer of a new blob, which is put into the store later. `beside` gets all bytes of it."""
        ...

    def open(self, sha256: str) -> BinaryIO:
        """Opens a blob, a file of this host, for reading. Raises NotFound."""
        ...

    def copy_out(self, sha256: str, target: Path, *, check: Callable[[], object] = lambda: None) -> bool:
        """Copies a blob to `target`, a new file. Returns False and leaves no file if it is missing or damaged.

        `check` is called again and again meanwhile, and may raise to end the copy.
        """
        ...

    def disk_space(self) -> DiskSpace:
        """Returns the total and free bytes of the disk on which blobs are written."""
        ...
