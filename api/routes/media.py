"""Lists what a job shows at its steps, and sends the pictures."""

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from api.auth.callers import FileReader, JobReader
from api.openapi.completion import DOWNLOAD_HEAD, DOWNLOAD_PICTURE
from api.openapi.routers import guarded
from api.parameters.paging import AfterMedia, Limit, media_after
from api.parameters.reads import in_turns
from api.services import ServicesDep
from api.transfers.blobs import Blob, send_blob
from store.output import media
from store.output.facts import MediaFilter
from torchyard.contract.errors import Unavailable
from torchyard.contract.media.kinds import MediaKind
from torchyard.contract.media.views import MediaPage
from torchyard.contract.wire.schema import MetricKey
from torchyard.contract.wire.text import storable

router = guarded("media", Unavailable)

_Step = Annotated[int, Query(ge=0, lt=2**63)]
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}


@router.get("/jobs/{job_id}/media")
@in_turns
def list_media(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    key: Annotated[list[MetricKey] | None, Query(max_length=100, description="only items of these keys")] = None,
    kind: Annotated[list[MediaKind] | None, Query(max_length=len(MediaKind), description="only these kinds")] = None,
    from_step: Annotated[_Step | None, Query(description="only items at or after this step")] = None,
    to_step: Annotated[_Step | None, Query(description="only items at or before this step")] = None,
    keys: Annotated[bool, Query(description="also answer `keys`: all keys, kinds and steps that the job has")] = True,
    limit: Limit = 100,
    after: AfterMedia = None,
) -> MediaPage:
    """Lists the media of a job by key, step and number. A newer item replaces one with the same three.

    An answer has at most 2 MiB of items. `keys` lists all keys of the job, whatever the filter; `keys=false` omits it.
    """
    where = MediaFilter([storable(each) for each in key or ()], kind or (), from_step, to_step)
    position = media_after(after)
    with services.store.read() as session:
        page, all_keys = media.list_media(
            session, job_id, caller=caller, where=where, limit=limit, after=position, with_keys=keys
        )
    last = page.items[-1] if page.has_more else None
    following = None if last is None else f"{last.step}:{last.number}:{last.key}"
    return MediaPage(data=[*page.items], has_more=page.has_more, next=following, keys=all_keys)


@router.head("/jobs/{job_id}/media/{media_id}/{part}", **DOWNLOAD_HEAD)
@router.get("/jobs/{job_id}/media/{media_id}/{part}", **DOWNLOAD_PICTURE)
@in_turns
def download_picture(
    *, request: Request, services: ServicesDep, caller: FileReader, job_id: str, media_id: str, part: str
) -> Response:
    """Downloads a picture of an item. A picture never changes; its `ETag` is the file's sha256."""
    with services.store.read() as session:
        key, picture = media.find_picture(session, job_id, storable(media_id), storable(part), caller=caller)
    name = f"{key.rpartition('/')[2]}-{part}.{_SUFFIXES[picture.media_type]}"
    blob = Blob(picture.sha256, size=picture.size, name=name, media_type=picture.media_type, fixed=True)
    return send_blob(request, services, blob, caller, job_id)
