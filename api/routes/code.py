"""Shows the code that a job runs: the files of its bundle, and their texts."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from api.auth.callers import JobReader
from api.openapi.completion import TEXT_FILE
from api.openapi.routers import guarded
from api.parameters.reads import Parts, in_turns
from api.services import Services, ServicesDep
from api.transfers import code as bundle_files
from store.bundles.facts import BundleFacts
from store.jobs import code
from store.team.callers import Caller
from torchyard.contract.bundles.views import CodeView, PackagesView
from torchyard.contract.errors import NotFound, Unavailable

router = guarded("code", Unavailable)

_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "private, no-cache"}
"""Keeps a browser that is led to the text from taking it for a page: a stranger wrote it."""


@router.get("/jobs/{job_id}/code", response_model=CodeView)
@in_turns
def list_code(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    digests: Annotated[bool, Query(description="also answer the sha256 of files up to 256 KiB")] = False,
) -> Parts[CodeView]:
    """Lists up to 5,000 files of the job's uploaded code. If there are none, `note` has the reason."""
    bundle = _find_bundle(services, job_id, caller)
    if isinstance(bundle, str):
        return CodeView(sha256=None, note=bundle, files=[], total=0)
    return (yield from bundle_files.list_files(services.store.blobs, bundle, digests=digests))


@router.get("/jobs/{job_id}/code/{path:path}", response_class=Response, responses=TEXT_FILE)
@in_turns
def show_code(*, services: ServicesDep, caller: JobReader, job_id: str, path: str) -> Parts[Response]:
    """Sends the text of one file of the job's code. The file must be UTF-8 and at most 256 KiB."""
    bundle = _find_bundle(services, job_id, caller)
    if isinstance(bundle, str):
        raise NotFound(bundle)
    text = yield from bundle_files.read_text(services.store.blobs, bundle, path)
    return Response(text, media_type="text/plain", headers=_HEADERS)


@router.get("/jobs/{job_id}/packages")
@in_turns
def show_packages(*, services: ServicesDep, caller: JobReader, job_id: str) -> PackagesView:
    """Returns the installed packages, as rank 0 reported them after its first step."""
    with services.store.read() as session:
        packages = code.find_packages(session, job_id, caller=caller)
    if packages is None:
        return PackagesView(attempt=None, packages={})
    return PackagesView(attempt=packages.attempt, packages=packages.packages)


def _find_bundle(services: Services, job_id: str, caller: Caller) -> BundleFacts | str:
    """Returns the bundle of the job's code, or why there is none that can be read. Raises NotFound and Unavailable."""
    with services.store.read() as session:
        bundle = code.find_bundle(session, job_id, caller=caller)
    if isinstance(bundle, str) or services.store.blobs.has(bundle.sha256, size=bundle.size):
        return bundle
    return code.say_deleted(bundle.sha256)
