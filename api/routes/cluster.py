"""Lists trainers, workers and the queue, and drains workers."""

import inspect

from fastapi import APIRouter

from api import present
from api.auth import Principal, User
from api.openapi import problems
from api.paging import AfterPlace, AfterWorker, Limit, id_after, page, place_after, place_cursor
from api.services import Services, ServicesDep
from store.commands import requests
from store.ids import is_id
from store.queries import listing
from store.queries.listing import QueueCursor
from store.rows import jobs, workers
from torchyard.contract.errors import Forbidden, NotFound, Unavailable
from torchyard.contract.spec import CONFIGS
from torchyard.contract.views import Page, QueueEntry, TrainerView, WorkerView

router = APIRouter(tags=["cluster"])


@router.get("/trainers")
def list_trainers() -> Page[TrainerView]:
    """Lists the trainers that a job may name, each with the JSON schema of its `config`."""
    return Page[TrainerView](
        data=[
            TrainerView(name=name, description=inspect.getdoc(config) or "", config_schema=config.model_json_schema())
            for name, config in CONFIGS.items()
        ]
    )


@router.get("/workers", responses=problems(Unavailable))
def list_workers(services: ServicesDep, limit: Limit = 100, after: AfterWorker = None) -> Page[WorkerView]:
    """Lists hosts and their devices, and the job that holds each."""
    cursor = id_after(after, "wrk")
    with services.store.read() as session:
        found = workers.list_all(session, limit=limit + 1, after=cursor)
        holders = jobs.device_holders(session)
    shown = [present.worker(row, alive, holders) for row, alive in found]
    return page(WorkerView, shown, limit=limit, cursor=lambda worker: worker.id)


@router.get("/workers/{worker_id}", responses=problems(Unavailable))
def get_worker(services: ServicesDep, worker_id: str) -> WorkerView:
    """Returns one host and its devices."""
    _check_id(worker_id)
    with services.store.read() as session:
        row, alive = workers.get(session, worker_id)
        return present.worker(row, alive, jobs.device_holders(session))


@router.post("/workers/{worker_id}/drain", responses=problems(Unavailable, Forbidden))
def drain_worker(services: ServicesDep, user: User, worker_id: str) -> WorkerView:
    """Stops the worker from taking jobs. Its running jobs save a checkpoint and return to the queue, uncounted."""
    return _set_drain(services, user, worker_id, drain=True)


@router.post("/workers/{worker_id}/undrain", responses=problems(Unavailable, Forbidden))
def undrain_worker(services: ServicesDep, user: User, worker_id: str) -> WorkerView:
    """Lets the worker take jobs again."""
    return _set_drain(services, user, worker_id, drain=False)


@router.get("/queue", responses=problems(Unavailable))
def list_queue(services: ServicesDep, user: User, limit: Limit = 100, after: AfterPlace = None) -> Page[QueueEntry]:
    """Lists the queued jobs in the order in which workers try to start them, and why each has not started.

    The highest priority is first, then the oldest. A job that fits starts before an earlier one that does not fit.
    """
    behind = place_after(after)
    with services.store.read() as session:
        entries = present.queue(session, listing.queue(session, limit=limit + 1, owner=user.sees, after=behind))
    return page(
        QueueEntry, entries, limit=limit, cursor=lambda entry: place_cursor(QueueCursor(entry.priority, entry.job_id))
    )


def _set_drain(services: Services, user: Principal, worker_id: str, *, drain: bool) -> WorkerView:
    _check_id(worker_id)
    if not user.admin:
        raise Forbidden("only an administrator may drain or undrain a worker")
    return requests.drain(
        services.store,
        worker_id,
        drain=drain,
        answer=lambda session, row, alive: present.worker(row, alive, jobs.device_holders(session)),
    )


def _check_id(worker_id: str) -> None:
    if not is_id(worker_id, "wrk"):
        raise NotFound(f"there is no worker {worker_id[:100]!r}")
