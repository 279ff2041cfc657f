"""Lists checkpoints and sends their files."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.responses import Response

from api.auth.callers import FileReader, JobReader, Principal
from api.openapi.completion import DOWNLOAD, DOWNLOAD_FILE, DOWNLOAD_HEAD
from api.openapi.routers import guarded
from api.parameters.paging import AfterCheckpoint, Limit, id_after, page
from api.parameters.reads import in_turns
from api.services import Services, ServicesDep
from api.transfers.blobs import Blob, send_blob
from store.output import checkpoints
from store.output.checkpoints_facts import CheckpointFacts
from torchyard.contract.errors import Unavailable
from torchyard.contract.files.views import CheckpointFolder, CheckpointView
from torchyard.contract.wire.view import Page

router = guarded("checkpoints", Unavailable)


@router.get("/jobs/{job_id}/checkpoints")
@in_turns
def list_checkpoints(
    services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterCheckpoint = None
) -> Page[CheckpointView]:
    """Lists the checkpoints of a job, newest first."""
    cursor = id_after(after, "ckpt")
    with services.store.read() as session:
        listed = checkpoints.list_checkpoints(session, job_id, caller=caller, limit=limit, after=cursor)
    return page(CheckpointView, listed, checkpoint_view, cursor=lambda item: item.id)


@router.get("/jobs/{job_id}/checkpoints/{ref}")
@in_turns
def get_checkpoint(services: ServicesDep, caller: JobReader, job_id: str, ref: str) -> CheckpointView:
    """Returns one checkpoint.

    You may give the id of a sweep as the job's id: `best` is then the best checkpoint of its best trial. This holds for
    downloads too.
    """
    with services.store.read() as session:
        named = checkpoints.find_named(session, job_id, ref, caller=caller)
    return checkpoint_view(named.checkpoint)


@router.head("/jobs/{job_id}/checkpoints/{ref}/download", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/checkpoints/{ref}/download", **DOWNLOAD)
@in_turns
def download_checkpoint(request: Request, services: ServicesDep, caller: FileReader, job_id: str, ref: str) -> Response:
    """Downloads a checkpoint: its `state.pt`, or its only file. The `ETag` is the file's sha256.

    A checkpoint of several files without a `state.pt` is sent as a tar.
    """
    return _send(request, services, caller, job_id=job_id, ref=ref, path=None)


@router.head("/jobs/{job_id}/checkpoints/{ref}/files/{path:path}", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/checkpoints/{ref}/files/{path:path}", **DOWNLOAD_FILE)
@in_turns
def download_file(
    *, request: Request, services: ServicesDep, caller: FileReader, job_id: str, ref: str, path: str
) -> Response:
    """Downloads one file of a checkpoint by its path. A browser shows a `.png` and saves other files."""
    return _send(request, services, caller, job_id=job_id, ref=ref, path=path)


def checkpoint_view(facts: CheckpointFacts) -> CheckpointView:
    """Returns the view of a checkpoint."""
    sent = facts.main_file
    return CheckpointView.model_validate(
        {
            "id": facts.id,
            "epoch": facts.epoch,
            "step": facts.step,
            "attempt": facts.attempt,
            "metrics": facts.metrics,
            "files": facts.files,
            "files_omitted": facts.files_omitted,
            "folder": folder_view(sent),
            "size": sent["size"],
            "sha256": sent["sha256"],
            "aliases": facts.aliases,
            "source": facts.source or "run",
            "damaged": facts.damaged,
            "remeasured": None if facts.remeasured is None else {"metrics": facts.remeasured},
            "created_at": facts.created_at,
        }
    )


def folder_view(sent: Mapping[str, Any]) -> CheckpointFolder | None:
    """Returns the view of what a download sends, if that is a tar of a folder."""
    return CheckpointFolder(path=sent["folder"], files=sent["files"]) if "files" in sent else None


def _send(
    request: Request, services: Services, caller: Principal, *, job_id: str, ref: str, path: str | None
) -> Response:
    with services.store.read() as session:
        named = checkpoints.find_named(session, job_id, ref, caller=caller)
    checkpoint = named.checkpoint
    entry = checkpoint.main_file if path is None else checkpoint.file(path)
    blob = Blob.of(entry, f"{named.job_name}-{_moment(checkpoint)}", files=checkpoint.files, path=path)
    return send_blob(request, services, blob, caller, named.job_id)


def _moment(checkpoint: CheckpointFacts) -> str:
    """Returns what names a checkpoint in the name of a file: the epoch that it ended, or its step."""
    if checkpoint.epoch is not None and checkpoint.end_of_epoch:
        return f"epoch-{checkpoint.epoch}"
    return f"step-{checkpoint.step}"
