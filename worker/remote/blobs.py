"""The blobs of a remote worker: written and read on this host, and moved over HTTPS, on where a connection was cut."""

from collections.abc import Callable, Iterator, Sequence
import errno
import logging
import os
from pathlib import Path
import threading
import time
from typing import Any, BinaryIO, ClassVar
from uuid import uuid4

import httpx2

from store.blobs.facts import DiskSpace, Put, RefusedBlob
from store.blobs.writer import BlobWriter, FinishedBlob, write_all
from torchyard.contract.errors import DataError, InvalidRequest, NotFound, StaleClaim
from worker.remote.cache import BlobCache

PART_BYTES = 32 << 20
"""Bytes of one request. A proxy may store a request before it passes it on, or end one after a minute."""
_READ_BYTES = 1 << 18
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_PATIENCE_S = 300.0
"""How long nothing may arrive before a transfer is given up. Who has asked for it tries again."""

logger = logging.getLogger(__name__)


class Away(OSError):
    """The service does not answer, or cannot store or send anything now."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.ESTALE, what)


class RemoteBlobs:
    """The blobs of the service. Threads may share it. `http`: has the address and the token of this worker.

    `root`: a folder of this host, of this daemon alone.
    """

    travel: ClassVar[bool] = True

    def __init__(self, root: Path, http: httpx2.Client, *, cache_bytes: int, patience_s: float = _PATIENCE_S) -> None:
        """Removes what an earlier daemon has left unfinished. `cache_bytes`: what downloads take. Raises OSError."""
        self._outgoing = root / "outgoing"
        self._outgoing.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._outgoing.iterdir():
            path.unlink()
        self._http = http
        self._patience_s = patience_s
        self._leaving = threading.Event()
        self._cache = BlobCache(root / "cache", self._download, most_bytes=cache_bytes)

    def close(self) -> None:
        """Has each transfer end with an OSError."""
        self._leaving.set()

    def create(self, *, beside: Callable[[bytes], object] | None = None) -> BlobWriter:
        return BlobWriter(self._outgoing / uuid4().hex, beside, is_durable=False)  # the service's copy is

    def open(self, sha256: str) -> BinaryIO:
        return self._cache.open(sha256)

    def copy_out(self, sha256: str, target: Path, *, check: Callable[[], object] = lambda: None) -> bool:
        return self._cache.copy_out(sha256, target, check=check)

    def disk_space(self) -> DiskSpace:
        return DiskSpace.of(self._outgoing)

    def put(self, job_id: str, blobs: Sequence[FinishedBlob]) -> Put:
        """Uploads finished blobs for a job. They are in the store once a row of the job names them.

        Raises RefusedBlob for a file that was lent and is not what it should be, StaleClaim if the worker does nothing
        for the job, and OSError.
        """
        each_once = {finished.blob: finished for finished in blobs}
        for blob, finished in each_once.items():
            try:
                self._upload(job_id, finished)
            except (DataError, InvalidRequest) as error:
                if isinstance(finished, BlobWriter):
                    raise OSError(errno.EIO, error.message) from error
                raise RefusedBlob(blob, error.message) from error
        return Put(frozenset(blob.sha256 for blob in each_once))

    def _upload(self, job_id: str, finished: FinishedBlob) -> None:
        """Raises DataError or InvalidRequest if the file is not what it should be, and what `put` raises."""
        blob, patience, offset, is_lost = finished.blob, _Patience(self._patience_s, self._leaving), 0, False
        with finished.open() as file:
            while True:
                # Without an answer it is asked what has arrived: connections that break often carry no whole part.
                size = 0 if is_lost else min(PART_BYTES, blob.size - offset)
                try:
                    answer = self._http.put(
                        f"/v1/worker/blobs/{job_id}/{blob.sha256}",
                        params={"size": blob.size, "offset": offset},
                        content=_read(file, offset, size),
                        headers={"Content-Length": str(size), "Content-Type": "application/octet-stream"},
                    )
                    received = _received(answer)
                except (httpx2.TransportError, Away) as error:
                    patience.wait(error)
                    is_lost = True
                    continue
                is_lost = False
                if answer.is_success and received == blob.size:
                    return
                if received > offset:
                    patience.note_progress()
                elif answer.is_error:  # another request goes on with it, or it was removed
                    patience.wait(Away("another request uploads the same file"))
                offset = received

    def _download(self, sha256: str, part: Path, check: Callable[[], object]) -> None:
        """Appends to `part` what it lacks of a blob. Raises NotFound and OSError."""
        patience = _Patience(self._patience_s, self._leaving)
        with part.open("ab", buffering=0) as file:
            while True:
                check()
                try:
                    return self._receive(sha256, file, lambda: (check(), patience.note_progress()))
                except (httpx2.TransportError, Away) as error:
                    patience.wait(error)

    def _receive(self, sha256: str, file: BinaryIO, arrived: Callable[[], object]) -> None:
        offset = os.fstat(file.fileno()).st_size
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        with self._http.stream("GET", f"/v1/worker/blobs/{sha256}", headers=headers) as answer:
            if answer.status_code == 416:  # all of it has arrived
                return
            _check(answer)
            if answer.status_code != 206:
                file.truncate(0)
            for chunk in answer.iter_raw(_READ_BYTES):
                write_all(file, chunk)
                arrived()


class _Patience:
    """Pauses before a transfer is tried again, as long as something arrives now and then."""

    def __init__(self, seconds: float, leaving: threading.Event) -> None:
        self._seconds = seconds
        self._leaving = leaving
        self.note_progress()

    def note_progress(self) -> None:
        self._until = time.monotonic() + self._seconds
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, error: Exception) -> None:
        """Raises Away if nothing has arrived for too long, or the daemon leaves."""
        logger.info("the service cannot be reached, and a transfer waits: %s", error)
        if time.monotonic() >= self._until or self._leaving.wait(self._pause_s):
            raise Away(f"the service cannot be reached: {error}") from error
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)


def _read(file: BinaryIO, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        chunk = os.pread(file.fileno(), min(_READ_BYTES, end - offset), offset)
        if not chunk:
            raise DataError("it has become shorter while it was sent")
        yield chunk
        offset += len(chunk)


def _received(answer: httpx2.Response) -> int:
    """Returns how much of an upload has arrived. Raises StaleClaim, Away for what may pass, and other OSErrors."""
    if answer.status_code == 409 and "received" in (problem := _problem(answer)):
        return int(problem["received"])
    _check(answer)
    return int(answer.json()["received"])


def _check(answer: httpx2.Response) -> None:
    """Raises the error of an answer: NotFound, StaleClaim, InvalidRequest, Away for what may pass, or an OSError."""
    if answer.is_success:
        return
    answer.read()
    problem = _problem(answer)
    detail = str(problem.get("detail", f"the service answers {answer.status_code}"))
    if problem.get("code") == StaleClaim.code:
        raise StaleClaim(detail)
    if problem.get("code") == NotFound.code:
        raise NotFound(detail)
    if problem.get("code") == InvalidRequest.code:
        raise InvalidRequest(detail)
    if answer.status_code == 429 or answer.status_code >= 500:
        raise Away(detail)
    raise OSError(errno.EFBIG if answer.status_code == 413 else errno.EIO, detail)


def _problem(answer: httpx2.Response) -> dict[str, Any]:
    try:
        problem = answer.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
