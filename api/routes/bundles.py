"""Bundles of the caller: uploads that can be continued, lists and downloads. Nobody sees those of another user."""

from functools import partial
import re
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.auth.callers import JobReader, JobWriter, Principal
from api.openapi.completion import DOWNLOAD, DOWNLOAD_HEAD, problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.paging import BUNDLE, AfterBundle, Limit, page
from api.parameters.reads import in_turns
from api.present.times import time
from api.services import Services, ServicesDep
from api.transfers.blobs import Blob, send_blob
from api.transfers.decoding import Decoder
from api.transfers.permits import permit
from api.transfers.uploads import TarBody
from store.blobs.partial import PartialFile
from store.bundles import bundles, library
from store.bundles import upload as uploads
from store.bundles.facts import BundleFacts
from store.bundles.folder import Partial
from store.bundles.library import BundleCursor
from store.bundles.upload import Piece, Upload
from torchyard.contract.bundles.names import is_digest
from torchyard.contract.bundles.requests import NewBundleName, WantedParts
from torchyard.contract.bundles.views import BundleView, FoundParts
from torchyard.contract.errors import (
    Conflict,
    InvalidBundle,
    InvalidCursor,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unavailable,
)
from torchyard.contract.wire.view import Page

router = guarded("bundles", Unavailable)

_UPLOADED: dict[int | str, dict[str, Any]] = {
    200: {"model": BundleView, "description": "The bundle was already complete; the body was not read"},
    201: {"model": BundleView, "description": "The bundle is complete"},
    202: {"model": BundleView, "description": "The bytes are stored; the rest is missing"},
    **problems(InvalidBundle, QuotaExceeded, Conflict, TooManyRequests),
}


async def _sha256(sha256: str) -> str:
    """Raises NotFound if the text is not a bundle's digest."""
    if not is_digest(sha256):
        raise NotFound(f"there is no bundle {sha256[:100]!r}")
    return sha256


Sha256 = Annotated[str, Depends(_sha256)]
Offset = Annotated[int, Query(ge=0, lt=2**53, description="byte of the tar at which the body begins")]
Size = Annotated[int, Query(ge=1, lt=2**53, description="size of the whole tar in bytes, uncompressed")]

PartsBody = Annotated[WantedParts, json_body(WantedParts, example={"parts": ["0" * 64]})]
NameBody = Annotated[NewBundleName, json_body(NewBundleName, example={"name": "mnist"})]
_COPIED_BYTES = 32 << 20
"""Bytes that are copied in one turn."""


@router.put("/bundles/{sha256}", status_code=201, responses=_UPLOADED)
async def upload_bundle(
    *, services: ServicesDep, caller: JobWriter, sha256: Sha256, size: Size, offset: Offset = 0, tar: TarBody
) -> Response:
    """Uploads the tar of a bundle, or the rest of it from `offset`.

    After an interruption the service keeps the received bytes for 24 hours. On a `conflict`, continue at `received`.
    """
    settings = services.settings
    upload = Upload(sha256, size, offset, max_bytes=settings.max_bundle_bytes, max_files=settings.max_bundle_files)
    turns = services.writes
    opened = await turns.begin(caller.key, partial(uploads.begin, services.store, upload, caller=caller))
    if isinstance(opened, BundleFacts):
        return _answer(_view(opened), 200)
    try:
        with permit(services, caller) as check:
            async for data in tar.pieces():
                await check()
                await turns.go_on(caller.key, partial(_append, opened, upload, tar.decoder, data))
        return await _finished(services, caller, opened, upload)
    finally:
        opened.close()


@router.post("/bundles/parts")
@in_turns
def find_parts(services: ServicesDep, caller: JobReader, wanted: PartsBody) -> FoundParts:
    """Finds parts of a new tar in your complete bundles. `POST /v1/bundles/{sha256}/copy` copies them."""
    digests = [bytes.fromhex(sha256) for sha256 in wanted.parts]
    return FoundParts(data=library.find_shared_parts(services.store, caller.name, digests))


@router.post("/bundles/{sha256}/copy", status_code=201, responses=_UPLOADED)
async def copy_bundle(
    *,
    services: ServicesDep,
    caller: JobWriter,
    sha256: Sha256,
    size: Size,
    offset: Offset = 0,
    source: Annotated[str, Query(pattern="^[0-9a-f]{64}$", description="sha256 of a complete bundle of yours")],
    start: Annotated[int, Query(ge=0, lt=2**53, description="first byte to copy from its tar")],
    length: Annotated[int, Query(ge=1, lt=2**53, description="number of bytes to copy")],
) -> Response:
    """Continues an upload with bytes of another bundle of yours, instead of a body.

    The service checks the whole tar as for an upload. On a `conflict`, continue at `received`.
    """
    settings, turns = services.settings, services.writes
    upload = Upload(sha256, size, offset, max_bytes=settings.max_bundle_bytes, max_files=settings.max_bundle_files)
    whole = Piece(source, start, length)
    begin = partial(uploads.begin, services.store, upload, caller=caller, copies=whole)
    opened = await turns.begin(caller.key, begin)
    if isinstance(opened, BundleFacts):
        return _answer(_view(opened), 200)
    try:
        with permit(services, caller) as check:
            for at in range(0, length, _COPIED_BYTES):
                await check()
                piece = Piece(source, start + at, min(length - at, _COPIED_BYTES))
                copy = partial(uploads.copy, services.store, opened, upload, piece, caller=caller)
                await turns.go_on(caller.key, copy)
        return await _finished(services, caller, opened, upload)
    finally:
        opened.close()


