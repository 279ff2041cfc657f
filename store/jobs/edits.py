"""Edits of a job by its owner, in any of its states: name, labels, notes, visibility, priority, archived or not."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, func, or_, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.jobs import dependencies, jobs
from store.jobs.shapes import shape_of
from store.queue import forecasts
from store.queue.line.line import line_of
from store.tables import HELD, Job
from store.team import access, quotas
from store.team.callers import SERVICE, Caller
from store.team.limits import find_limits
from torchyard.contract.errors import Conflict
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.spec.labels import wrong_labels
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role

_OF_SPEC = frozenset({"name", "labels", "visibility", "priority"})


def change(session: Session, job_id: str, patch: JobPatch, caller: Caller = SERVICE) -> Job:
    """Sets what is in `patch`. The version rises if a value changes.

    Raises NotFound, Forbidden, QuotaExceeded, and Conflict for a priority of a job that is not queued, for a job to
    archive that has not ended, for another visibility of a trial, and for notes that somebody else has changed.
    """
    job = access.lock(session, job_id, caller)
    values = patch.model_dump(exclude_unset=True)
    _check(session, job, values, caller)
    values.pop("notes_before", None)
    if "notes" in values:
        values["notes"] = values["notes"] or None
    if "archived" in values and values.pop("archived") is (job.archived_at is None):
        values["archived_at"] = now_us() if job.archived_at is None else None
    return _set(session, job, values)


def archive(session: Session, job_id: str, caller: Caller, *, archived: bool) -> Job:
    """Archives the job, or lists it again. Raises as `change` does."""
    return change(session, job_id, JobPatch(archived=archived), caller)


def label(session: Session, job_id: str, changes: Mapping[str, str | None], caller: Caller) -> Job:
    """Sets labels and removes those that are None; the others stay. Raises as `change` does, and Conflict if the job
    would have too many.
    """
    job = access.lock(session, job_id, caller)
    labels = {key: value for key, value in {**job.labels, **changes}.items() if value is not None}
    if (wrong := wrong_labels(labels)) is not None:
        raise Conflict(f"job {job_id} {wrong.replace('has', 'would have', 1)}")
    return _set(session, job, {"labels": labels})


def is_labelled_otherwise(changes: Mapping[str, str | None]) -> ColumnElement[bool]:
    """Returns the condition that `label` would change something of a job."""
    stored = {key: Job.labels[key].as_string() for key in changes}
    return or_(
        *(
            stored[key].is_not(None) if value is None else func.coalesce(stored[key] != value, True)
            for key, value in changes.items()
        )
    )


def _check(session: Session, job: Job, values: Mapping[str, Any], caller: Caller) -> None:
    if "priority" in values and job.state != JobState.QUEUED:
        raise Conflict(f"job {job.id} is {job.state}; a priority can be changed only while the job is queued")
    if "priority" in values and caller.role is not Role.ADMIN:
        quotas.check_priority(job.owner, values["priority"], find_limits(session, job.owner))
    if job.sweep_id is not None and values.get("visibility", job.visibility) != job.visibility:
        raise Conflict(f"job {job.id} is a trial of sweep {job.sweep_id}: it has the visibility of the sweep")
    if values.get("archived") and not JobState(job.state).terminal:
        raise Conflict(f"job {job.id} is {job.state}; only finished jobs can be archived")
    if len(values.get("notes") or "") > len(job.notes or ""):
        quotas.check_written(session, job.owner)
    if "notes_before" in values and (job.notes or "") not in (values["notes_before"], values["notes"]):
        raise Conflict(f"the notes of job {job.id} have changed since you read them: read them again")


def _set(session: Session, job: Job, values: Mapping[str, Any]) -> Job:
    """Writes the columns that have other values, and those that follow from them."""
    changed = {
        key: value for key, value in values.items() if isinstance(value, ColumnElement) or getattr(job, key) != value
    }
    if not changed:
        return job
    follows: dict[str, Any] = {}
    if of_spec := {key: value for key, value in changed.items() if key in _OF_SPEC}:
        follows["spec"] = {**job.spec, **of_spec}
    if not changed.keys().isdisjoint(jobs.SEARCHED):
        searched = {key: getattr(job, key) for key in jobs.SEARCHED}
        follows["search_text"] = jobs.search_text({**searched, **changed})
    if "priority" in changed:
        shape = shape_of(job.owner, job.spec, needs=job.needs, ran_us=job.ran_us)
        follows |= {"lined_at": now_us(), "waited_us": jobs.WAITED_US, "shape": shape}
        forecasts.forget(session, job.id)
    session.execute(update(Job).where(Job.id == job.id).values(version=Job.version + 1, **changed, **follows))
    session.refresh(job)
    if "visibility" in changed and job.state == JobState.QUEUED and job.not_before == HELD:
        _say_again(session, job)
    jobs.announce(session, job)
    line_of(session).ask_sql()
    if "visibility" in changed:
        access.announce(session, job.id)
    return job


def _say_again(session: Session, job: Job) -> None:
    """Stores for which jobs the job waits: others may read that now, and not know all of those."""
    reason = dependencies.waiting_again(session, job)
    session.execute(update(Job).where(Job.id == job.id).values(reason_message=reason.message))
    session.refresh(job)
