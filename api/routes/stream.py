"""A job's life as it happens: server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.auth import Principal, User, visible_job
from api.openapi import STREAM, problems
from api.paging import NUMBER, number_after
from api.services import Parts, Services
from torchyard.contract.errors import Unavailable
from torchyard.contract.views import StoredKind

router = APIRouter(tags=["telemetry"], responses=problems(Unavailable))


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


@router.get("/jobs/{job_id}/stream", response_class=EventStream, responses=STREAM)
async def stream_job(
    *,
    parts: Parts,
    user: User,
    job_id: str,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="the `id` of the last event that was received",
            json_schema_extra={"pattern": NUMBER},
        ),
    ] = None,
    after: Annotated[
        str | None,
        Query(
            max_length=200,
            description="as `Last-Event-ID`, which goes before it",
            json_schema_extra={"pattern": NUMBER},
        ),
    ] = None,
    only: Annotated[list[StoredKind] | None, Query(max_length=20, description="only these kinds of events")] = None,
) -> EventStream:
    """All that is stored of the job, in order, and then each thing as it is stored; `end` is the last event.

    Each event has an `id`: sent back as `Last-Event-ID`, it resumes the stream with no loss and no repeat. A comment
    comes every 15 seconds when nothing else does. A stream that ends without `end` was cut: connect again.
    """
    begun, seen = number_after(after), number_after(last_event_id)
    await run_in_threadpool(_check, parts, user, job_id)
    events = parts.stream.events(job_id, after=begun if last_event_id is None else seen, kinds=frozenset(only or ()))
    return EventStream(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


def _check(parts: Services, user: Principal, job_id: str) -> None:
    with parts.store.read() as session:
        visible_job(session, job_id, user)
