"""Lists checkpoints and sends their files."""

from fastapi import Request
from starlette.responses import Response

from api.access.auth import FileReader, JobReader, Principal
from api.openapi.completion import DOWNLOAD, DOWNLOAD_FILE, DOWNLOAD_HEAD
from api.openapi.routers import guarded
from api.parameters.paging import AfterCheckpoint, Limit, id_after, page
from api.parameters.reads import in_turns
from api.present import checkpoints as present
from api.services import Services, ServicesDep
from api.transfers.blobs import Blob, send_blob
from store.output import checkpoints_reads as checkpoints
from store.output.checkpoints_facts import CheckpointFacts
from torchyard.contract.errors import Unavailable
from torchyard.contract.views.base import Page
from torchyard.contract.views.checkpoints import CheckpointView

router = guarded("checkpoints", Unavailable)


@router.get("/jobs/{job_id}/checkpoints")
@in_turns
def list_checkpoints(
    services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterCheckpoint = None
) -> Page[CheckpointView]:
    """Lists the job's checkpoints, newest first."""
    cursor = id_after(after, "ckpt")
    found = checkpoints.listed(services.store, job_id, caller=caller, limit=limit, after=cursor)
    return page(CheckpointView, found, present.checkpoint, cursor=lambda item: item.id)


@router.get("/jobs/{job_id}/checkpoints/{ref}")
@in_turns
def get_checkpoint(services: ServicesDep, caller: JobReader, job_id: str, ref: str) -> CheckpointView:
    """Returns one checkpoint. `ref` is an id, `best`, `latest`, `epoch-N` or `step-N`.

    With the id of a sweep in place of a job's, `best` is that of its best trial, here and in the downloads.
    """
    return present.checkpoint(checkpoints.named(services.store, job_id, ref, caller=caller).checkpoint)


@router.head("/jobs/{job_id}/checkpoints/{ref}/download", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/checkpoints/{ref}/download", **DOWNLOAD)
@in_turns
def download_checkpoint(request: Request, services: ServicesDep, caller: FileReader, job_id: str, ref: str) -> Response:
    """Sends the checkpoint's `state.pt`, or the file that was captured. Its sha256 is the `ETag`.

    Of a checkpoint in several files it is a tar of all.
    """
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
    named = checkpoints.named(services.store, job_id, ref, caller=caller)
    found = named.checkpoint
    entry = found.main_file if path is None else found.file(path)
    blob = Blob.of(entry, f"{named.job_name}-{_place(found)}", files=found.files, path=path)
    return send_blob(request, services, blob, caller, named.job_id)


def _place(found: CheckpointFacts) -> str:
    return f"epoch-{found.epoch}" if found.epoch is not None and found.end_of_epoch else f"step-{found.step}"
