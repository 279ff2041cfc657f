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
_INSTEAD = "same as `Last-Event-ID`, which takes precedence"


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
        description=f"{_INSTEAD}. Its form is `JOB:POSITION,JOB:POSITION…`",
        json_schema_extra={"pattern": POSITIONS},
    ),
]
JobIds = Annotated[
    list[Annotated[str, Query(max_length=100)]] | None, Query(max_length=50, description="ids of the jobs to watch")
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
    """Streams all stored items of a job in order, then each new item at once (server-sent events).

    The last event is `end`. A stream without `end` was interrupted: connect again with the last `id` as
    `Last-Event-ID`, and no item is lost or repeated. `live` is the text of an unfinished line, such as a progress bar,
    at most once a second; it has no `id` and is not stored. `only=log` includes `live`. The service sends a comment
    after 15 seconds without an event. The stream ends when the token expires or is revoked.
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
    """Streams the new items of several jobs and the changes of lists, until you disconnect (server-sent events).

    `ready` comes first and has the cursor. A job that `after` does not name starts now. `items` has the items that a
    job stored since the previous `items`, at most four times a second. `live` is the text of an unfinished line, and is
    not stored. `job` is the row of a changed job: first of each job that you watch, and with the topic `jobs` of each
    job that you may list. `jobs`, `queue` and `workers` tell you to read that list again; `jobs` also tells you that a
    watched job was deleted.

    Only `ready` and `items` have an `id`. Connect again with the last `id` as `Last-Event-ID`: no item is lost or
    repeated. After each `ready`, read your lists again. The service sends a comment after 15 seconds without an event.
    The stream ends when the token expires or is revoked. It sends nothing about a job that you may no longer read.
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
