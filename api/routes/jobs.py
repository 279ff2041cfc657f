"""Lists, shows, changes, stops and deletes jobs, and lists their events."""

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
from api.auth import JobId, JobReader, JobWriter, Principal, visible_job
from api.body import Body, parsed
from api.openapi import CONDITIONAL, PATCH_BODY, headers, problems
from api.paging import AfterJob, AfterNumber, Limit, id_after, number_after, page, page_of
from api.services import Services, ServicesDep
from store.commands import cleanup, requests
from store.queries import listing
from store.rows import jobs
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.job import JobState
from torchyard.contract.spec import parse_patch
from torchyard.contract.views import EventView, JobSummary, JobView, Page

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
        raise ValueError("write a time with its zone, such as 2026-01-31T12:00:00Z (in a query, write + as %2B)")
    return text


Text = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]
Label = Annotated[str, AfterValidator(_label), WithJsonSchema({"type": "string", "pattern": _LABEL})]
Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]

_JOB: dict[int | str, dict[str, Any]] = {
    200: {"model": JobView, "headers": headers("ETag")},
    304: {"description": "The caller has this answer already", "headers": headers("ETag")},
}


@router.get("/jobs")
def list_jobs(
    *,
    services: ServicesDep,
    caller: JobReader,
    state: Annotated[list[JobState] | None, Query(max_length=20, description="in any of these states")] = None,
    name: Annotated[Text | None, Query(description="exactly this name")] = None,
    owner: Annotated[
        Text | None, Query(description="the owner; if left out, of all owners whose jobs you may see")
    ] = None,
    trainer: Annotated[Text | None, Query(description="exactly this trainer")] = None,
    label: Annotated[
        list[Label] | None, Query(max_length=32, description="`key:value`; a job must have all of them")
    ] = None,
    created_after: Annotated[Instant | None, Query(description="later than this (RFC 3339)")] = None,
    created_before: Annotated[Instant | None, Query(description="earlier than this (RFC 3339)")] = None,
    limit: Limit = 100,
    after: AfterJob = None,
) -> Page[JobSummary]:
    """Lists jobs, newest first, without their specs and cards. Ask for a job to see all of it."""
    before = id_after(after, "job")
    where = listing.JobFilter(
        states=tuple(state or ()),
        name=name,
        owner=owner,
        trainer=trainer,
        labels=tuple((key, value) for key, _, value in (item.partition(":") for item in label or ())),
        created_after=_microseconds(created_after),
        created_before=_microseconds(created_before),
    )
    with services.store.read() as session:
        rows = listing.newest(session, where, caller=caller, limit=limit + 1, before=before)
        return page(JobSummary, present.summaries(session, rows, caller), limit=limit, cursor=lambda job: job.id)


@router.get("/jobs/{job_id}", status_code=200, openapi_extra=CONDITIONAL, responses=_JOB)
async def get_job(
    *,
    request: Request,
    services: ServicesDep,
    caller: JobReader,
    job_id: JobId,
    wait: Annotated[float, Query(ge=0, le=60, allow_inf_nan=False, description="seconds to wait for a change")] = 0,
    after_version: Annotated[
        int | None, Query(ge=0, lt=2**31, description="the version that you know; if left out, the present one")
    ] = None,
) -> Response:
    """Returns the job. With `wait`, returns it as soon as its version is above `after_version`, or after the wait."""
    if wait:
        with services.streams.open(caller.key):
            await waiting.for_version(services, caller, job_id, above=after_version, seconds=wait)
    content = await run_in_threadpool(_content, services, caller, job_id)
    return etags.answer(request, content, media_type="application/json")


@router.patch("/jobs/{job_id}", openapi_extra=PATCH_BODY, responses=problems(Conflict))
def change_job(services: ServicesDep, caller: JobWriter, job_id: JobId, body: Body) -> JobView:
    """Changes the name, the labels or, while the job is queued, the priority.

    Fields that are left out do not change. `labels` replaces all labels.
    """
    return requests.change(services.store, job_id, parse_patch(parsed(body)), caller=caller, answer=present.job)


@router.post("/jobs/{job_id}/cancel", status_code=202, responses=problems(Conflict))
def cancel_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> JobView:
    """Cancels a waiting job at once; asks a running one to save a checkpoint and stop."""
    return requests.cancel(services.store, job_id, caller=caller, answer=present.job)


@router.post("/jobs/{job_id}/pause", status_code=202, responses=problems(Conflict))
def pause_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> JobView:
    """Pauses a waiting job at once; asks a running one to save a checkpoint, stop, and release its devices."""
    return requests.pause(services.store, job_id, caller=caller, answer=present.job)


@router.post("/jobs/{job_id}/resume", status_code=202, responses=problems(Conflict))
def resume_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> JobView:
    """Queues a paused job again. It continues from its newest checkpoint."""
    return requests.resume(services.store, job_id, caller=caller, answer=present.job)


@router.delete("/jobs/{job_id}", status_code=204, responses=problems(Conflict), response_class=Response)
def delete_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> Response:
    """Deletes a job that has ended, and everything that it stored: events, metrics, logs and checkpoints."""
    requests.delete(services.store, job_id, caller=caller)
    return Response(status_code=204, background=BackgroundTask(_collect, services))


@router.get("/jobs/{job_id}/events")
def list_events(
    services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterNumber = None
) -> Page[EventView]:
    """Lists the job's events with a `seq` above `after`, in order. A page has at most 8 MiB of them."""
    seq = number_after(after)
    with services.store.read() as session:
        visible_job(session, job_id, caller)
        found = jobs.events(session, job_id, after=seq, limit=limit)
    events = [present.event(row) for row in found.rows]
    return page_of(EventView, events, has_more=found.has_more, cursor=lambda event: str(event.seq))


def _content(services: Services, caller: Principal, job_id: str) -> bytes:
    with services.store.read() as session:
        return present.job(session, visible_job(session, job_id, caller)).model_dump_json().encode()


def _collect(services: Services) -> None:
    try:
        cleanup.collect_garbage(services.store)
    except (Unavailable, OSError) as error:
        _log.warning("files of deleted jobs are left for a worker's sweep: %s", error)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else present.microseconds(time)
