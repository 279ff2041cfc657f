"""Writes of a pass over the queue: claims, kept places, preemptions and reasons. All of them raise Unavailable."""

from collections.abc import Iterable, Mapping, Sequence, Set

from scheduling.snapshot import Place, Placement, Reservation
from store.announcement import QUEUE, announcement_of
from store.attempts import claims
from store.attempts.facts import Claim
from store.cluster import workers
from store.jobs import jobs, reasons, stop
from store.queue import reservations, waiting
from store.queue.line_facts import Left
from store.queue.reservations import Runs
from store.store import Store
from torchyard.contract.job import JobState, Reason


def anything_waits(store: Store) -> bool:
    """Returns whether any job waits. First those join the line that are held back no longer."""
    with store.read() as session:
        if not waiting.any_ungrouped(session):
            return waiting.any_waits(session)
    group_waiting_jobs(store)
    return True


def claim(
    store: Store,
    job_id: str,
    to: Placement,
    *,
    reservation: int | None = None,
    guest: bool = False,
    holder: str | None = None,
) -> Claim | None:
    """Claims a queued job and its devices, as `store.attempts.claims.claim` does; None if that is not possible.

    A job that is not queued any more is then removed from the queue.
    """
    with store.write("claim") as session:
        taken = claims.claim(session, job_id, to, reservation=reservation, guest=guest, holder=holder)
        if taken is None:
            job = jobs.lock(session, job_id)
            if job is None or job.state != JobState.QUEUED:
                announcement_of(session).dequeue(job_id, Left(None if job is None else job.lined_at))
        return taken


def keep_places(
    store: Store, seen: Iterable[Reservation], wanted: Iterable[Reservation], *, known: Set[Runs]
) -> Mapping[Place, int] | None:
    """Keeps the `wanted` places where before the `seen` ones were kept. Whoever decides first has decided.

    `known`: the jobs that run, and those that the plan starts, with their workers. Returns the versions of the
    reservations that are new or changed; None, without any change, under the conditions of
    `store.queue.reservations.reserve`.
    """
    changes = reservations.changes(seen, wanted)
    if not changes:
        return {}
    with store.write("reserve") as session:
        return reservations.reserve(session, changes, known=known)


def free_idle_places(store: Store) -> None:
    """Keeps no places any more on workers that are lost or drain. Only reads if there are none."""
    with store.read() as session:
        idle = workers.idle_keepers(session)
    if idle:
        with store.write("reserve") as session:
            reservations.free_places_on(session, workers.idle_keepers(session))


def preempt(store: Store, victims: Sequence[str], *, preemptor: str, reason: Reason) -> bool:
    """Requests all `victims` to save and return to the queue, and stores `reason` for the preemptor.

    Returns False, without any request, under the conditions of `store.jobs.stop.request_preempt`.
    """
    with store.write("preempt") as session:
        if not stop.request_preempt(session, victims, preemptor=preemptor):
            return False
        jobs.set_waiting_reason(session, [preemptor], reason)
        announcement_of(session).mark_changed(preemptor)
        return True


def set_waiting_reasons(store: Store, common: Mapping[str, Reason], own: Mapping[Reason, Sequence[str]]) -> None:
    """Stores why jobs wait: `common` by shape, for all jobs of it; `own` for single jobs.

    Reasons of shapes without a waiting job are deleted.
    """
    with store.write("reason") as session:
        jobs.set_waiting_reasons(session, own)
        reasons.store_reasons(session, common)
        announcement_of(session).mark_changed(QUEUE)
        reasons.delete_unused(session)


def delete_unused_reasons(store: Store) -> None:
    """Deletes the reasons of shapes without a waiting job."""
    with store.read() as session:
        idle = reasons.any_unused(session)
    if idle:
        with store.write("reason") as session:
            reasons.delete_unused(session)


def group_waiting_jobs(store: Store) -> None:
    """Puts each waiting job into its group, in short transactions. Only reads if all are in their groups."""
    with store.read() as session:
        more = waiting.any_ungrouped(session)
    while more:
        with store.write("group_jobs") as session:
            more = waiting.group_jobs(session)
