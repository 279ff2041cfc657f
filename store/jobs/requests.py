"""What users ask of one job, with the entry of the audit. What a request changes of the job is in edits, stop, resume,
deletion and stars.

Repeating a request changes nothing but notifies Redis again, which may have been away before. All of them raise
NotFound and Forbidden.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.attempts import unattended
from store.jobs import deletion, edits, jobs, resume, show, stars, stop
from store.jobs.facts import AT_ONCE, JobFacts
from store.tables import Job
from store.team import access, audit
from store.team.callers import Caller
from store.team.limits import check_change
from torchyard.contract.errors import Forbidden
from torchyard.contract.jobs.requests import JobAction, JobPatch


def change(session: Session, job_id: str, patch: JobPatch, *, caller: Caller) -> JobFacts:
    """Changes what the patch names of the job, adds an entry to the audit, and returns the job."""
    job = edits.change(session, job_id, patch, caller)
    audit.add(session, caller, "job.change", job_id)
    jobs.announce(session, job)
    return show.show_job(session, job)


def ask(
    session: Session,
    action: Literal["cancel", "pause", "resume"],
    job_id: str,
    *,
    caller: Caller,
    grace: timedelta | None = None,
    devices: int | None = None,
) -> JobFacts:
    """Cancels, pauses or resumes a job, and returns it. `grace` is that of a cancel, `devices` that of a resume.

    An operator may end a job by force that only others may read: not by this, but by `act`, which shows nothing of it.
    This raises Forbidden then, and the job goes on. Raises Conflict if the job's state forbids it, and what
    `store.jobs.resume.resume` does.
    """
    job = _ask(session, action, job_id, caller, grace=grace, devices=devices)
    if grace is not None and not access.is_readable(session, job_id, caller):
        raise Forbidden(f"you may not read job {job_id}: to kill it, use `POST /v1/jobs/actions` with its id and `now`")
    return show.show_job(session, job)


def act(
    session: Session,
    action: JobAction,
    job_id: str,
    *,
    caller: Caller,
    grace: timedelta | None = None,
    labels: Mapping[str, str | None] | None = None,
) -> None:
    """Does an action on one of many jobs. `grace` is that of a cancel, `labels` those to change.

    Raises Conflict if the job's state forbids it, and QuotaExceeded.
    """
    match action:
        case "cancel" | "pause" | "resume":
            _ask(session, action, job_id, caller, grace=grace)
        case "delete":
            deletion.delete_job(session, job_id, caller)
            audit.add(session, caller, "job.delete", job_id)
        case "label":
            edits.label(session, job_id, labels or {}, caller)
            audit.add(session, caller, "job.change", job_id)
        case "archive" | "unarchive":
            edits.archive(session, job_id, caller, archived=action == "archive")
            audit.add(session, caller, f"job.{action}", job_id)
        case "star" | "unstar":  # not audited: it changes nothing for others
            stars.set_star(session, job_id, caller, starred=action == "star")


def _ask(
    session: Session,
    action: Literal["cancel", "pause", "resume"],
    job_id: str,
    caller: Caller,
    *,
    grace: timedelta | None = None,
    devices: int | None = None,
) -> Job:
    before = session.scalar(select(Job.version).where(Job.id == job_id))
    if action == "cancel":
        if grace == AT_ONCE:
            unattended.cancel(session, job_id, caller)
        job = stop.request_cancel(session, job_id, caller, grace=grace)
    elif action == "pause":
        job = stop.request_pause(session, job_id, caller)
    else:
        job = resume.resume(session, job_id, caller, devices=devices)
    if job.version == before:  # nothing has changed, and it may be sent without end
        check_change(session, caller.name)
    audit.add(session, caller, "job.cancel_now" if grace == AT_ONCE else f"job.{action}", job_id)
    jobs.announce(session, job)
    return job
