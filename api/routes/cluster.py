"""Lists trainers, workers and the queue, and drains workers."""

import functools
from functools import partial
import inspect
import json
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from starlette.responses import Response

from api import blocking
from api.auth.callers import ClusterReader, ClusterWriter, JobReader
from api.middleware import etags
from api.openapi.completion import CONDITIONAL, headers, problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.dry import DryRun
from api.parameters.paging import AfterQueueEntry, AfterWorker, Limit, QueueCursors, id_after, page
from api.parameters.reads import in_turns
from api.present import jobs, prices
from api.present.times import time
from api.services import Services, ServicesDep
from store.attempts import prices as stop_prices
from store.cluster import shown_workers as workers
from store.cluster.facts import HolderFacts, KeptFacts, PoolFacts, WorkerFacts, WorkerHistory
from store.ids import is_id
from store.jobs import queued
from store.team.callers import Caller, may_list
from torchyard.contract.cluster.devices import StartsReport
from torchyard.contract.cluster.views import (
    DeviceColumns,
    DeviceHistory,
    DeviceView,
    HistoryJobView,
    HolderView,
    KeptView,
    PoolView,
    TrainerView,
    WorkerHistoryView,
    WorkerView,
)
from torchyard.contract.errors import Forbidden, NotFound, Unavailable
from torchyard.contract.jobs.filters import Instant
from torchyard.contract.queue.views import QueuePage, StopView
from torchyard.contract.spec.spec import CONFIGS, SPEC
from torchyard.contract.sweeps.spec import SweepSpec
from torchyard.contract.team.requests import WorkerUsers
from torchyard.contract.wire.view import Page

router = guarded("cluster")

UsersBody = Annotated[WorkerUsers, json_body(WorkerUsers, example={"users": ["alice"]})]
_MOST_LOOKED_AT = 100
"""Workers that are looked through for the jobs for which others wait."""
_SCHEMA: dict[int | str, dict[str, Any]] = {
    200: {"model": dict[str, Any], "headers": headers("ETag")},
    304: {"description": "The answer has not changed", "headers": headers("ETag")},
}
_DRAINED: dict[int | str, dict[str, Any]] = {
    200: {"model": WorkerView | StopView, "description": "The worker; with `dry_run`, the work that would be lost"},
    **problems(Unavailable, Forbidden),
}


@router.get("/trainers")
def list_trainers(caller: JobReader) -> Page[TrainerView]:
    """Lists the trainers that a job may name, each with the JSON schema of its `config`."""
    return _trainers()


@router.get("/spec/schema", openapi_extra=CONDITIONAL, responses=_SCHEMA)
def get_spec_schema(
    request: Request,
    caller: JobReader,
    *,
    of: Annotated[
        Literal["job", "sweep"], Query(description="`sweep`: the schema of a sweep instead of a job spec")
    ] = "job",
) -> Response:
    """Returns the JSON schema of a job spec, or of a sweep. All its defaults are valid."""
    return etags.answer(request, _spec_schema(of), media_type="application/json")


@router.get("/workers", responses=problems(Unavailable))
@in_turns
def list_workers(
    services: ServicesDep, caller: ClusterReader, limit: Limit = 100, after: AfterWorker = None
) -> Page[WorkerView]:
    """Lists the workers, their devices, and the job on each device."""
    cursor = id_after(after, "wrk")
    with services.store.read() as session:
        rows = workers.list_workers(session, limit=limit, after=cursor)
    return page(WorkerView, rows, partial(worker_view, caller=caller), cursor=lambda worker: worker.id)


@router.get("/workers/{worker_id}", responses=problems(Unavailable))
@in_turns
def get_worker(services: ServicesDep, caller: ClusterReader, worker_id: str) -> WorkerView:
    """Returns one worker and its devices."""
    _check_id(worker_id)
    with services.store.read() as session:
        facts = workers.find_worker(session, worker_id)
    return worker_view(facts, caller)


