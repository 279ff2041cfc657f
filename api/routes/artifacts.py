"""Lists the files that a job left, and sends them."""

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from api.auth.callers import FileReader, JobReader, Principal
from api.openapi.completion import DOWNLOAD, DOWNLOAD_HEAD
from api.openapi.routers import guarded
from api.parameters.paging import AfterArtifact, Limit, id_after, page
from api.parameters.reads import in_turns
from api.present.times import time
from api.services import Services, ServicesDep
from api.transfers.blobs import Blob, send_blob
from store.output import artifacts
from store.output.checkpoints_facts import ArtifactFacts
from torchyard.contract.errors import Unavailable
from torchyard.contract.files.paths import MOST_PATH_BYTES
from torchyard.contract.files.views import ArtifactView
from torchyard.contract.wire.text import storable
from torchyard.contract.wire.view import Page

router = guarded("artifacts", Unavailable)

PathFilter = Annotated[
    str | None, Query(max_length=MOST_PATH_BYTES, description="only this file, or only the files in this folder")
]


@router.get("/jobs/{job_id}/artifacts")
@in_turns
def list_artifacts(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    path: PathFilter = None,
    limit: Limit = 100,
    after: AfterArtifact = None,
) -> Page[ArtifactView]:
    """Lists the files that the job wrote to `artifacts`, oldest first. A newer file replaces one with the same path."""
    return _list(services, caller, job_id, path=path, limit=limit, after=after)


@router.head("/jobs/{job_id}/artifacts/{path:path}", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/artifacts/{path:path}", **DOWNLOAD)
@in_turns
def download_artifact(request: Request, services: ServicesDep, caller: FileReader, job_id: str, path: str) -> Response:
    """Downloads an artifact by its path. The `ETag` is the file's sha256."""
    return _send(request, services, caller, job_id, path)


@router.get("/jobs/{job_id}/kept")
@in_turns
def list_kept_files(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    path: PathFilter = None,
    limit: Limit = 100,
    after: AfterArtifact = None,
) -> Page[ArtifactView]:
    """Lists the stored files of the job's working folder, oldest first. A newer file replaces one of the same path."""
    return _list(services, caller, job_id, path=path, limit=limit, after=after, kept=True)


@router.head("/jobs/{job_id}/kept/{path:path}", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/kept/{path:path}", **DOWNLOAD)
@in_turns
def download_kept_file(request: Request, services: ServicesDep, caller: FileReader, job_id: str, path: str) -> Response:
    """Downloads a stored file by its path. The `ETag` is the file's sha256."""
    return _send(request, services, caller, job_id, path, kept=True)


def _list(
    services: Services,
    caller: Principal,
    job_id: str,
    *,
    path: str | None,
    limit: int,
    after: str | None,
    kept: bool = False,
) -> Page[ArtifactView]:
    """Returns a page of the files in `artifacts`, or of those of the working folder that are `kept`."""
    cursor, wanted = id_after(after, "art"), None if path is None else storable(path)
    with services.store.read() as session:
        listed = artifacts.list_artifacts(
            session, job_id, caller=caller, limit=limit, after=cursor, path=wanted, kept=kept
        )
    return page(ArtifactView, listed, _artifact_view, cursor=lambda item: item.id)


def _send(
    request: Request, services: Services, caller: Principal, job_id: str, path: str, *, kept: bool = False
) -> Response:
    with services.store.read() as session:
        artifact = artifacts.find_artifact(session, job_id, storable(path), caller=caller, kept=kept)
    blob = Blob(artifact.sha256, size=artifact.size, name=artifact.path.rpartition("/")[2])
    return send_blob(request, services, blob, caller, job_id)


def _artifact_view(artifact: ArtifactFacts) -> ArtifactView:
    return ArtifactView(
        id=artifact.id,
        path=artifact.path,
        size=artifact.size,
        attempt=artifact.attempt,
        sha256=artifact.sha256,
        created_at=time(artifact.created_at),
    )
