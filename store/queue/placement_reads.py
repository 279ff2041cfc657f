"""Reads what `scheduling.plan` needs, at one moment. It costs by the groups of waiting jobs, not by the jobs."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from scheduling.snapshot import Displacement, Place, Snapshot
from scheduling.steps import Plan
from store.cluster import rows as cluster
from store.db.database import Snapshots
from store.queue import planning, reservations, waiting
from store.queue.groups import Groups
from torchyard.contract.devices import DeviceReport
from torchyard.contract.durations import LONGEST_STOP_GRACE

Read = Callable[[], AbstractContextManager[Session]]


def read_snapshot(
    read: Read,
    *,
    here: str,
    devices: Sequence[DeviceReport],
    max_stop_grace: timedelta = LONGEST_STOP_GRACE,
    turn: int = 0,
) -> tuple[Snapshot, Plan] | None:
    """Returns the cluster as the worker `here` reads it, and its plan; None if no job waits. Raises Unavailable.

    Jobs are found in the line, and what is said of them is in their rows.

    `devices`: the worker's own, as they are now. `max_stop_grace`: what cuts the jobs' `stop_grace`. `turn`: rises
    from pass to pass, so that all requests of an owner with very many are looked at.
    """
    with read() as session:
        groups = Groups(session, turn=turn)
        heads = groups.heads()
        if not heads:
            return None
        snapshot = planning.snapshot(session, heads, {here: devices}, here=here, max_stop_grace=max_stop_grace)
        snapshot = replace(snapshot, crowded=groups.crowded)
        return planning.with_successors(snapshot, groups, at_once=max(1, len(devices)))


def displacements(read: Read, *, max_stop_grace: timedelta = LONGEST_STOP_GRACE) -> tuple[Displacement, ...]:
    """Returns which jobs were asked to stop for which waiting jobs, as `store.cluster.rows.displacements` does."""
    with read() as session:
        return cluster.displacements(session, max_stop_grace=max_stop_grace)


def waits(store: Snapshots, job_id: str) -> bool:
    """Returns whether the job waits to be placed. Raises Unavailable."""
    with store.read() as session:
        return bool(waiting.waiting_among(session, [job_id]))


def kept_version(store: Snapshots, place: Place) -> int | None:
    """Returns the version of the place's reservation; None if it is kept for nobody. Raises Unavailable."""
    with store.read() as session:
        return reservations.version_of(session, *place)
