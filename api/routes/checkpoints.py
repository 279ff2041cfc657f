"""Checkpoints: the list, and their files."""

import base64
from pathlib import PurePosixPath
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import FileResponse, MalformedRangeHeader, RangeNotSatisfiable, Response

from api import present
from api.auth import Principal, User, visible_job
from api.openapi import problems
from api.paging import After, Limit, id_after, page
from api.services import Parts, Services
from store import checkpoints
from store.checkpoints import Listed
from store.tables import Checkpoint
from torchyard.errors import InvalidCursor, NotFound, Unavailable
from torchyard.rundir import STATE_FILE
from torchyard.views import CheckpointView, Page

router = APIRouter(tags=["checkpoints"], responses=problems(Unavailable))

_BYTES: dict[str, Any] = {
    "response_class": FileResponse,
    "responses": {
        200: {"description": "The whole file", "content": {"application/octet-stream": {}}},
        206: {"description": "The part that `Range` asks for", "content": {"application/octet-stream": {}}},
        304: {"description": "The caller has the file already (`If-None-Match`)"},
    },
}


@router.get("/jobs/{job_id}/checkpoints")
def list_checkpoints(
    parts: Parts, user: User, job_id: str, limit: Limit = 100, after: After = None
) -> Page[CheckpointView]:
    """The job's checkpoints, newest first."""
    cursor = id_after(after, "ckpt")
    with parts.database.read() as session:
        found = checkpoints.listed(session, visible_job(session, job_id, user))
    shown = [present.checkpoint(item) for item in _beyond(found, cursor)[: limit + 1]]
    return page(CheckpointView, shown, limit=limit, cursor=lambda item: item.id)


@router.get("/jobs/{job_id}/checkpoints/{ref}")
def get_checkpoint(parts: Parts, user: User, job_id: str, ref: str) -> CheckpointView:
    """`ref` is an id, `best`, `latest`, `epoch-N` or `step-N`."""
    with parts.database.read() as session:
        return present.checkpoint(checkpoints.resolve(session, visible_job(session, job_id, user), ref))


@router.head("/jobs/{job_id}/checkpoints/{ref}/download", include_in_schema=False)
@router.get("/jobs/{job_id}/checkpoints/{ref}/download", **_BYTES)
def download_checkpoint(request: Request, parts: Parts, user: User, job_id: str, ref: str) -> Response:
    """The checkpoint's `state.pt`. Its sha256 is the `ETag`."""
    return _send(request, parts, user, job_id=job_id, ref=ref, path=STATE_FILE)


@router.head("/jobs/{job_id}/checkpoints/{ref}/files/{path:path}", include_in_schema=False)
@router.get("/jobs/{job_id}/checkpoints/{ref}/files/{path:path}", **_BYTES)
def download_file(*, request: Request, parts: Parts, user: User, job_id: str, ref: str, path: str) -> Response:
    """Any file of the checkpoint, by its listed path."""
    return _send(request, parts, user, job_id=job_id, ref=ref, path=path)


class _BlobResponse(FileResponse):
    """A file whose `Range` is answered as RFC 9110 asks: a malformed one is ignored, one beyond the end a problem."""

    chunk_size = 1 << 18

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []
        except RangeNotSatisfiable:
            headers = {"Content-Range": f"bytes */{file_size}"}
            raise HTTPException(416, f"the file has {file_size} bytes", headers=headers) from None


def _send(request: Request, parts: Services, user: Principal, *, job_id: str, ref: str, path: str) -> Response:
    with parts.database.read() as session:
        job = visible_job(session, job_id, user)
        row = checkpoints.resolve(session, job, ref).row
    entry = checkpoints.file_of(row, path)
    blob = parts.blobs.path(entry["sha256"])
    try:
        found = blob.stat()
    except FileNotFoundError:
        raise NotFound(f"the bytes of {path} of checkpoint {row.id} are not in the store any more") from None
    headers = {
        "ETag": f'"{entry["sha256"]}"',
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(entry['sha256'])).decode()}:",
    }
    if _is_held(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return _BlobResponse(
        blob,
        headers=headers,
        media_type="application/octet-stream",
        filename=f"{job.name}-{_place(row)}{_suffix(path)}",
        stat_result=found,
    )


def _beyond(found: list[Listed], cursor: str | None) -> list[Listed]:
    if cursor is None:
        return found
    places = [place for place, item in enumerate(found, start=1) if item.row.id == cursor]
    if not places:
        raise InvalidCursor(f"{cursor!r} is no checkpoint of this job")
    return found[places[0] :]


def _is_held(request: Request, etag: str) -> bool:
    """Whether the caller's `If-None-Match` names the file."""
    held = request.headers.get("if-none-match", "").split(",")
    return any(item.strip().removeprefix("W/") in {etag, "*"} for item in held)


def _place(row: Checkpoint) -> str:
    return f"epoch-{row.epoch}" if row.epoch is not None and row.end_of_epoch else f"step-{row.step}"


def _suffix(path: str) -> str:
    return ".pt" if path == STATE_FILE else f"-{PurePosixPath(path).name}"
