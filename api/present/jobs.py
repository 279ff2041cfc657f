"""The views of jobs, their attempts and the queue."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
import json
from typing import Any

from pydantic_core import to_json

from api.present.estimates import estimate_or_none
from api.present.times import time, time_or_none
from store.jobs.columns_facts import Cells, JobGroupFacts, JobGroups, KnownColumns
from store.jobs.facts import (
    BestCheckpoint,
    DependencyFacts,
    JobCounts,
    JobFacts,
    JobList,
    JobSweepFacts,
    ListedAttempt,
    ListedJob,
    QueuedJob,
)
from store.jobs.initial_weights_facts import InitialFacts
from store.team.callers import Caller, may_list, may_read
from torchyard.contract.codec import json_number
from torchyard.contract.columns import Column, Scalar
from torchyard.contract.job import EndReason
from torchyard.contract.resources import Resources
from torchyard.contract.spec import SPEC
from torchyard.contract.text import MOST_SHOWN_TEXT, shown_text
from torchyard.contract.views.attempts import AttemptDevice, AttemptEnvironment, AttemptView, StoppedForView
from torchyard.contract.views.jobs import (
    AfterView,
    BestView,
    ColumnsView,
    ColumnView,
    ErrorView,
    HeldDevice,
    InitialView,
    JobGroup,
    JobPage,
    ProgressView,
    SpreadView,
)
from torchyard.contract.views.queue import QueueEntry, WaitingReason
from torchyard.contract.views.sweeps import JobSweep

_NO_PROGRESS = ProgressView()
_RESOLVED = 128
"""Specs whose JSON is kept, as jobs are asked for again and again. A spec has at most 256 KiB."""


def encoded_job(facts: JobFacts, caller: Caller, *, is_new: bool = False) -> bytes:
    """Returns the JSON of the view of a job, as the caller sees it: what is stored as JSON goes into it as it is.

    `is_new`: this program has just stored it, so its spec has every default.
    """
    resolved = facts.spec.encode() if is_new else _resolved(facts.spec)
    card = "null" if facts.card is None else facts.card
    told = {
        **_summary(facts, starred=caller.name in facts.starred_by),
        "init_from": None if facts.initial is None else _initial(facts.initial),
        "after": [_after(each) for each in facts.after],
        "notes": facts.notes,
    }
    return b'%s,"spec":%s,"card":%s}' % (_encoded(told)[:-1], resolved, card.encode())


def page(
    found: JobList,
    counted: JobCounts | None,
    grouped: JobGroups | None,
    columns: Mapping[str, Column],
    *,
    after: str | None,
) -> JobPage:
    """Returns the view of a page without its rows. `after`: the cursor of the next page."""
    return JobPage(
        data=[],
        has_more=found.page.has_more,
        next=after,
        counts=None if counted is None else {**counted.by_state},
        total=None if counted is None else sum(counted.by_state.values()),
        counts_complete=None if counted is None else counted.is_complete,
        groups=None if grouped is None else [_group(each, columns) for each in grouped.groups],
        groups_complete=None if grouped is None else grouped.is_complete,
        list_complete=found.is_complete,
    )


def encoded_summaries(
    jobs: Sequence[ListedJob],
    caller: Caller,
    *,
    columns: Mapping[str, Column] | None = None,
    cells: Mapping[str, Cells] | None = None,
) -> list[bytes]:
    """Returns the JSON of each row, as the caller may see it.

    `columns`: those that each row has besides, by name, with `cells`, their values by job.
    """
    # One by one: nothing else runs while one is encoded.
    rows = [
        encoded_summary(facts, starred=caller.name in facts.starred_by)
        if may_read(caller, facts)
        else encoded_withheld(facts)
        for facts in jobs
    ]
    if columns:
        rows = [
            b'%s,"columns":%s}' % (row[:-1], _encoded(_columns(columns, (cells or {}).get(job.id, {}))))
            for row, job in zip(rows, jobs, strict=True)
        ]
    return rows


def encoded_summary(facts: ListedJob, *, starred: bool) -> bytes:
    """Returns the JSON of a job's row in a list. `starred`: by who sees it."""
    return _encoded(_short(_summary(facts, starred=starred)))


def encoded_withheld(facts: ListedJob) -> bytes:
    """Returns the JSON of the row of another user's private job in an operator's list: without its text and metrics."""
    return _encoded(_withheld(facts))


def known_columns(found: KnownColumns) -> ColumnsView:
    """Returns the view of the columns that jobs have."""
    data = [ColumnView(name=each.name, jobs=each.jobs, differs=each.differs) for each in found.columns]
    return ColumnsView(data=data, jobs=found.jobs)


def attempt(facts: ListedAttempt) -> AttemptView:
    """Returns the view of a run of a job."""
    ended, other = facts.ended_at, facts.stopped_for
    return AttemptView(
        number=facts.number,
        worker=facts.worker,
        started_at=time(facts.started_at),
        ended_at=time_or_none(ended),
        end_reason=None if facts.end_reason is None else EndReason(facts.end_reason),
        detail=facts.detail,
        start_step=facts.start_step,
        devices=[
            AttemptDevice(
                worker=device.worker,
                index=None if device.known is None else device.known.index,
                uuid=device.uuid,
                node=device.node,
                name=None if device.known is None else device.known.name,
            )
            for device in facts.devices
        ],
        stopped_for=None if other is None else StoppedForView(owner=other.owner, job_id=other.job_id, name=other.name),
        environment=None if facts.environment is None else AttemptEnvironment.model_validate(facts.environment),
        duration_seconds=None if ended is None else (ended - facts.started_at) / 1_000_000,
    )


