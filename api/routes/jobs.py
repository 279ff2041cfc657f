"""Jobs that are there: list, look, watch, change, cancel, delete; and what happened to one."""

from datetime import datetime
import logging
import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, WithJsonSchema
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api import etags, present, waiting
from api.auth import JobId, Principal, User, visible_job
from api.body import Body, parsed
from api.openapi import CONDITIONAL, PATCH_BODY, headers, problems
from api.paging import AfterJob, AfterNumber, Limit, id_after, number_after, page
from api.services import Parts, Services
from store.commands import cleanup, requests
from store.queries import listing
from store.rows import jobs
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.job import JobState
from torchyard.contract.spec import parse_patch
from torchyard.contract.views import EventView, JobView, Page

router = APIRouter(tags=["jobs"], responses=problems(Unavailable))

_log = logging.getLogger(__name__)

_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}:[^\x00]{0,200}$"
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _label(text: str) -> str:
    if re.fullmatch(_LABEL, text) is None:
        raise ValueError("write a label as key:value")
    return text


def _instant(text: Any) -> Any:
    if isinstance(text, str) and _INSTANT.fullmatch(text) is None:
        raise ValueError("write a time with its zone, as 2026-01-31T12:00:00Z (and a + in a query as %2B)")
    return text


Text = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]
Label = Annotated[str, AfterValidator(_label), WithJsonSchema({"type": "string", "pattern": _LABEL})]
Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]

_JOB: dict[int | str, dict[str, Any]] = {
    200: {"model": JobView, "headers": headers("ETag")},
    304: {"description": "The caller has this very answer already", "headers": headers("ETag")},
}


@router.get("/jobs")
def list_jobs(
    *,
    parts: Parts,
    user: User,
    state: Annotated[list[JobState] | None, Query(max_length=20, description="any of these")] = None,
    name: Annotated[Text | None, Query(description="exactly this name")] = None,
    owner: Annotated[Text | None, Query(description="whose jobs; all that you may see, if left out")] = None,
    trainer: Annotated[Text | None, Query(description="exactly this trainer")] = None,
    label: Annotated[list[Label] | None, Query(max_length=32, description="`key:value`; all must be there")] = None,
    created_after: Annotated[Instant | None, Query(description="later than this (RFC 3339)")] = None,
    created_before: Annotated[Instant | None, Query(description="earlier than this (RFC 3339)")] = None,
    limit: Limit = 100,
    after: AfterJob = None,
) -> Page[JobView]:
    """Jobs, newest first."""
    before = id_after(after, "job")
    if user.sees is not None and owner not in {None, user.sees}:
        return Page[JobView](data=[])
    where = listing.JobFilter(
        states=tuple(state or ()),
        name=name,
        owner=user.sees or owner,
        trainer=trainer,
        labels=tuple((key, value) for key, _, value in (item.partition(":") for item in label or ())),
        created_after=_microseconds(created_after),
        created_before=_microseconds(created_before),
    )
    with parts.store.read() as session:
        rows = listing.newest(session, where, limit=limit + 1, before=before)
        return page(JobView, present.job_list(session, rows), limit=limit, cursor=lambda job: job.id)


@router.get("/jobs/{job_id}", status_code=200, openapi_extra=CONDITIONAL, responses=_JOB)
async def get_job(
    *,
    request: Request,
    parts: Parts,
    user: User,
    job_id: JobId,
    wait: Annotated[float, Query(ge=0, le=60, allow_inf_nan=False, description="seconds to wait for a change")] = 0,
    after_version: Annotated[
        int | None, Query(ge=0, lt=2**31, description="the version that you know; left out, the present one")
    ] = None,
) -> Response:
    """The job. With `wait`, as soon as its version is above `after_version`, else as it is after the wait."""
    if wait:
        await waiting.for_version(parts, user, job_id, above=after_version, seconds=wait)
    content = await run_in_threadpool(_content, parts, user, job_id)
    return etags.answer(request, content, media_type="application/json")


@router.patch("/jobs/{job_id}", openapi_extra=PATCH_BODY, responses=problems(Conflict))
def change_job(parts: Parts, user: User, job_id: JobId, body: Body) -> JobView:
    """Changes the name, the labels or, while the job is queued, the priority.

    What is left out stays. `labels` replaces the whole map: send those that are to stay, too.
    """
    return requests.change(parts.store, job_id, parse_patch(parsed(body)), owner=user.sees, answer=present.job)


@router.post("/jobs/{job_id}/cancel", status_code=202, responses=problems(Conflict))
def cancel_job(parts: Parts, user: User, job_id: JobId) -> JobView:
    """Cancels a waiting job at once; asks a running one to save a checkpoint and stop."""
    return requests.cancel(parts.store, job_id, owner=user.sees, answer=present.job)


@router.post("/jobs/{job_id}/pause", status_code=202, responses=problems(Conflict))
def pause_job(parts: Parts, user: User, job_id: JobId) -> JobView:
    """Pauses a waiting job at once; asks a running one to save a checkpoint, stop, and give its devices back."""
    return requests.pause(parts.store, job_id, owner=user.sees, answer=present.job)


@router.post("/jobs/{job_id}/resume", status_code=202, responses=problems(Conflict))
def resume_job(parts: Parts, user: User, job_id: JobId) -> JobView:
    """Queues a paused job again; it goes on from its newest checkpoint."""
    return requests.resume(parts.store, job_id, owner=user.sees, answer=present.job)


@router.delete("/jobs/{job_id}", status_code=204, responses=problems(Conflict), response_class=Response)
def delete_job(parts: Parts, user: User, job_id: JobId) -> Response:
    """Deletes a job that has ended, and all that it stored: events, metrics, logs and checkpoints."""
    requests.delete(parts.store, job_id, owner=user.sees)
    return Response(status_code=204, background=BackgroundTask(_collect, parts))


@router.get("/jobs/{job_id}/events")
def list_events(
    parts: Parts, user: User, job_id: str, limit: Limit = 100, after: AfterNumber = None
) -> Page[EventView]:
    """What happened to the job, in order: each event with a `seq` above `after`."""
    seq = number_after(after)
    with parts.store.read() as session:
        visible_job(session, job_id, user)
        rows = jobs.events(session, job_id, after=seq, limit=limit + 1)
    return page(EventView, [present.event(row) for row in rows], limit=limit, cursor=lambda event: str(event.seq))


def _content(parts: Services, user: Principal, job_id: str) -> bytes:
    with parts.store.read() as session:
        return present.job(session, visible_job(session, job_id, user)).model_dump_json().encode()


def _collect(parts: Services) -> None:
    try:
        cleanup.collect_garbage(parts.store)
    except (Unavailable, OSError) as error:
        _log.warning("what deleted jobs left waits for a worker's sweep: %s", error)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else present.microseconds(time)
