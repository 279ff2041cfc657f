"""Requests about an existing job or worker. Each returns `answer(session, row)`, called in the same transaction.

Repeating a request changes nothing but notifies Redis again, which may have been away before.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from sqlalchemy.orm import Session

from store.db.tables import Job, Worker
from store.rows import audit, deletion, intents, jobs, workers
from store.rows import stacks as rows
from store.rows.access import Caller
from store.rows.stacks import Stacks
from store.store import Store
from torchyard.contract.spec import JobPatch

T = TypeVar("T")

Answer = Callable[[Session, Job], T]


def change(store: Store, job_id: str, patch: JobPatch, *, caller: Caller, answer: Answer[T]) -> T:
    """Does what `store.rows.jobs.change` does. Raises Unavailable, too."""
    with store.write("change") as session:
        job = jobs.change(session, job_id, patch, caller)
        audit.record(session, caller, "job.change", job_id)
        return _answered(session, job, answer)


def cancel(store: Store, job_id: str, *, caller: Caller, grace: timedelta | None = None, answer: Answer[T]) -> T:
    """Does what `store.rows.intents.request_cancel` does. Raises Unavailable, too.

    An operator ends jobs by force that only their owners may read: `answer` must not show those.
    """
    with store.write("cancel") as session:
        job = intents.request_cancel(session, job_id, caller, grace=grace)
        audit.record(session, caller, "job.cancel_now" if grace == intents.AT_ONCE else "job.cancel", job_id)
        return _answered(session, job, answer)


def pause(store: Store, job_id: str, *, caller: Caller, answer: Answer[T]) -> T:
    """Does what `store.rows.intents.request_pause` does. Raises Unavailable, too."""
    with store.write("pause") as session:
        job = intents.request_pause(session, job_id, caller)
        audit.record(session, caller, "job.pause", job_id)
        return _answered(session, job, answer)


def resume(store: Store, job_id: str, *, caller: Caller, answer: Answer[T]) -> T:
    """Does what `store.rows.intents.resume` does. Raises Unavailable, too."""
    with store.write("resume") as session:
        job = intents.resume(session, job_id, caller)
        audit.record(session, caller, "job.resume", job_id)
        return _answered(session, job, answer)


def stacks(store: Store, job_id: str, *, caller: Caller, answer: Callable[[Stacks], T]) -> T:
    """Does what `store.rows.stacks.request` does. Raises Unavailable, too. Not audited: it changes nothing."""
    with store.write("stacks") as session:
        return answer(rows.request(session, job_id, caller))


def delete(store: Store, job_id: str, *, caller: Caller) -> None:
    """Does what `store.rows.deletion.delete_job` does. Raises Unavailable, too."""
    with store.write("delete") as session:
        deletion.delete_job(session, job_id, caller)
        audit.record(session, caller, "job.delete", job_id)


def drain(
    store: Store, worker_id: str, *, drain: bool, caller: Caller, answer: Callable[[Session, Worker, bool], T]
) -> T:
    """Requests a worker to claim no jobs and return those that it runs to the queue, or to work again.

    The last argument of `answer` is whether the worker is alive. Raises NotFound and Unavailable.
    """
    with store.write("drain") as session:
        worker, alive = workers.set_drain(session, worker_id, drain=drain)
        audit.record(session, caller, "worker.drain" if drain else "worker.undrain", worker_id)
        return answer(session, worker, alive)


def _answered(session: Session, job: Job, answer: Answer[T]) -> T:
    jobs.announce(session, job)
    return answer(session, job)
