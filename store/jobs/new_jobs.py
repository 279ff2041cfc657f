"""Stores new jobs: their rows, their first events, and what else is kept of them from the beginning."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from store.bundles import bundles
from store.db.database import cleaned, document
from store.db.prepared import Prepared
from store.ids import new_id
from store.jobs import dependencies, idempotency, initial_files, jobs, reasons, retry, show
from store.jobs import events as job_events
from store.jobs.facts import WAITING
from store.jobs.needs import needs_of
from store.jobs.shapes import shape
from store.jobs.submission import Submission, Submitted
from store.queue import positions
from store.tables import HELD, Base
from store.team import audit
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.spec.resources import Resources
from torchyard.contract.spec.spec import Spec
from torchyard.contract.states import JobState, Reason

_JOBS = Base.metadata.tables["jobs"]
_NEW_JOBS = Prepared(
    insert(_JOBS).inline(),
    columns=(
        *("id", "owner", "name", "trainer", "spec", "priority", "shape", "needs", "device_request", "labels"),
        *(
            "search_text",
            "visibility",
            "retry_of",
            "begins_with",
            "sweep_id",
            "trial",
            "schedule_id",
            "due_at",
            "state",
            "version",
        ),
        *("attempt", "reason_code", "reason_message", "devices", "not_before", "position"),
        *("created_at", "reason_since", "lined_at"),
    ),
)
_NewJob: Any = type("_NewJob", (SimpleNamespace,), {column.key: None for column in _JOBS.c} | {"log_lines": 0})
"""The columns of a new job, of which the spec is JSON as it is stored, and `reason`: why it is said to wait."""


def store_all(session: Session, wanted: Sequence[Submission]) -> list[Submitted]:
    """Stores jobs that were admitted, in order, and announces them. They are accepted when the transaction commits.

    Raises KeyTaken.
    """
    new = insert_all(session, wanted)
    both = list(zip(new, wanted, strict=True))
    bundles.record_uses(session, {job.id: bundles_of(each.spec) for job, each in both})
    initial_files.add_all(session, {job.id: each.initial for job, each in both if each.initial is not None})
    dependencies.add_all(session, {job.id: each.after for job, each in both if each.after})
    best = retry.go_on(session, new, wanted)
    _audit(session, both)
    idempotency.store_keys(session, [(each.keyed, job.id) for job, each in both if each.keyed is not None])
    for job in new:
        jobs.announce(session, job)
    positions.ask_after_commit(session, new)
    return [
        Submitted(
            show.of_new(
                job,
                job.reason,
                monitor=each.spec.checkpoint.monitor,
                best=best.get(job.id),
                initial=each.initial,
                after=each.after or (),
            )
        )
        for job, each in both
    ]


def insert_all(session: Session, wanted: Sequence[Submission]) -> list[Any]:
    """Inserts the rows of new queued jobs and their first events, in order. Returns the columns of each."""
    new = [_new_job(each) for each in wanted]
    moment = reasons.read_moment(session, {job.shape for job in new})
    for job in new:
        job.created_at = job.reason_since = job.lined_at = moment.now
    _NEW_JOBS.write(session, [_columns(job) for job in new])
    for reason, ids in _ids_by_reason(new).items():
        job_events.add_first(session, ids, reason, time=moment.now)
    for job in new:
        job.reason = moment.displayed(job)
    return new


def _columns(job: Any) -> dict[str, Any]:
    needs = None if job.needs is None else document(job.needs)
    return {**vars(job), "labels": document(job.labels), "needs": needs, "devices": "[]"}


def _ids_by_reason(new: Sequence[Any]) -> dict[Reason, list[str]]:
    ids: dict[Reason, list[str]] = {}
    for job in new:
        ids.setdefault(Reason(job.reason_code, job.reason_message), []).append(job.id)
    return ids


def _new_job(wanted: Submission) -> Any:
    spec, owner, reason = wanted.spec, wanted.caller.name, wanted.waits_for or WAITING
    needs = needs_of(spec)
    job = _NewJob(
        id=wanted.job_id or new_id("job"),
        owner=owner,
        name=spec.name,
        trainer=spec.trainer,
        spec=cleaned(spec.model_dump_json()),
        priority=spec.priority,
        shape=_shape(owner, spec, needs),
        needs=needs,
        device_request=spec.resources.device,
        labels=spec.labels,
        visibility=spec.visibility or wanted.visibility,
        retry_of=wanted.retry_of,
        begins_with=wanted.begins_with,
        sweep_id=None if wanted.trial is None else wanted.trial.sweep_id,
        trial=None if wanted.trial is None else wanted.trial.number,
        schedule_id=None if wanted.run is None else wanted.run.schedule_id,
        due_at=None if wanted.run is None else wanted.run.due_at,
        state=JobState.QUEUED.value,
        version=1,
        reason_code=reason.code,
        reason_message=reason.message,
        not_before=None if wanted.waits_for is None else HELD,
        attempt=0,
        devices=[],
        position=1,
    )
    job.search_text = jobs.search_text(vars(job))
    return job


def _shape(owner: str, spec: Spec, needs: Mapping[str, Any] | None) -> str:
    if needs is None:
        return _plain_shape(owner, spec.resources, preemptible=spec.preemptible, limit=spec.time_limit)
    resources = spec.resources.model_dump(mode="json")
    return shape(owner, resources, preemptible=spec.preemptible, limit=spec.time_limit, needs=needs)


@lru_cache(maxsize=1024)
def _plain_shape(owner: str, resources: Resources, *, preemptible: bool, limit: timedelta) -> str:
    """Returns the shape of new jobs: a digest, which is the same for all that a user submits of one kind."""
    return shape(owner, resources.model_dump(mode="json"), preemptible=preemptible, limit=limit)


def _audit(session: Session, both: Sequence[tuple[Any, Submission]]) -> None:
    submitted = [(each.caller, job.id) for job, each in both if each.retry_of is None]
    retried = [(each.caller, f"{each.retry_of} as {job.id}") for job, each in both if each.retry_of is not None]
    for action, done in (("job.submit", submitted), ("job.retry", retried)):
        if done:
            audit.add_all(session, action, done)
