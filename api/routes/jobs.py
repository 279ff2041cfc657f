"""Lists, shows, changes, stops and deletes jobs, and lists their events."""

from collections.abc import Sequence
import logging
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.auth.callers import JobId, JobReader, JobWriter, Principal
from api.middleware import etags
from api.openapi.completion import CONDITIONAL, headers, problems
from api.openapi.routers import guarded
from api.parameters.bodies import PatchBody, json_body
from api.parameters.dry import DryRun
from api.parameters.paging import (
    AfterJob,
    AfterNumber,
    Limit,
    job_after,
    job_cursor,
    number_after,
    order_of,
    page,
    table_after,
    table_cursor,
)
from api.parameters.reads import Parts, in_turns, with_data, writes_in_turns
from api.present import jobs as present
from api.present import prices
from api.services import Services, ServicesDep
from api.streams import waiting
from store import housekeeping
from store.attempts.facts import StopPrice
from store.jobs import actions, events, listing, requests, show, stop, table
from store.jobs.facts import AT_ONCE, JobCounts, JobFacts, Order
from torchyard.contract.errors import Conflict, FieldError, InvalidRequest, Unavailable
from torchyard.contract.jobs.columns import MOST_COLUMNS, ColumnName, GroupBy, GroupKey, Sort, parse_column
from torchyard.contract.jobs.filters import JobQuery
from torchyard.contract.jobs.requests import JobActions, ResumeRequest
from torchyard.contract.jobs.views import ActionsView, ColumnsView, JobPage, JobView, RefusedAction
from torchyard.contract.queue.views import StopView
from torchyard.contract.telemetry.views import EventView
from torchyard.contract.wire.view import Page

router = guarded("jobs", Unavailable)

_log = logging.getLogger(__name__)

ResumeBody = Annotated[ResumeRequest, json_body(ResumeRequest, example={"devices": 1}, required=False)]
ActionsBody = Annotated[
    JobActions,
    json_body(
        JobActions, example={"action": "cancel", "filter": {"state": ["queued"], "q": "digits"}, "dry_run": True}
    ),
]

_SHOWN_REFUSALS = 50
_PART_ROWS = 100
"""Rows of a page that are encoded in a turn."""

_CHANGED: dict[int | str, dict[str, Any]] = {200: {"model": JobView}, **problems(Conflict)}
_ASKED: dict[int | str, dict[str, Any]] = {202: {"model": JobView}, **problems(Conflict)}
_STOPPED: dict[int | str, dict[str, Any]] = {
    **_ASKED,
    200: {"model": StopView, "description": "With `dry_run`: the work that would be lost"},
}
_JOB: dict[int | str, dict[str, Any]] = {
    200: {"model": JobView, "headers": headers("ETag")},
    304: {"description": "The answer has not changed", "headers": headers("ETag")},
}


