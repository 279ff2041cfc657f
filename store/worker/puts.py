"""Blobs that a worker has put and that no row names yet: meanwhile, none is removed."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count

from store.blobs.folder import BlobFolder
from store.worker.records import BlobWriter, Put


class Puts:
    """Threads may share it."""

    def __init__(self, blobs: BlobFolder) -> None:
        self._blobs = blobs
        self._numbers = count(1)
        self._locks: dict[int, AbstractContextManager[None]] = {}
        """The lock that keeps the blobs of each number."""

    def put(self, blobs: Sequence[BlobWriter]) -> Put:
        """Gives the blobs their names, under a lock that `drop` releases. Raises OSError."""
        if not blobs:
            return Put(0)
        lock = self._blobs.shared_lock()
        lock.__enter__()
        put = Put(next(self._numbers))
        self._locks[put.number] = lock
        try:
            self._blobs.publish_all(blobs)
        except BaseException:
            self.drop(put)
            raise
        return put

    def drop(self, put: Put) -> None:
        """Releases the lock."""
        if put.number:
            self._locks.pop(put.number).__exit__(None, None, None)
