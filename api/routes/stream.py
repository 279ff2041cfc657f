"""Streams what a job stores, as server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.auth import JobReader, check_watcher, open_stream
from api.openapi import STREAM, problems
from api.paging import NUMBER, number_after
from api.services import ServicesDep
from torchyard.contract.errors import Unavailable
from torchyard.contract.views import StoredKind

router = APIRouter(tags=["telemetry"], responses=problems(Unavailable))


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


@router.get("/jobs/{job_id}/stream", response_class=EventStream, responses=STREAM, dependencies=[Depends(open_stream)])
async def stream_job(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="the `id` of the last event that you received",
            json_schema_extra={"pattern": NUMBER},
        ),
    ] = None,
    after: Annotated[
        str | None,
        Query(
            max_length=200,
            description="the same as `Last-Event-ID`, which takes precedence",
            json_schema_extra={"pattern": NUMBER},
        ),
    ] = None,
    only: Annotated[list[StoredKind] | None, Query(max_length=20, description="only these kinds of events")] = None,
) -> EventStream:
    """Streams everything that the job has stored, in order, then each new item at once. `end` is the last event.

    Each event has an `id`: send it as `Last-Event-ID` to resume the stream without loss or repetition. A comment is
    sent after 15 seconds without an event. A stream that ends without `end` was interrupted: connect again.
    It also ends with the token.
    """
    begun, seen = number_after(after), number_after(last_event_id)
    await run_in_threadpool(check_watcher, services, caller, job_id)
    events = services.stream.events(
        job_id,
        after=begun if last_event_id is None else seen,
        kinds=frozenset(only or ()),
        user=caller.name,
        check=lambda: check_watcher(services, caller, job_id),
    )
    return EventStream(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
