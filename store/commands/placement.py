"""What comes of a look at the queue: a job is claimed, others make room for it, and it is told why it waits.

All of them raise Unavailable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from store.announcement import announcement_of
from store.rows import attempts, intents, jobs, reasons, waiting
from store.rows.attempts import Claim
from store.rows.jobs import Reason
from store.store import Store
from torchyard.contract.job import JobState


def claim(store: Store, job_id: str, *, worker_id: str, devices: Sequence[dict[str, Any]]) -> Claim | None:
    """Takes a queued job and its devices, as `store.rows.attempts.claim` does; None where that is not possible.

    A job that does not wait any more is then taken out of the queue.
    """
    with store.write("claim") as session:
        taken = attempts.claim(session, job_id, worker_id=worker_id, devices=devices)
        if taken is None:
            job = jobs.lock(session, job_id)
            if job is None or job.state != JobState.QUEUED:
                announcement_of(session).dequeue(job_id)
        return taken


def preempt(store: Store, victims: Sequence[str], *, preemptor: str, reason: Reason) -> bool:
    """Asks all `victims` to save and go back to the queue, and tells the job that needs their devices so.

    False, and nothing is asked, where that is not possible, as in `store.rows.intents.request_preempt`.
    """
    with store.write("preempt") as session:
        if not intents.request_preempt(session, victims, preemptor=preemptor):
            return False
        jobs.set_waiting_reason(session, [preemptor], reason)
        announcement_of(session).mark_changed(preemptor)
        return True


def set_waiting_reasons(store: Store, common: Mapping[str, Reason], own: Mapping[Reason, Sequence[str]]) -> None:
    """Says why jobs wait: for each shape in `common` what is said of all its jobs, for each reason in `own` the jobs of
    which it alone is true. What was said of shapes of which no job waits is forgotten."""
    with store.write("reason") as session:
        jobs.set_waiting_reasons(session, own)
        reasons.store_reasons(session, common)
        reasons.delete_unused(session)


def delete_unused_reasons(store: Store) -> None:
    """Forgets why jobs of a shape waited, where none waits any more."""
    with store.read() as session:
        idle = reasons.any_unused(session)
    if idle:
        with store.write("reason") as session:
            reasons.delete_unused(session)


def group_waiting_jobs(store: Store) -> None:
    """Puts each job that waits into its group, in short transactions; nothing where all are there already."""
    with store.read() as session:
        more = waiting.any_ungrouped(session)
    while more:
        with store.write("group_jobs") as session:
            more = waiting.group_jobs(session)