@router.get("/workers/{worker_id}/history", responses=problems(Unavailable))
@in_turns
def get_worker_history(
    *,
    services: ServicesDep,
    caller: ClusterReader,
    worker_id: str,
    begins: Annotated[
        Instant | None, Query(alias="from", description="start of the period (RFC 3339); default: one hour ago")
    ] = None,
    ends: Annotated[Instant | None, Query(alias="to", description="end of the period (RFC 3339); default: now")] = None,
    max_points: Annotated[int, Query(ge=2, le=3000, description="maximum number of time slots")] = 1000,
) -> WorkerHistoryView:
    """Returns the utilization of a worker's devices over time.

    Slots are 5 seconds long for the last hour, one minute for a day, and 15 minutes for 30 days. More than `max_points`
    slots are merged into longer ones.
    """
    _check_id(worker_id)
    first, last = (None if time is None else int(time.timestamp()) for time in (begins, ends))
    with services.store.read() as session:
        history = workers.read_history(session, worker_id, caller=caller, begins=first, ends=last, most=max_points)
    return worker_history_view(history)


@router.post("/workers/{worker_id}/drain", responses=_DRAINED)
def drain_worker(services: ServicesDep, caller: ClusterWriter, worker_id: str, dry_run: DryRun = False) -> Response:
    """Drains a worker: it takes no more jobs. Running jobs save and return to the queue; this uses up no restart."""
    if dry_run:
        _check_id(worker_id)
        with services.store.read() as session:
            return _answer(prices.stops(stop_prices.price_drain(session, worker_id), caller))
    return _answer(_set_drain(services, caller, worker_id, drain=True))


@router.post("/workers/{worker_id}/undrain", responses=problems(Unavailable, Forbidden))
def undrain_worker(services: ServicesDep, caller: ClusterWriter, worker_id: str) -> WorkerView:
    """Ends a drain: the worker takes jobs again."""
    return _set_drain(services, caller, worker_id, drain=False)


@router.put("/workers/{worker_id}/users", responses=problems(Unavailable, Forbidden))
def set_worker_users(services: ServicesDep, caller: ClusterWriter, worker_id: str, change: UsersBody) -> WorkerView:
    """Restricts a worker to the jobs of these users; null allows all. Running jobs continue."""
    _check_id(worker_id)
    with services.store.write("team") as session:
        worker = workers.set_users(session, worker_id, change.users, caller=caller)
    return worker_view(worker, caller)


@router.get("/queue", responses=problems(Unavailable))
@in_turns
def list_queue(
    services: ServicesDep, caller: ClusterReader, limit: Limit = 100, after: AfterQueueEntry = None
) -> QueuePage:
    """Lists the queued jobs in queue order, each with the reason why it waits.

    The highest priority is first. Within a priority, the earliest submission is first, minus the owner's credit: up to
    72 hours for an owner with little recent usage. Jobs of owners at their quota are last. A job that fits may start
    before an earlier one that does not. Another user's private job has no id, name or reason.
    """
    cursors = QueueCursors(services.access.token)
    begin = cursors.read(after)
    with services.store.read() as session:
        page = queued.list_queue(session, limit=limit, after=begin)
        is_nameable = any(facts.reason.code in blocking.NAMEABLE for facts in page.items)
        seen = workers.list_workers(session, limit=_MOST_LOOKED_AT) if is_nameable else None
    # Of more, it is not known whether another one is large enough.
    hosts = [worker_view(worker, caller) for worker in seen.items] if seen and not seen.has_more else []
    return QueuePage(
        data=[jobs.queue_entry(facts, caller, hosts) for facts in page.items],
        has_more=page.has_more,
        next=cursors.of(page.last) if page.has_more and page.last is not None else None,
        total=page.total,
    )


