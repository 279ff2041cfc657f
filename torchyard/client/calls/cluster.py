"""Calls about workers, trainers and the service."""

from datetime import datetime
from typing import Any

from torchyard.client.calls.call import Call, segment
from torchyard.contract.cluster.views import ReadyView, TrainerView, WorkerHistoryView, WorkerView
from torchyard.contract.queue.views import StopView
from torchyard.contract.wire.view import Page


def trainers() -> Call[Page[TrainerView]]:
    return Call(Page[TrainerView], "GET", "/v1/trainers")


def workers() -> Call[Page[WorkerView]]:
    return Call(Page[WorkerView], "GET", "/v1/workers")


def worker_history(
    worker_id: str, *, begins: datetime | None, ends: datetime | None, max_points: int | None
) -> Call[WorkerHistoryView]:
    times = {"from": begins, "to": ends}
    params: dict[str, Any] = {name: time.astimezone().isoformat() for name, time in times.items() if time is not None}
    path = f"/v1/workers/{segment(worker_id)}/history"
    return Call(WorkerHistoryView, "GET", path, {**params, "max_points": max_points})


def drain(worker_id: str) -> Call[WorkerView]:
    return Call(WorkerView, "POST", f"/v1/workers/{segment(worker_id)}/drain")


def price_of_drain(worker_id: str) -> Call[StopView]:
    return Call(StopView, "POST", f"/v1/workers/{segment(worker_id)}/drain", {"dry_run": "true"})


def undrain(worker_id: str) -> Call[WorkerView]:
    return Call(WorkerView, "POST", f"/v1/workers/{segment(worker_id)}/undrain")


def ready() -> Call[ReadyView]:
    return Call(ReadyView, "GET", "/readyz")
