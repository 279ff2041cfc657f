"""Reads the attempts of a job, each with its worker and its devices."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.tables import Allocation, Attempt, Worker
from torchyard.contract.devices import DeviceReport


@dataclass(frozen=True)
class HeldBefore:
    """A device that an attempt holds or held. `known` is None if its worker does not have it any more."""

    worker: str
    uuid: str
    known: DeviceReport | None


@dataclass(frozen=True)
class ListedAttempt:
    row: Attempt
    worker: str
    """The name of its worker."""
    devices: Sequence[HeldBefore]


def after(session: Session, job_id: str, *, number: int, limit: int) -> list[ListedAttempt]:
    """Returns the attempts numbered above `number`, oldest first, with a fixed number of queries."""
    query = select(Attempt).where(Attempt.job_id == job_id, Attempt.number > number)
    rows = session.scalars(query.order_by(Attempt.number).limit(limit)).all()
    held = session.execute(
        select(Allocation.attempt_id, Allocation.worker_id, Allocation.device)
        .where(Allocation.attempt_id.in_([row.id for row in rows]))
        .order_by(Allocation.id)
    ).all()
    wanted = {row.worker_id for row in rows} | {row.worker_id for row in held}
    workers = {row.id: row for row in session.scalars(select(Worker).where(Worker.id.in_(wanted)))}
    known = {
        (worker.id, device["uuid"]): DeviceReport.from_dict(device)
        for worker in workers.values()
        for device in worker.devices
    }
    devices: dict[int, list[HeldBefore]] = {}
    for attempt_id, worker_id, uuid in held:
        device = HeldBefore(workers[worker_id].name, uuid, known.get((worker_id, uuid)))
        devices.setdefault(attempt_id, []).append(device)
    return [ListedAttempt(row, workers[row.worker_id].name, devices.get(row.id, [])) for row in rows]
