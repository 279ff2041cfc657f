"""What remote workers upload: files by worker, job and digest. They are no blobs before a row of the job names them."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
import hashlib
import os
from pathlib import Path
import shutil
import threading
import time

from store.blobs.folder import BlobFolder
from store.blobs.partial import PartialFile, out_of_place
from store.blobs.writer import CHUNK, Blob
from torchyard.contract.errors import InvalidRequest, TooLarge
from torchyard.host.disk import require_free_space
from torchyard.host.failpoints import failpoint

MOST_FILES = 20_000
"""Uploads of one worker at a time. A checkpoint has half as many files."""
MOST_BYTES = 2 << 40
"""Bytes of one worker's uploads at a time."""
_FREE_BYTES = 1 << 30
"""What uploads leave free on the disk."""
_MOST_OPEN = 64
_OPEN_S = 60.0
_EXPIRES_S = 24 * 3600
_PART = ".part"


class WorkerUploads:
    """The uploads of one remote worker. Any number of threads, processes and hosts may share them."""

    def __init__(self, blobs: BlobFolder, worker_id: str) -> None:
        self.worker_id = worker_id
        self._root = blobs.worker_uploads / worker_id

    def open(self, job_id: str, blob: Blob, *, offset: int) -> PartialFile | None:
        """Opens the upload to append from `offset`; a new one where there is none. None if it is whole.

        Raises Conflict if other bytes have arrived than `offset`, TooLarge if the worker has too many uploads, and
        OSError, also if the disk has no room for the rest of all.
        """
        whole = self._file(job_id, blob)
        part = whole.with_name(f"{whole.name}{_PART}")
        received = blob.size if whole.exists() else _size(part)
        if offset != (received or 0):
            raise out_of_place(received or 0)
        if whole.exists():
            return None
        if received is None:
            self._admit(blob.size)
            part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return PartialFile(part, at=offset)

    def find(self, job_id: str, blob: Blob) -> Path | None:
        """Returns the file of an upload that is whole, and was checked. Raises OSError."""
        file = self._file(job_id, blob)
        return file if file.exists() else None

    def remove(self, job_id: str, blobs: Iterable[Blob] | None = None) -> None:
        """Removes these uploads for a job, or all of them. Raises OSError."""
        if blobs is None:
            with suppress(FileNotFoundError):
                shutil.rmtree(self._root / job_id)
            return
        for blob in blobs:
            self._file(job_id, blob).unlink(missing_ok=True)

    def _admit(self, size: int) -> None:
        uploads = [*_uploads_below(self._root)]
        if len(uploads) >= MOST_FILES or size + sum(map(_declared, uploads)) > MOST_BYTES:
            raise TooLarge(f"a worker uploads at most {MOST_FILES} files and {MOST_BYTES} bytes before rows name them")
        unfinished = [path for path in uploads if path.suffix == _PART]
        missing = sum(_declared(path) - (_size(path) or 0) for path in unfinished)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_free_space(self._root, size + missing + _FREE_BYTES)

    def _file(self, job_id: str, blob: Blob) -> Path:
        return self._root / job_id / f"{blob.sha256}.{blob.size}"


class Upload:
    """Appends to an upload, and hashes what it appends. Close it in the end."""

    def __init__(self, file: PartialFile, blob: Blob) -> None:
        self._file = file
        self._blob = blob
        # The digest of what another process has appended is not known here.
        self._digest = None if file.at else hashlib.sha256()
        self.has_ended = False
        """Whether it is whole, or was removed."""
        self._synced = file.at
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def at(self) -> int:
        """Bytes that have arrived."""
        return self._file.at

    def append(self, data: bytes) -> None:
        """Appends bytes. Raises InvalidRequest, and removes the upload, if they are more than its size.

        Raises Conflict and TooManyRequests if another request appends to it, and OSError.
        """
        with self._lock:
            if self.at + len(data) > self._blob.size:
                with self._file.locked():
                    self.path.unlink()
                    self.has_ended = True
                raise InvalidRequest(
                    f"more bytes arrived than `size`, which is {self._blob.size}: the upload was deleted"
                )
            self._file.append(data)
            if self._digest is not None:
                self._digest.update(data)

    def finish(self) -> bool:
        """Makes the upload durable if it is whole, and returns whether it is.

        Raises InvalidRequest, and removes it, if its digest is another one, and what `append` raises.
        """
        with self._lock, self._file.locked():
            if self.at < self._blob.size:
                self._file.begin_sync(self._synced)
                self._synced = self.at
                return False
            self.has_ended = True
            if self._sha256() != self._blob.sha256:
                self.path.unlink()
                raise InvalidRequest(f"the received file does not have the sha256 {self._blob.sha256}: it was deleted")
            failpoint("blob.fsync")
            self._file.sync()
            self.path.rename(self.path.with_name(self.path.name.removesuffix(_PART)))
        return True

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _sha256(self) -> str:
        if self._digest is None:
            self._digest = hashlib.sha256()
            with self.path.open("rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    self._digest.update(chunk)
        return self._digest.hexdigest()


class OpenUploads:
    """Keeps uploads open between the requests that append to them, so that no byte is read again to be hashed.

    An open file is no other one's, whatever its name becomes meanwhile: so a digest belongs to what is in it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[float, Upload]] = OrderedDict()
        """Those that no request has, and since when."""
        self._lock = threading.Lock()

    def begin(self, uploads: WorkerUploads, job_id: str, blob: Blob, *, offset: int) -> Upload | None:
        """Does what `WorkerUploads.open` does. Nobody else has the same object until `end`."""
        file = uploads.open(job_id, blob, offset=offset)
        if file is None:
            return None
        with self._lock:
            _, kept = self._kept.pop(file.path, (0.0, None))
        if kept is not None and kept.at == offset:
            file.close()
            return kept
        if kept is not None:
            kept.close()
        return Upload(file, blob)

    def end(self, upload: Upload) -> None:
        """Closes the upload if it has ended, and keeps it for the next request if not."""
        now, closing = time.monotonic(), list[Upload]()
        with self._lock:
            if upload.has_ended:
                closing.append(upload)
            else:
                _, before = self._kept.pop(upload.path, (0.0, None))
                closing += [] if before is None else [before]
                self._kept[upload.path] = (now, upload)
            # An open file takes its room on the disk, also if it was removed.
            while self._kept and (len(self._kept) > _MOST_OPEN or next(iter(self._kept.values()))[0] < now - _OPEN_S):
                closing.append(self._kept.popitem(last=False)[1][1])
        for each in closing:
            each.close()

    def close(self) -> None:
        with self._lock:
            kept = [*self._kept.values()]
            self._kept.clear()
        for _, upload in kept:
            upload.close()


def remove_abandoned(blobs: BlobFolder) -> None:
    """Removes uploads that have not grown for a day. Raises OSError."""
    before = time.time() - _EXPIRES_S
    for folder in _folders(blobs.worker_uploads):
        for path in _uploads_below(folder):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
        for job in (*_folders(folder), folder):
            with suppress(OSError):  # something is in it
                job.rmdir()


def _uploads_below(folder: Path) -> Iterator[Path]:
    for job in _folders(folder):
        with suppress(FileNotFoundError):
            yield from job.iterdir()


def _folders(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except FileNotFoundError:
        return []


def _declared(path: Path) -> int:
    return int(path.name.split(".")[1])


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
