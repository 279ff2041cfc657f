"""Stores new jobs: their rows and their first events."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from store.db.database import cleaned, document
from store.db.prepared import Prepared
from store.ids import new_id
from store.jobs import events as job_events
from store.jobs import jobs, reasons
from store.jobs.facts import WAITING, DisplayedReason
from store.jobs.shapes import shape
from store.jobs.submission_facts import NewJob
from store.tables import HELD, Base
from torchyard.contract.job import JobState, Reason
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility

_JOBS = Base.metadata.tables["jobs"]
_NEW_JOBS = Prepared(
    insert(_JOBS).inline(),
    columns=(
        *("id", "owner", "name", "trainer", "spec", "priority", "shape", "device_request", "labels", "search_text"),
        *(
            "visibility",
            "retry_of",
            "begins_with",
            "sweep_id",
            "trial",
            "schedule_id",
            "due_at",
            "state",
            "version",
            "attempt",
        ),
        *(
            "reason_code",
            "reason_message",
            "devices",
            "not_before",
            "position",
            "created_at",
            "reason_since",
            "lined_at",
        ),
    ),
)
# What is told of a job is read from these columns, too.
_UNSET = dict[str, Any].fromkeys(column.key for column in _JOBS.c) | {"log_lines": 0}


def submit(
    session: Session, spec: Spec, *, owner: str, visibility: Visibility = "private", retry_of: str | None = None
) -> Any:
    """Stores a new queued job, and returns its columns. It is accepted when the transaction commits.

    `visibility`: the default visibility, for a spec that sets none.
    """
    return submit_all(session, [NewJob(spec, owner, visibility, retry_of)])[0][0]


def submit_all(session: Session, new: Sequence[NewJob]) -> list[tuple[Any, DisplayedReason]]:
    """Stores new queued jobs, in order. Returns the columns of each, and why it waits.

    The spec among the columns is JSON, as it is stored.
    """
    rows = [_row(each) for each in new]
    moment = reasons.now(session, {row["shape"] for row in rows})
    times = dict.fromkeys(("created_at", "reason_since", "lined_at"), moment.now)
    _NEW_JOBS.write(session, [{**row, **times, "labels": document(row["labels"]), "devices": "[]"} for row in rows])
    for reason, ids in _by_reason(rows).items():
        job_events.add_first(session, ids, reason, time=moment.now)
    stored = [SimpleNamespace(**{**_UNSET, **row, **times}) for row in rows]
    for job in stored:
        jobs.announce(session, job)
    return [(job, moment.displayed(job)) for job in stored]


def _by_reason(rows: Sequence[dict[str, Any]]) -> dict[Reason, list[str]]:
    found: dict[Reason, list[str]] = {}
    for row in rows:
        found.setdefault(Reason(row["reason_code"], row["reason_message"]), []).append(row["id"])
    return found


def _row(new: NewJob) -> dict[str, Any]:
    spec, reason = new.spec, new.waits_for or WAITING
    resources = spec.resources.model_dump(mode="json")
    values: dict[str, Any] = {
        "id": new.job_id or new_id("job"),
        "owner": new.owner,
        "name": spec.name,
        "trainer": spec.trainer,
        "spec": cleaned(spec.model_dump_json()),
        "priority": spec.priority,
        "shape": shape(new.owner, resources, preemptible=spec.preemptible, limit=spec.time_limit),
        "device_request": spec.resources.device,
        "labels": spec.labels,
        "visibility": spec.visibility or new.visibility,
        "retry_of": new.retry_of,
        "begins_with": new.begins_with,
        "sweep_id": None if new.trial is None else new.trial.sweep_id,
        "trial": None if new.trial is None else new.trial.number,
        "schedule_id": None if new.run is None else new.run.schedule_id,
        "due_at": None if new.run is None else new.run.due_at,
        "state": JobState.QUEUED.value,
        "version": 1,
        "reason_code": reason.code,
        "reason_message": reason.message,
        "not_before": None if new.waits_for is None else HELD,
        "attempt": 0,
        "devices": [],
        "position": 1,
    }
    return {**values, "search_text": jobs.search_text(values)}
