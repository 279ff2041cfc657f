"""A pass over the line: what a plan needs is read at one moment, and what it says is stored step by step.

Each step is a transaction, which refuses what has changed since the snapshot. Any program may plan, for any worker.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from scheduling.snapshot import Place, Reservation, Snapshot
from scheduling.steps import Plan
from store.announcement import QUEUE, announcement_of
from store.cluster import workers
from store.jobs import jobs, reasons, stop
from store.queue import planning, reservations, waiting
from store.queue.groups import Groups
from store.queue.reservations import Runs
from store.store import Store
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.states import Reason
from torchyard.contract.wire.units import LONGEST_STOP_GRACE


def anything_waits(store: Store) -> bool:
    """Returns whether any job waits. First those join the line that are held back no longer: it only reads, mostly.

    Raises Unavailable.
    """
    with store.read() as session:
        if not waiting.any_ungrouped(session):
            return waiting.any_waits(session)
    group_waiting_jobs(store)
    return True


def group_waiting_jobs(store: Store) -> None:
    """Puts each waiting job into its group, in short transactions. Only reads if all are in their groups.

    Raises Unavailable.
    """
    with store.read() as session:
        more = waiting.any_ungrouped(session)
    while more:
        with store.write("group_jobs") as session:
            more = waiting.group_jobs(session)


def read_plan(
    session: Session,
    observed: Mapping[str, Sequence[DeviceReport]],
    *,
    max_stop_grace: timedelta = LONGEST_STOP_GRACE,
    turn: int = 0,
) -> tuple[Snapshot, Plan] | None:
    """Returns the cluster and its plan; None if no job waits.

    It costs by the groups of waiting jobs, not by the jobs, which are found in the line; what is said of them is in
    their rows.

    `observed`: the devices of the workers that ask, as they are now. `max_stop_grace`: what cuts the jobs'
    `stop_grace`. `turn`: rises from pass to pass, so that all requests of an owner with very many are looked at.
    """
    groups = Groups(session, turn=turn)
    heads = groups.heads()
    if not heads:
        return None
    snapshot = planning.snapshot(session, heads, observed, max_stop_grace=max_stop_grace)
    snapshot = replace(snapshot, crowded=groups.crowded)
    return planning.with_successors(snapshot, groups, at_once=max(1, *map(len, observed.values())))


def keep_places(
    store: Store, seen: Iterable[Reservation], wanted: Iterable[Reservation], *, known: Set[Runs]
) -> Mapping[Place, int] | None:
    """Keeps the `wanted` places where before the `seen` ones were kept. Whoever decides first has decided.

    `known`: the jobs that run, and those that the plan starts, with their workers. Returns the versions of the
    reservations that are new or changed; None, without any change, under the conditions of
    `store.queue.reservations.reserve`. Opens no transaction if nothing changes. Raises Unavailable.
    """
    changes = reservations.changes(seen, wanted)
    if not changes:
        return {}
    with store.write("reserve") as session:
        return reservations.reserve(session, changes, known=known)


def free_idle_places(store: Store) -> None:
    """Keeps no places any more on workers that are lost or drain. Only reads if there are none. Raises Unavailable."""
    with store.read() as session:
        idle = workers.idle_keepers(session)
    if idle:
        with store.write("reserve") as session:
            reservations.free_places_on(session, workers.idle_keepers(session))


def preempt(session: Session, victims: Sequence[str], *, preemptor: str, reason: Reason) -> bool:
    """Requests all `victims` to save and return to the queue, and stores `reason` for the preemptor.

    Returns False, without any request, under the conditions of `store.jobs.stop.request_preempt`.
    """
    if not stop.request_preempt(session, victims, preemptor=preemptor):
        return False
    jobs.set_waiting_reason(session, [preemptor], reason)
    announcement_of(session).mark_changed(preemptor)
    return True


def set_waiting_reasons(session: Session, common: Mapping[str, Reason], own: Mapping[Reason, Sequence[str]]) -> None:
    """Stores why jobs wait: `common` by shape, for all jobs of it; `own` for single jobs.

    Reasons of shapes without a waiting job are deleted.
    """
    jobs.set_waiting_reasons(session, own)
    reasons.store_reasons(session, common)
    announcement_of(session).mark_changed(QUEUE)
    reasons.delete_unused(session)


def delete_unused_reasons(store: Store) -> None:
    """Deletes the reasons of shapes without a waiting job. Only reads if there are none. Raises Unavailable."""
    with store.read() as session:
        idle = reasons.any_unused(session)
    if idle:
        with store.write("reason") as session:
            reasons.delete_unused(session)
