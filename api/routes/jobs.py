"""Jobs: submit, list, look, cancel; and what happened to one."""

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from api import present
from api.auth import User, visible_job
from api.openapi import SPEC_BODY, problems
from api.paging import After, Limit, id_after, number_after, page
from api.services import Parts
from store import jobs
from store.queue import Queue
from store.tables import Job
from torchyard.errors import Conflict, InvalidRequest, TooLarge, Unavailable
from torchyard.job import JobState
from torchyard.spec import parse_spec
from torchyard.views import EventView, JobView, Page

router = APIRouter(tags=["jobs"], responses=problems(Unavailable))

Text = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]

_log = logging.getLogger(__name__)


async def _body(request: Request, parts: Parts) -> bytes:
    """The request's body. Raises TooLarge before more than the limit is held in memory."""
    received = bytearray()
    too_large = TooLarge(f"send at most {parts.max_body_bytes} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > parts.max_body_bytes:
        raise too_large
    try:
        async for chunk in request.stream():
            received += chunk
            if len(received) > parts.max_body_bytes:
                raise too_large
    except ClientDisconnect:
        raise InvalidRequest("the connection ended before the body did") from None
    return bytes(received)


@router.post("/jobs", status_code=201, openapi_extra=SPEC_BODY)
def submit_job(parts: Parts, user: User, body: Annotated[bytes, Depends(_body)], response: Response) -> JobView:
    """Submits a job: it is queued when this answers."""
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is no JSON: {error}") from None
    spec = parse_spec(raw)
    with parts.database.write() as session:
        row = jobs.submit(session, spec, owner=user.name)
        view = present.job(session, row)
    _announce(parts.queue, row)
    response.headers["Location"] = f"/v1/jobs/{view.id}"
    return view


@router.get("/jobs")
def list_jobs(
    *,
    parts: Parts,
    user: User,
    state: Annotated[list[JobState] | None, Query(max_length=20)] = None,
    name: Text | None = None,
    owner: Text | None = None,
    trainer: Text | None = None,
    limit: Limit = 100,
    after: After = None,
) -> Page[JobView]:
    """Jobs, newest first."""
    before = id_after(after, "job")
    if user.sees is not None and owner not in {None, user.sees}:
        return Page[JobView](data=[])
    where = jobs.JobFilter(states=tuple(state or ()), name=name, owner=user.sees or owner, trainer=trainer)
    with parts.database.read() as session:
        rows = jobs.newest(session, where, limit=limit + 1, before=before)
        return page(JobView, present.job_list(session, rows), limit=limit, cursor=lambda job: job.id)


@router.get("/jobs/{job_id}")
def get_job(parts: Parts, user: User, job_id: str) -> JobView:
    with parts.database.read() as session:
        return present.job(session, visible_job(session, job_id, user))


@router.post("/jobs/{job_id}/cancel", status_code=202, responses=problems(Conflict))
def cancel_job(parts: Parts, user: User, job_id: str) -> JobView:
    """Cancels a waiting job at once; asks a running one to save a checkpoint and stop."""
    with parts.database.write() as session:
        visible_job(session, job_id, user)
        row = jobs.request_cancel(session, job_id, owner=user.sees)
        view = present.job(session, row)
    _withdraw(parts.queue, row)
    return view


@router.get("/jobs/{job_id}/events")
def list_events(parts: Parts, user: User, job_id: str, limit: Limit = 100, after: After = None) -> Page[EventView]:
    """What happened to the job, in order: each event with a `seq` above `after`."""
    seq = number_after(after)
    with parts.database.read() as session:
        visible_job(session, job_id, user)
        rows = jobs.events(session, job_id, after=seq, limit=limit + 1)
    return page(EventView, [present.event(row) for row in rows], limit=limit, cursor=lambda event: str(event.seq))


def _announce(queue: Queue, row: Job) -> None:
    try:
        queue.push(row.id, priority=row.priority)
        queue.ring()
    except Unavailable as error:
        _log.warning("job %s is stored, but waits for a worker's sweep: %s", row.id, error.message)


def _withdraw(queue: Queue, row: Job) -> None:
    try:
        if row.state == JobState.CANCELLED:
            queue.remove(row.id)
        queue.ring()
    except Unavailable as error:
        _log.warning("the cancellation of job %s waits for its worker to look: %s", row.id, error.message)
