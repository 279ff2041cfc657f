"""Lists checkpoints and sends their files."""

from pathlib import PurePosixPath

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import present
from api.access.auth import FileReader, JobReader, Principal, visible_job
from api.openapi.completion import DOWNLOAD, DOWNLOAD_FILE, DOWNLOAD_HEAD, problems
from api.parameters.paging import AfterCheckpoint, Limit, id_after, page
from api.parameters.reads import in_turns
from api.services import Services, ServicesDep
from api.transfers.blobs import BYTES, PICTURE, Blob, send_blob
from store.db.database import Session
from store.db.tables import Checkpoint, Job
from store.rows import checkpoints
from store.rows.checkpoints import ListedCheckpoint
from torchyard.contract.errors import InvalidCursor, NotFound, Unavailable
from torchyard.contract.rundir import STATE_FILE
from torchyard.contract.views.base import Page
from torchyard.contract.views.checkpoints import CheckpointView

router = APIRouter(tags=["checkpoints"], responses=problems(Unavailable))


@router.get("/jobs/{job_id}/checkpoints")
@in_turns
def list_checkpoints(
    services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterCheckpoint = None
) -> Page[CheckpointView]:
    """Lists the job's checkpoints, newest first."""
    cursor = id_after(after, "ckpt")
    with services.store.read() as session:
        found = _listed(session, visible_job(session, job_id, caller), behind=cursor)
    shown = [present.checkpoint(item) for item in found[: limit + 1]]
    return page(CheckpointView, shown, limit=limit, cursor=lambda item: item.id)


@router.get("/jobs/{job_id}/checkpoints/{ref}")
@in_turns
def get_checkpoint(services: ServicesDep, caller: JobReader, job_id: str, ref: str) -> CheckpointView:
    """Returns one checkpoint. `ref` is an id, `best`, `latest`, `epoch-N` or `step-N`."""
    with services.store.read() as session:
        return present.checkpoint(checkpoints.resolve(session, visible_job(session, job_id, caller), ref))


@router.head("/jobs/{job_id}/checkpoints/{ref}/download", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/checkpoints/{ref}/download", **DOWNLOAD)
@in_turns
def download_checkpoint(request: Request, services: ServicesDep, caller: FileReader, job_id: str, ref: str) -> Response:
    """Sends the checkpoint's `state.pt`, or the file that was captured. Its sha256 is the `ETag`."""
    return _send(request, services, caller, job_id=job_id, ref=ref, path=None)


@router.head("/jobs/{job_id}/checkpoints/{ref}/files/{path:path}", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/checkpoints/{ref}/files/{path:path}", **DOWNLOAD_FILE)
@in_turns
def download_file(
    *, request: Request, services: ServicesDep, caller: FileReader, job_id: str, ref: str, path: str
) -> Response:
    """Sends any file of the checkpoint, by its listed path. A browser shows a `.png`, and saves other files."""
    return _send(request, services, caller, job_id=job_id, ref=ref, path=path)


def _send(
    request: Request, services: Services, caller: Principal, *, job_id: str, ref: str, path: str | None
) -> Response:
    with services.store.read() as session:
        job = visible_job(session, job_id, caller)
        row = checkpoints.resolve(session, job, ref).row
    entry = checkpoints.main_file(row) if path is None else checkpoints.file_of(row, path)
    name = f"{job.name}-{_place(row)}{_suffix(entry['path'])}"
    media_type = PICTURE if path is not None and entry["path"].endswith(".png") else BYTES
    blob = Blob(entry["sha256"], size=entry["size"], name=name, media_type=media_type)
    return send_blob(request, services, blob, caller, job_id)


def _listed(session: Session, job: Job, *, behind: str | None) -> list[ListedCheckpoint]:
    if behind is None:
        return checkpoints.listed(session, job)
    try:
        return checkpoints.older_than(session, job, behind)
    except NotFound:
        raise InvalidCursor(f"{behind!r} is not a checkpoint of this job") from None


def _place(row: Checkpoint) -> str:
    return f"epoch-{row.epoch}" if row.epoch is not None and row.end_of_epoch else f"step-{row.step}"


def _suffix(path: str) -> str:
    return ".pt" if path == STATE_FILE else f"-{PurePosixPath(path).name}"