@router.get("/bundles")
@in_turns
def list_bundles(
    services: ServicesDep,
    caller: JobReader,
    limit: Limit = 100,
    after: AfterBundle = None,
    name: Annotated[str | None, Query(max_length=100, description="only the bundle with this name")] = None,
) -> Page[BundleView]:
    """Lists your bundles and unfinished uploads, newest first."""
    listed = library.list_newest(services.store, caller.name, limit=limit, after=_cursor_after(after), name=name)
    cursors = {item.sha256: "{}:{}".format(*library.cursor_of(item)) for item in listed.items}
    return page(BundleView, listed, _view, cursor=lambda item: cursors[item.sha256])


@router.head("/bundles/{sha256}")
@router.get("/bundles/{sha256}")
def get_bundle(services: ServicesDep, caller: JobReader, sha256: Sha256) -> BundleView:
    """Returns one of your bundles, complete or partial."""
    return _view(library.find(services.store, caller.name, sha256))


@router.head("/bundles/{sha256}/content", **DOWNLOAD_HEAD)
@router.get("/bundles/{sha256}/content", **DOWNLOAD)
@in_turns
def download_bundle(request: Request, services: ServicesDep, caller: JobReader, sha256: Sha256) -> Response:
    """Downloads the tar of a complete bundle. The `ETag` is its sha256."""
    bundle = library.find_complete(services.store, caller.name, sha256)
    if bundle is None:
        raise NotFound(f"there is no complete bundle {sha256}")
    blob = Blob(sha256, size=bundle.size, name=f"bundle-{sha256[:12]}.tar")
    return send_blob(request, services, blob, caller)


@router.put("/bundles/{sha256}/name")
def name_bundle(services: ServicesDep, caller: JobWriter, sha256: Sha256, wanted: NameBody) -> BundleView:
    """Names a complete bundle. Your other bundle with this name loses it. A named bundle is not removed by age."""
    if library.find_complete(services.store, caller.name, sha256) is None:  # its blob may be lost
        raise NotFound(f"there is no complete bundle {sha256}")
    with services.store.write("bundle") as session:
        bundle = bundles.give_name(session, sha256, wanted.name, caller=caller)
    return _view(bundle)


@router.delete("/bundles/{sha256}", status_code=204, responses=problems(Conflict))
def delete_bundle(services: ServicesDep, caller: JobWriter, sha256: Sha256) -> None:
    """Deletes a bundle, complete or partial. A bundle that an unfinished job needs is a `conflict`."""
    library.remove(services.store, sha256, caller=caller)


def _append(partial_file: PartialFile, upload: Upload, decoder: Decoder, data: bytes) -> None:
    """Raises what `append` and the decoder raise, which leaves nothing of the body."""
    try:
        for piece in decoder.decode(data):
            uploads.append(partial_file, upload, piece)
    except InvalidRequest:
        uploads.withdraw(partial_file, upload)
        raise


async def _finished(services: Services, caller: Principal, opened: PartialFile, upload: Upload) -> Response:
    """Makes what has arrived durable, and answers with the new bundle, or with what is still missing of it."""
    finish = partial(uploads.finish, services.store, opened, upload, caller=caller)
    row = await services.writes.go_on(caller.key, finish)
    if row is not None:
        return _answer(_view(row), 201)
    unfinished = await run_in_threadpool(library.find, services.store, caller.name, upload.sha256)
    return _answer(_view(unfinished), 202)


def _cursor_after(cursor: str | None) -> BundleCursor | None:
    """Returns what the cursor stands for, None for the start of the list. Raises InvalidCursor."""
    if cursor is None:
        return None
    if re.fullmatch(BUNDLE, cursor) is None:
        raise InvalidCursor(f"{cursor!r} is not a `next` value of this list")
    moment, _, sha256 = cursor.partition(":")
    return int(moment), sha256


def _answer(view: BundleView, status: int) -> Response:
    return Response(view.model_dump_json(), status_code=status, media_type="application/json")


def _view(bundle: BundleFacts | Partial) -> BundleView:
    """Returns the view of a bundle, or of what has arrived of one."""
    if isinstance(bundle, Partial):
        return BundleView(
            sha256=bundle.sha256,
            size=bundle.size,
            files=None,
            state="partial",
            received=bundle.received,
            created_at=time(bundle.started_at),
        )
    return BundleView(
        sha256=bundle.sha256,
        size=bundle.size,
        files=bundle.files,
        state="complete",
        received=bundle.size,
        created_at=time(bundle.created_at),
        name=bundle.name,
    )