def worker_view(facts: WorkerFacts, caller: Caller) -> WorkerView:
    """Returns the view of a worker, as the caller may see it."""
    seen = [DeviceView.model_validate(device) for device in facts.devices]
    return WorkerView(
        id=facts.id,
        name=facts.name,
        state="lost" if not facts.alive else "draining" if facts.draining else "ready",
        started_at=time(facts.started_at),
        seen_at=time(facts.seen_at),
        devices=[_device(device, facts.holders.get(device.uuid), caller) for device in seen],
        starts=None if facts.starts is None else StartsReport.from_dict(facts.starts),
        kept=[_kept(kept, caller) for kept in facts.kept],
        pool=None if facts.pool is None else _pool(facts.pool),
        remote=facts.remote,
        users=None if facts.users is None else [*facts.users],
    )


def worker_history_view(facts: WorkerHistory) -> WorkerHistoryView:
    """Returns the history of the devices that the worker has now. Jobs are named that the caller may list."""
    return WorkerHistoryView(
        worker_id=facts.worker_id,
        resolution_seconds=facts.history.resolution,
        devices=[
            DeviceHistory(
                uuid=device.uuid,
                index=device.index,
                name=device.name,
                kind=device.kind,
                columns=_columns(facts, device.uuid),
            )
            for device in map(DeviceView.model_validate, facts.devices)
        ],
        jobs=[HistoryJobView(id=job.id, name=job.name, owner=job.owner) for job in facts.listed_jobs.values()],
    )


@functools.cache
def _trainers() -> Page[TrainerView]:
    return Page[TrainerView](
        data=[
            TrainerView(name=name, description=inspect.getdoc(config) or "", config_schema=config.model_json_schema())
            for name, config in CONFIGS.items()
        ]
    )


@functools.cache
def _spec_schema(of: Literal["job", "sweep"]) -> bytes:
    schema = SPEC.json_schema if of == "job" else SweepSpec.model_json_schema
    return json.dumps(schema(mode="serialization")).encode()


def _set_drain(services: Services, caller: Caller, worker_id: str, *, drain: bool) -> WorkerView:
    _check_id(worker_id)
    with services.store.write("drain") as session:
        worker = workers.drain(session, worker_id, drain=drain, caller=caller)
    return worker_view(worker, caller)


def _kept(facts: KeptFacts, caller: Caller) -> KeptView:
    seen = may_list(caller, facts)
    return KeptView(
        kind="cuda" if facts.kind == "cuda" else "cpu",
        owner=facts.owner,
        job_id=facts.job_id if seen else None,
        name=facts.name if seen else None,
    )


def _answer(view: WorkerView | StopView) -> Response:
    return Response(view.model_dump_json(), media_type="application/json")


def _check_id(worker_id: str) -> None:
    if not is_id(worker_id, "wrk"):
        raise NotFound(f"there is no worker {worker_id[:100]!r}")


def _columns(facts: WorkerHistory, uuid: str) -> DeviceColumns:
    history = [(float(begins), uses[uuid]) for begins, uses in facts.history.slots.items() if uuid in uses]
    return DeviceColumns(
        time=[begins for begins, _ in history],
        utilization=[use.utilization for _, use in history],
        utilization_max=[use.utilization_max for _, use in history],
        memory_used=[use.memory_used for _, use in history],
        power_watts=[use.power_watts for _, use in history],
        job_id=[use.job_id if use.job_id in facts.listed_jobs else None for _, use in history],
    )


def _pool(facts: PoolFacts) -> PoolView:
    return PoolView.model_validate({**facts.report, "waiting": facts.waiting, "running": facts.running})


def _device(device: DeviceView, holder: HolderFacts | None, caller: Caller) -> DeviceView:
    if holder is None:
        return device
    seen = may_list(caller, holder)
    shown = HolderView(
        owner=holder.owner,
        state=holder.state,
        since=time(holder.since),
        name=holder.name if seen else None,
        guest=holder.guest,
    )
    return device.model_copy(update={"job_id": holder.job_id if seen else None, "holder": shown})
