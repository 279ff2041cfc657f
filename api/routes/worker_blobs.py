"""The blobs of remote workers: uploads in parts, which become blobs when a row names them, and what their jobs name."""

from functools import partial
from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from api.auth.callers import JobId
from api.auth.workers import RegisteredWorker, Sender, is_used_by
from api.openapi.routers import guarded
from api.services import Services, ServicesDep
from api.transfers.blobs import BYTES, spans_asked
from api.transfers.files import FileResponse, Layout, Stored
from api.transfers.permits import permit_worker
from api.transfers.uploads import gathered
from store.attempts import keeping
from store.blobs import named
from store.blobs.partial import disk_errors
from store.blobs.uploads import Upload, WorkerUploads
from store.blobs.writer import Blob
from torchyard.contract.bundles.names import is_digest
from torchyard.contract.errors import NotFound, Unavailable

router = guarded("worker", Unavailable)

_MOST_BLOB_BYTES = 2**53


class Received(BaseModel):
    """How much of an upload has arrived."""

    received: int


async def _sha256(sha256: str) -> str:
    """Raises NotFound if the text is not a digest."""
    if not is_digest(sha256):
        raise NotFound(f"there is no blob {sha256[:100]!r}")
    return sha256


Sha256 = Annotated[str, Depends(_sha256)]
Offset = Annotated[int, Query(ge=0, lt=_MOST_BLOB_BYTES, description="the byte of the file with which the body begins")]
Size = Annotated[int, Query(ge=0, lt=_MOST_BLOB_BYTES, description="bytes of the whole file")]


@router.put("/worker/blobs/{job_id}/{sha256}", include_in_schema=False)
async def upload_worker_blob(
    *,
    request: Request,
    services: ServicesDep,
    sender: RegisteredWorker,
    job_id: JobId,
    sha256: Sha256,
    size: Size,
    offset: Offset = 0,
) -> Received:
    """Appends bytes to an upload for a job of the worker. What arrived of a body that was cut is kept.

    A `conflict` says in `received` where to continue. The upload is a blob once a row names it, and nothing before.
    """
    blob, turns, uploads = Blob(sha256, size), services.writes, services.worker_uploads
    worker_id = sender.worker_id
    whose = WorkerUploads(services.store.blobs, worker_id)
    upload = await turns.begin(worker_id, partial(_begin, services, whose, job_id, blob, offset))
    if upload is None:
        return Received(received=size)
    try:
        async for data in gathered(request):
            await turns.go_on(worker_id, partial(_append, upload, data))
        await turns.go_on(worker_id, partial(_finish, upload))
    finally:
        uploads.end(upload)
    return Received(received=upload.at)


@router.get("/worker/blobs/{sha256}", include_in_schema=False)
async def download_worker_blob(
    request: Request, services: ServicesDep, sender: RegisteredWorker, sha256: Sha256
) -> Response:
    """Sends a blob that a job of the worker names, or parts of it."""
    worker_id = sender.worker_id
    size = await services.reads.begin(worker_id, partial(_find, services, worker_id, sha256))
    headers = {"ETag": f'"{sha256}"', "Cache-Control": "no-store"}
    return FileResponse(
        Layout([Stored(services.store.blobs.path(sha256), size)]),
        spans=spans_asked(request, headers["ETag"], size=size),
        headers=headers,
        media_type=BYTES,
        permit=lambda: permit_worker(services, lambda: _may_read(services, sender, sha256)),
    )


def _find(services: Services, worker_id: str, sha256: str) -> int:
    """Returns the size of a blob. Raises NotFound if no job of the worker names it, and OSError."""
    with services.store.read() as session:
        size = named.find_readable(session, worker_id, sha256)
    if size is None:
        raise NotFound(f"no job of this worker names a blob {sha256}")
    services.store.blobs.check()
    return size


def _may_read(services: Services, sender: Sender, sha256: str) -> bool:
    if not is_used_by(services.access, sender):
        return False
    with services.store.read() as session:
        return named.find_readable(session, sender.worker_id, sha256) is not None


def _begin(services: Services, uploads: WorkerUploads, job_id: str, blob: Blob, offset: int) -> Upload | None:
    with services.store.read() as session:
        keeping.require_job(session, uploads.worker_id, job_id)
    with disk_errors():
        return services.worker_uploads.begin(uploads, job_id, blob, offset=offset)


def _append(upload: Upload, data: bytes) -> None:
    with disk_errors():
        upload.append(data)


def _finish(upload: Upload) -> bool:
    with disk_errors():
        return upload.finish()
