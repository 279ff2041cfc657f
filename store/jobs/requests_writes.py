"""Requests about an existing job or worker. Each is one transaction, with its entry of the audit.

Repeating a request changes nothing but notifies Redis again, which may have been away before. All of them raise
NotFound, Forbidden and Unavailable.
"""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.attempts import stacks as rows
from store.attempts import unattended
from store.cluster import shown_workers as worker_facts
from store.cluster import workers
from store.cluster.facts import WorkerFacts
from store.jobs import deletion, edits, intents, jobs, show, stars
from store.jobs.facts import AT_ONCE, JobFacts
from store.output.facts import Stacks
from store.store import Store
from store.tables import Job
from store.team import access, audit, quotas
from store.team.callers import Caller
from torchyard.contract.errors import Forbidden
from torchyard.contract.patches import JobPatch
from torchyard.contract.requests import JobAction


def change(store: Store, job_id: str, patch: JobPatch, *, caller: Caller) -> JobFacts:
    """Does what `store.jobs.edits.change` does, and returns the job."""
    with store.write("change") as session:
        job = edits.change(session, job_id, patch, caller)
        audit.add(session, caller, "job.change", job_id)
        jobs.announce(session, job)
        return show.of(session, job)


def resume(store: Store, job_id: str, *, caller: Caller, devices: int | None) -> JobFacts:
    """Resumes a job with so many devices of each node, as `store.jobs.intents.resume` does, and returns it."""
    with store.write("resume") as session:
        job = intents.resume(session, job_id, caller, devices=devices)
        audit.add(session, caller, "job.resume", job_id)
        jobs.announce(session, job)
        return show.of(session, job)


def ask(store: Store, action: JobAction, job_id: str, *, caller: Caller, grace: timedelta | None = None) -> JobFacts:
    """Does what `act` does, and returns the job.

    An operator may end a job by force that only others may read: not by this, but by `act`, which shows nothing of it.
    This raises Forbidden then, and the job goes on.
    """
    with store.write(action) as session:
        job = _act(session, action, job_id, caller, grace)
        if grace is not None and not access.is_readable(session, job_id, caller):
            raise Forbidden(f"you may not read job {job_id}: `POST /v1/jobs/actions` with its id and `now` ends it")
        return show.of(session, job)


def act(store: Store, action: JobAction, job_id: str, *, caller: Caller, grace: timedelta | None = None) -> None:
    """Cancels, pauses, resumes or deletes a job, as the functions of `store.jobs.intents` and `deletion` do.

    `grace` is that of a cancel. Raises Conflict if the job's state forbids it.
    """
    with store.write(action) as session:
        if action == "delete":
            deletion.delete_job(session, job_id, caller)
            audit.add(session, caller, "job.delete", job_id)
        else:
            _act(session, action, job_id, caller, grace)


def edit(
    store: Store, action: JobAction, job_id: str, *, caller: Caller, labels: Mapping[str, str | None] | None = None
) -> None:
    """Archives or unarchives a job or changes its labels, as the functions of `store.jobs.edits` do."""
    with store.write("change") as session:
        if action == "label":
            edits.label(session, job_id, labels or {}, caller)
        else:
            edits.archive(session, job_id, caller, archived=action == "archive")
        audit.add(session, caller, "job.change" if action == "label" else f"job.{action}", job_id)


def star(store: Store, job_id: str, *, caller: Caller, starred: bool) -> None:
    """Does what `store.jobs.stars.set_star` does. Not audited: it changes nothing for others."""
    with store.write("change") as session:
        stars.set_star(session, job_id, caller, starred=starred)


def ask_stacks(store: Store, job_id: str, *, caller: Caller) -> Stacks:
    """Does what `store.attempts.stacks.request` does. Not audited: it changes nothing."""
    with store.write("stacks") as session:
        return rows.request(session, job_id, caller)


def drain(store: Store, worker_id: str, *, drain: bool, caller: Caller) -> WorkerFacts:
    """Requests a worker to claim no jobs and return those that it runs to the queue, or to work again."""
    with store.write("drain") as session:
        workers.set_drain(session, worker_id, drain=drain)
        audit.add(session, caller, "worker.drain" if drain else "worker.undrain", worker_id)
        return worker_facts.find_worker(session, worker_id)


def _act(session: Session, action: JobAction, job_id: str, caller: Caller, grace: timedelta | None) -> Job:
    before = session.scalar(select(Job.version).where(Job.id == job_id))
    if action == "cancel":
        if grace == AT_ONCE:
            unattended.cancel(session, job_id, caller)
        job = intents.request_cancel(session, job_id, caller, grace=grace)
    else:
        job = (intents.request_pause if action == "pause" else intents.resume)(session, job_id, caller)
    if job.version == before:  # nothing has changed, and it may be sent without end
        quotas.check_change(session, caller.name)
    audit.add(session, caller, "job.cancel_now" if grace == AT_ONCE else f"job.{action}", job_id)
    jobs.announce(session, job)
    return job
