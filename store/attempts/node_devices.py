"""The devices that a cluster has given to an attempt, as its nodes tell: for who looks, and for no quota."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.announcement import WORKERS, announcement_of
from store.attempts.facts import NodeHeld
from store.db.database import now_us
from store.db.stored_spec import parse_resources
from store.db.upsert import upsert
from store.jobs import jobs
from store.tables import Allocation, Attempt, Job
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.wire.text import printable

_LONGEST_UUID = 100
_LONGEST_NAME = 255

_Held = tuple[int, str, DeviceReport]
"""A node's number and name, and one of its devices."""


def hold(session: Session, attempt: Attempt, nodes: Sequence[NodeHeld]) -> None:
    """Stores the devices of a pool's attempt, whose row is locked. Repeating it changes nothing.

    A node may tell anything: no more is stored than the job has asked for. A device that another attempt of the pool
    has is this one's from now on: the cluster has given it away, and the end of the other is not stored yet.
    """
    job = jobs.require(session, attempt.job_id)
    held = [*_asked_for(job, nodes)] if attempt.pool_devices else []
    shown = [_shown(attempt.worker_id, *each) for each in held]
    if not shown or job.devices == shown:
        return
    _allocate(session, attempt, held)
    session.execute(update(Job).where(Job.id == job.id).values(devices=shown, version=Job.version + 1))
    session.refresh(job)
    jobs.announce(session, job)
    announcement_of(session).mark_changed(WORKERS)


def _asked_for(job: Job, nodes: Sequence[NodeHeld]) -> Iterator[_Held]:
    asked = parse_resources(job.spec["resources"])
    for number, node in enumerate(nodes[: asked.nodes]):
        host = printable(node.host)[:_LONGEST_NAME]
        for device in node.devices[: asked.devices_per_node]:
            uuid, name = printable(device.uuid)[:_LONGEST_UUID], printable(device.name)[:_LONGEST_NAME]
            yield number, host, replace(device, uuid=uuid, name=name)


def _shown(worker_id: str, node: int, host: str, device: DeviceReport) -> dict[str, Any]:
    of_node = {"node": node, "host": host}
    return {"worker": worker_id, "index": device.index, "uuid": device.uuid, "name": device.name, **of_node}


def _allocate(session: Session, attempt: Attempt, held: Sequence[_Held]) -> None:
    uuids = sorted({device.uuid for _, _, device in held})
    others = select(Allocation.id).where(
        Allocation.worker_id == attempt.worker_id, Allocation.released_at.is_(None), Allocation.device.in_(uuids)
    )
    # Always in one order, as other attempts may do the same at this moment.
    taken = [*session.scalars(others.order_by(Allocation.id).with_for_update())]
    session.execute(update(Allocation).where(Allocation.id.in_(taken)).values(released_at=now_us()))
    rows = [
        {
            "attempt_id": attempt.id,
            "node_rank": node,
            "worker_id": attempt.worker_id,
            "device": device.uuid,
            "kind": device.kind,
        }
        for node, _, device in sorted(held, key=lambda each: each[2].uuid)
    ]
    session.execute(upsert(session, Allocation).on_conflict_do_nothing(), rows)