@router.get("/jobs", response_model=JobPage, responses=problems(InvalidRequest))
@in_turns
def list_jobs(
    *,
    services: ServicesDep,
    caller: JobReader,
    where: Annotated[JobQuery, Query()],
    sort: Annotated[
        Sort,
        Query(
            description="times sort newest first, `priority` highest first, the others A to Z. A column with a dot "
            "or a colon in its name sorts numbers first, then texts, then missing values. A leading `-`"
            " reverses the order",
        ),
    ] = "created",
    counts: Annotated[
        bool, Query(description="also count the jobs in each state; the counts ignore the filter `state`")
    ] = False,
    group_by: Annotated[
        GroupBy | None,
        Query(
            description="`label:KEY`, `sweep`, or a path into the spec: also answer one group for each value, with "
            "its count of jobs and the mean, deviation, minimum and maximum of each of the `columns`",
        ),
    ] = None,
    in_group: Annotated[
        GroupKey | None, Query(description="the `key` of a group of `group_by`: list only the jobs of this group")
    ] = None,
    columns: Annotated[
        list[ColumnName] | None,
        Query(
            max_length=MOST_COLUMNS,
            description="values to add to each row: a path into the spec, such as `config.optimizer.lr`; "
            "`metric:KEY:FIGURE`, where FIGURE is `last`, `min`, `max`, or `best` (at the best "
            "checkpoint); `label:KEY`; `sweep`; or `notes` (their first line)",
        ),
    ] = None,
    limit: Limit = 100,
    after: AfterJob = None,
) -> Parts[bytes]:
    """Lists jobs, newest first.

    A row has no spec, model card or notes. Request the job itself to read them.
    """
    shown = {name: parse_column(name) for name in columns or ()}
    by = None if group_by is None else parse_column(group_by)
    if in_group is not None and by is None:
        raise InvalidRequest("the request is not valid", errors=(FieldError("in_group", "needs `group_by`"),))
    group = None if by is None or in_group is None else (by, in_group)
    grouped, values = None, [*shown.values()]
    if by is not None and group is None:
        grouped = yield from table.group_jobs(services.store, where, caller=caller, by=by, columns=values)
    order = order_of(sort)
    if group is not None or isinstance(order, Order):
        begin = table_after(after)
        jobs = yield from table.list_arranged(
            services.store, where, caller=caller, limit=limit, sort=order, group=group, after=begin, columns=values
        )
        following = None if jobs.after is None else table_cursor(jobs.after)
        counted = _count(services, where, caller) if counts else None
    else:
        last = job_after(after, order)
        with services.store.read() as session:
            jobs = listing.list_jobs(
                session, where, caller=caller, limit=limit, sort=order, after=last, counts=counts, columns=values
            )
        counted = jobs.counts
        following = job_cursor(jobs.page.items[-1], order) if jobs.page.has_more else None
    rows = list[bytes]()
    for first in range(0, len(jobs.page.items), _PART_ROWS):
        if first:
            yield
        some = jobs.page.items[first : first + _PART_ROWS]
        rows += present.encoded_summaries(some, caller, columns=shown, cells=jobs.cells)
    rest = present.page(jobs, counted, grouped, shown, after=following)
    return with_data(rest, b"[%s]" % b",".join(rows))


@router.get("/jobs/columns", response_model=ColumnsView)
@in_turns
def list_columns(services: ServicesDep, caller: JobReader, where: Annotated[JobQuery, Query()]) -> Parts[ColumnsView]:
    """Lists the columns that the newest 500 of these jobs have values for."""
    return present.known_columns((yield from table.find_columns(services.store, where, caller=caller)))


@router.post("/jobs/actions", response_model=ActionsView)
@writes_in_turns
def act_on_jobs(services: ServicesDep, caller: JobWriter, wanted: ActionsBody) -> Parts[ActionsView]:
    """Does one action on many jobs: cancel, pause, resume, delete, archive, label or star.

    Select the jobs by `ids` or by a `filter`. A filter selects only jobs that the action would change. A refused job
    does not stop the others. One request changes at most 1,000 jobs: repeat it while `more` is true.
    """
    chosen = wanted.ids if "ids" in wanted.model_fields_set else wanted.filter
    result = yield from actions.act(
        services.store,
        wanted.action,
        chosen,
        caller=caller,
        now=wanted.now,
        labels=wanted.labels,
        dry_run=wanted.dry_run,
    )
    if wanted.action == "delete" and result.done:
        collect_garbage(services)
    return ActionsView(
        matched=result.matched,
        done=result.done,
        refused=[
            RefusedAction(job_id=item.job_id, code=item.error.code, message=item.error.message)
            for item in result.refused[:_SHOWN_REFUSALS]
        ],
        more=result.more,
        price=None if result.prices is None else _price_of_all(result.prices, caller, wanted),
    )


@router.get("/jobs/{job_id}", status_code=200, openapi_extra=CONDITIONAL, responses=_JOB)
async def get_job(
    *,
    request: Request,
    services: ServicesDep,
    caller: JobReader,
    job_id: JobId,
    wait: Annotated[
        float, Query(ge=0, le=60, allow_inf_nan=False, description="maximum seconds to wait for a change")
    ] = 0,
    after_version: Annotated[
        int | None,
        Query(ge=0, lt=2**31, description="wait until `version` is above this number; default: the current version"),
    ] = None,
) -> Response:
    """Returns a job. With `wait`, answers when its version rises above `after_version`, or when the wait is over."""
    if wait:
        async with services.access.open_streams.open(caller.key):
            await waiting.for_version(services.access, services.live, caller, job_id, above=after_version, seconds=wait)
    content = await run_in_threadpool(_content, services, caller, job_id)
    return etags.answer(request, content, media_type="application/json")