def queue_entry(facts: QueuedJob, caller: Caller) -> QueueEntry:
    """Returns the entry of a queued job, as the caller may see it."""
    seen, reason = may_list(caller, facts), facts.reason
    shown = WaitingReason(code=reason.code, message=reason.message, since=time(reason.since))
    return QueueEntry(
        position=facts.place,
        job_id=facts.id if seen else None,
        name=facts.name if seen else None,
        owner=facts.owner,
        priority=facts.priority,
        resources=Resources.model_validate(facts.resources),
        reason=shown if may_read(caller, facts) else None,
        not_before=time_or_none(facts.not_before),
        estimate=estimate_or_none(facts.estimate),
        created_at=time(facts.created_at),
    )


def _short(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a summary for a list: a row has few bytes, whatever its job has said."""
    error, reason = summary["error"], summary["status_reason"]
    if len(reason["message"]) > MOST_SHOWN_TEXT:
        summary["status_reason"] = {**reason, "message": shown_text(reason["message"])}
    if error is not None and len(error.message) > MOST_SHOWN_TEXT:
        summary["error"] = error.model_copy(update={"message": shown_text(error.message)})
    return summary


def _withheld(facts: ListedJob) -> dict[str, Any]:
    shown = _summary(facts, starred=False)
    of_lists = {"labels": {}, "has_notes": False, "metrics": {}, "progress": _NO_PROGRESS}
    nothing = of_lists | {"best": None, "error": None, "sweep": None, "schedule_id": None}
    return shown | nothing | {"status_reason": shown["status_reason"] | {"message": ""}}


def _summary(facts: ListedJob, *, starred: bool) -> dict[str, Any]:
    """Returns the fields of a summary, which the view of a job has too. They are in JSON what they are in the view."""
    reason = facts.reason
    return {
        "id": facts.id,
        "name": facts.name,
        "trainer": facts.trainer,
        "state": facts.state,
        "status_reason": {
            "code": reason.code,
            "message": reason.message,
            "position": facts.place,
            "since": time(reason.since),
            "estimate": estimate_or_none(facts.estimate),
        },
        "owner": facts.owner,
        "visibility": facts.visibility,
        "priority": facts.priority,
        "labels": facts.labels,
        "has_notes": facts.has_notes,
        "archived": facts.archived_at is not None,
        "starred": starred,
        "attempt": facts.attempt,
        "retry_of": facts.retry_of,
        "sweep": None if facts.sweep is None else _sweep(facts.sweep),
        "schedule_id": facts.schedule_id,
        "progress": ProgressView.model_validate(facts.progress) if facts.progress else _NO_PROGRESS,
        "metrics": {key: json_number(value) for key, value in facts.metrics.items()},
        "best": None if facts.best is None else _best(facts.best, metric=facts.monitor),
        "devices": [HeldDevice.model_validate(device) for device in facts.devices],
        "error": None if facts.error is None else ErrorView.model_validate(facts.error),
        "created_at": time(facts.created_at),
        "started_at": time_or_none(facts.started_at),
        "finished_at": time_or_none(facts.finished_at),
        "version": facts.version,
        "position": facts.position,
    }


def _group(facts: JobGroupFacts, columns: Mapping[str, Column]) -> JobGroup:
    spreads = {name: facts.columns[column] for name, column in columns.items() if column in facts.columns}
    return JobGroup(
        key=facts.key,
        value=facts.value,
        name=facts.name,
        counts={**facts.by_state},
        total=sum(facts.by_state.values()),
        columns={name: SpreadView(**asdict(spread)) for name, spread in spreads.items()} if columns else None,
    )


def _columns(columns: Mapping[str, Column], cells: Cells) -> dict[str, Scalar]:
    return {name: cells.get(column) for name, column in columns.items()}


def _encoded(fields: dict[str, Any]) -> bytes:
    return to_json(fields, inf_nan_mode="null")


@lru_cache(maxsize=_RESOLVED)
def _resolved(spec: str) -> bytes:
    """Returns the JSON of a stored spec with every default: a version that had less keys may have written it."""
    return SPEC.validate_python(json.loads(spec)).model_dump_json().encode()


def _initial(facts: InitialFacts) -> InitialView:
    return InitialView(
        ref=facts.ref,
        job_id=facts.source_job,
        checkpoint_id=facts.source_checkpoint,
        model=facts.model,
        step=facts.step,
    )


def _sweep(facts: JobSweepFacts) -> JobSweep:
    point, omitted = facts.point or {}, facts.point is None or None
    return JobSweep(id=facts.id, name=facts.name, trial=facts.trial, point={**point}, point_omitted=omitted)


def _after(facts: DependencyFacts) -> AfterView:
    return AfterView.model_construct(job_id=facts.job_id, name=facts.name, on=facts.on, state=facts.state)


def _best(best: BestCheckpoint, *, metric: str) -> BestView:
    return BestView(
        metric=metric,
        value=best.value,
        epoch=best.epoch,
        step=best.step,
        checkpoint_id=best.id,
        remeasured=(best.remeasured or {}).get(metric),
    )
