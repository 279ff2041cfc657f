"""Streams what jobs store, as server-sent events."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.auth.callers import JobReader, check_watched, check_watcher, open_stream
from api.openapi.completion import JOBS_STREAM, STREAM
from api.openapi.routers import guarded
from api.parameters.paging import NUMBER, POSITIONS, number_after, positions_after
from api.services import Services, ServicesDep
from api.streams.multiplexed import WatchRequest
from store.jobs import timeline
from store.jobs.facts import Head
from store.team.callers import Caller
from torchyard.contract.errors import Forbidden, Unavailable
from torchyard.contract.team.roles import Scope
from torchyard.contract.telemetry.views import StoredKind, StreamTopic

router = guarded("telemetry", Unavailable)

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


_LAST_ITEM = "the `id` of the last event that you received"
_LAST_POSITIONS = "the last `id` that you received"
_INSTEAD = "the same as `Last-Event-ID`, which takes precedence"


def _header(description: str, pattern: str, *, max_length: int | None = None) -> Any:
    return Header(
        alias="Last-Event-ID", description=description, max_length=max_length, json_schema_extra={"pattern": pattern}
    )


LastNumber = Annotated[str | None, _header(_LAST_ITEM, NUMBER)]
AfterNumber = Annotated[str | None, Query(max_length=200, description=_INSTEAD, json_schema_extra={"pattern": NUMBER})]
LastPositions = Annotated[str | None, _header(_LAST_POSITIONS, POSITIONS, max_length=3000)]
AfterPositions = Annotated[
    str | None,
    Query(
        max_length=3000,
        description=f"{_INSTEAD}: `JOB:POSITION,JOB:POSITION…`",
        json_schema_extra={"pattern": POSITIONS},
    ),
]
JobIds = Annotated[
    list[Annotated[str, Query(max_length=100)]] | None, Query(max_length=50, description="jobs to watch")
]


@router.get("/jobs/{job_id}/stream", response_class=EventStream, responses=STREAM, dependencies=[Depends(open_stream)])
async def stream_job(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    last_event_id: LastNumber = None,
    after: AfterNumber = None,
    only: Annotated[list[StoredKind] | None, Query(max_length=20, description="only these kinds of events")] = None,
) -> EventStream:
    """Streams everything that the job has stored, in order, then each new item at once. `end` is the last event.

    Each event but `live` has an `id`: send it as `Last-Event-ID` to resume the stream without loss or repetition.
    `live` is the newest text of a line that has no end so far, such as a progress bar, about once a second; nothing
    stores it. It comes with `only=log` too. A comment is sent after 15 seconds without an event. A stream that ends
    without `end` was interrupted: connect again. It also ends with the token.
    """
    begun, seen = number_after(after), number_after(last_event_id)
    await services.access.at_once(check_watcher, services.access, caller, job_id)
    events = services.single_stream.events(
        job_id,
        after=begun if last_event_id is None else seen,
        kinds=frozenset(only or ()),
        user=caller.name,
        check=lambda: services.access.at_once(check_watcher, services.access, caller, job_id),
    )
    return EventStream(events, headers=STREAM_HEADERS)


@router.get("/stream", response_class=EventStream, responses=JOBS_STREAM, dependencies=[Depends(open_stream)])
async def stream_jobs(
    *,
    services: ServicesDep,
    caller: JobReader,
    job: JobIds = None,
    topic: Annotated[list[StreamTopic] | None, Query(max_length=3, description="lists to watch")] = None,
    kind: Annotated[list[StoredKind] | None, Query(max_length=20, description="only these kinds of items")] = None,
    last_event_id: LastPositions = None,
    after: AfterPositions = None,
) -> EventStream:
    """Streams what several jobs store and that lists have changed, until the caller leaves.

    `ready` comes first, and has the cursor at which the stream begins: for a job that `after` does not name, now.
    `items` has all that a job has stored since its last one, up to `position`, at most four times a second unless the
    stream is behind. `live` is the newest text of a line that has no end so far, which nothing stores. `job` is the
    row of a job that has changed, at first of each that you watch, and with the topic `jobs` of each that you may list.
    `jobs`, `queue` and `workers` say that a list is to be read again; `jobs` also
    that a job which you watch was deleted.

    Only `ready` and `items` have an `id`: send the last as `Last-Event-ID` to resume without loss or repetition of
    items. Read your lists again then. A comment is sent after 15 seconds without an event. The stream ends with the
    token; a job that you may not read any more falls silent.
    """
    if topic and {"queue", "workers"}.intersection(topic) and Scope.CLUSTER_READ not in caller.scopes:
        raise Forbidden(f"the topics `queue` and `workers` need the scope {Scope.CLUSTER_READ}")
    begun, seen = positions_after(after), positions_after(last_event_id)
    asked = WatchRequest(
        heads=await run_in_threadpool(_find_heads, services, [*dict.fromkeys(job or ())], caller),
        after=begun if last_event_id is None else seen,
        kinds=frozenset(kind or ()),
        topics=frozenset(topic or ()),
        caller=caller,
        check=lambda job_ids: services.access.at_once(check_watched, services.access, caller, job_ids),
    )
    return EventStream(services.multiplexed_stream.events(asked), headers=STREAM_HEADERS)


def _find_heads(services: Services, job_ids: Sequence[str], caller: Caller) -> dict[str, Head]:
    with services.store.read() as session:
        return timeline.find_heads(session, job_ids, caller=caller)