@router.patch("/jobs/{job_id}", responses=_CHANGED)
def change_job(services: ServicesDep, caller: JobWriter, job_id: JobId, patch: PatchBody) -> Response:
    """Changes the name, labels, notes, visibility or archived flag of a job, or the priority of a queued one.

    Omitted fields do not change. `labels` replaces all labels.
    """
    with services.store.write("change") as session:
        job = requests.change(session, job_id, patch, caller=caller)
    return _answer(job, caller)


@router.post("/jobs/{job_id}/cancel", status_code=202, responses=_STOPPED)
def cancel_job(
    services: ServicesDep,
    caller: JobWriter,
    job_id: JobId,
    now: Annotated[bool, Query(description="kill a running or stopping job at once, without a checkpoint")] = False,
    dry_run: DryRun = False,
) -> Response:
    """Cancels a waiting job at once. Asks a running job to save a checkpoint and stop.

    An operator cancels other users' private jobs by `POST /v1/jobs/actions` with `ids` and `now`.
    """
    if dry_run:
        with services.store.read() as session:
            price = stop.price_stop(session, "cancel", job_id, caller=caller, now=now)
        return _answer_price(prices.stop(price, caller, ends=True))
    grace = AT_ONCE if now else None
    with services.store.write("cancel") as session:
        job = requests.ask(session, "cancel", job_id, caller=caller, grace=grace)
    return _answer(job, caller, status=202)


@router.post("/jobs/{job_id}/pause", status_code=202, responses=_STOPPED)
def pause_job(services: ServicesDep, caller: JobWriter, job_id: JobId, dry_run: DryRun = False) -> Response:
    """Pauses a waiting job at once. Asks a running job to save a checkpoint, stop, and release its devices."""
    if dry_run:
        with services.store.read() as session:
            price = stop.price_stop(session, "pause", job_id, caller=caller)
        return _answer_price(prices.stop(price, caller))
    with services.store.write("pause") as session:
        job = requests.ask(session, "pause", job_id, caller=caller)
    return _answer(job, caller, status=202)


@router.post("/jobs/{job_id}/resume", status_code=202, responses=_ASKED)
def resume_job(services: ServicesDep, caller: JobWriter, job_id: JobId, wanted: ResumeBody) -> Response:
    """Queues a paused job again. The job resumes from its newest checkpoint."""
    with services.store.write("resume") as session:
        job = requests.ask(session, "resume", job_id, caller=caller, devices=wanted.devices)
    return _answer(job, caller, status=202)


@router.delete("/jobs/{job_id}", status_code=204, responses=problems(Conflict), response_class=Response)
def delete_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> Response:
    """Deletes a finished job and everything that it stored: events, metrics, logs, files and checkpoints."""
    with services.store.write("delete") as session:
        requests.act(session, "delete", job_id, caller=caller)
    return Response(status_code=204, background=BackgroundTask(collect_garbage, services))


@router.get("/jobs/{job_id}/events")
@in_turns
def list_events(
    services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterNumber = None
) -> Page[EventView]:
    """Lists the events of a job with a `seq` above `after`, in order. A page has at most 8 MiB."""
    seq = number_after(after)
    with services.store.read() as session:
        listed = events.list_events(session, job_id, caller=caller, after=seq, limit=limit)
    return page(EventView, listed, lambda event: event, cursor=lambda event: str(event.seq))


def collect_garbage(services: Services) -> None:
    """Removes files of deleted jobs, after the answer."""
    try:
        housekeeping.collect_garbage(services.store)
    except (Unavailable, OSError) as error:
        _log.warning("files of deleted jobs are left for a worker's sweep: %s", error)


def _answer(job: JobFacts, caller: Principal, *, status: int = 200) -> Response:
    return Response(present.encoded_job(job, caller), status_code=status, media_type="application/json")


def _answer_price(view: StopView) -> Response:
    return Response(view.model_dump_json(), media_type="application/json")


def _price_of_all(each_price: Sequence[StopPrice], caller: Principal, wanted: JobActions) -> StopView:
    return prices.stops(each_price, caller, ends=wanted.action == "cancel", now=wanted.now)


def _count(services: Services, where: JobQuery, caller: Principal) -> JobCounts:
    with services.store.read() as session:
        return listing.count_states(session, where, caller=caller)


def _content(services: Services, caller: Principal, job_id: str) -> bytes:
    with services.store.read() as session:
        job = show.find_job(session, job_id, caller)
    return present.encoded_job(job, caller)
