"""The views of jobs and of the queue: all routes and streams that show a job show it by these.

A view is made, without a check of its values, of what the store has read, and becomes JSON by its own schema
(docs/decisions/0143). The spec and the card are JSON already: they go into the answer as they are stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
import json
from typing import Any

from api import blocking
from api.present.forecasts import estimate_or_none
from api.present.times import time, time_or_none
from store.jobs.facts import (
    BestCheckpoint,
    Cells,
    DependencyFacts,
    JobCounts,
    JobFacts,
    JobList,
    JobSweepFacts,
    ListedJob,
    QueuedJob,
)
from store.jobs.initial_weights_facts import InitialFacts
from store.jobs.known_columns import KnownColumns
from store.jobs.table import JobGroupFacts, JobGroups
from store.team.callers import Caller, may_list, may_read
from torchyard.contract.cluster.views import WorkerView
from torchyard.contract.jobs.columns import Column, Scalar
from torchyard.contract.jobs.views import (
    AfterView,
    BestView,
    ColumnsView,
    ColumnView,
    ErrorView,
    HeldDevice,
    InitialView,
    JobDetails,
    JobGroup,
    JobPage,
    JobSummary,
    ProgressView,
    SpreadView,
    StatusReason,
)
from torchyard.contract.queue.views import QueueEntry
from torchyard.contract.spec.resources import Resources
from torchyard.contract.spec.spec import SPEC
from torchyard.contract.states import DatedReason
from torchyard.contract.sweeps.views import JobSweep
from torchyard.contract.wire.text import MOST_SHOWN_TEXT, shown_text

_NO_PROGRESS = ProgressView()
_RESOLVED = 128
"""Specs whose JSON is kept, as jobs are asked for again and again. A spec has at most 256 KiB."""


def encoded_job(facts: JobFacts, caller: Caller, *, is_new: bool = False) -> bytes:
    """Returns the JSON of a `JobView`, as the caller sees it.

    `is_new`: this program has just stored it, so its spec has every default.
    """
    resolved = facts.spec.encode() if is_new else _resolved(facts.spec)
    card = "null" if facts.card is None else facts.card
    view = JobDetails.trusted(
        **_summary_values(facts, starred=caller.name in facts.starred_by),
        init_from=None if facts.initial is None else _initial(facts.initial),
        after=[_after(each) for each in facts.after],
        notes=facts.notes,
    )
    return b'%s,"spec":%s,"card":%s}' % (_encoded(view)[:-1], resolved, card.encode())


def page(
    jobs: JobList,
    counted: JobCounts | None,
    grouped: JobGroups | None,
    columns: Mapping[str, Column],
    *,
    after: str | None,
) -> JobPage:
    """Returns the view of a page without its rows. `after`: the cursor of the next page."""
    return JobPage(
        data=[],
        has_more=jobs.page.has_more,
        next=after,
        counts=None if counted is None else {**counted.by_state},
        total=None if counted is None else sum(counted.by_state.values()),
        counts_complete=None if counted is None else counted.is_complete,
        groups=None if grouped is None else [_group(each, columns) for each in grouped.groups],
        groups_complete=None if grouped is None else grouped.is_complete,
        list_complete=jobs.is_complete,
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
    return [
        encoded_summary(
            facts,
            starred=caller.name in facts.starred_by,
            columns=None if not columns else _columns(columns, (cells or {}).get(facts.id, {})),
        )
        if may_read(caller, facts)
        else encoded_withheld(facts, columns=None if not columns else _columns(columns, {}))
        for facts in jobs
    ]


def encoded_summary(facts: ListedJob, *, starred: bool, columns: dict[str, Scalar] | None = None) -> bytes:
    """Returns the JSON of a job's row in a list. `starred`: by who sees it."""
    values = _summary_values(facts, starred=starred, columns=columns)
    return _encoded(JobSummary.trusted(**_shortened(values)))


def encoded_withheld(facts: ListedJob, *, columns: dict[str, Scalar] | None = None) -> bytes:
    """Returns the JSON of the row of another user's private job in an operator's list: without its text and metrics."""
    values = _summary_values(facts, starred=False, columns=columns)
    return _encoded(JobSummary.trusted(**_withheld(values)))


def known_columns(known: KnownColumns) -> ColumnsView:
    """Returns the view of the columns that jobs have."""
    data = [ColumnView(name=each.name, jobs=each.jobs, differs=each.differs) for each in known.columns]
    return ColumnsView(data=data, jobs=known.jobs)


def queue_entry(facts: QueuedJob, caller: Caller, workers: Sequence[WorkerView]) -> QueueEntry:
    """Returns the entry of a queued job, as the caller may see it. `workers`: those for which it may wait."""
    seen, reason, resources = may_list(caller, facts), facts.reason, Resources.model_validate(facts.resources)
    message = blocking.named(
        reason.message, reason.code, resources, workers, owner=facts.owner, job_id=facts.id if seen else None
    )
    shown = DatedReason(code=reason.code, message=message, since=time(reason.since))
    return QueueEntry(
        position=facts.in_line,
        job_id=facts.id if seen else None,
        name=facts.name if seen else None,
        owner=facts.owner,
        priority=facts.priority,
        resources=resources,
        reason=shown if may_read(caller, facts) else None,
        not_before=time_or_none(facts.not_before),
        estimate=estimate_or_none(facts.estimate),
        created_at=time(facts.created_at),
    )


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a summary for a list: a row has few bytes, whatever its job has said."""
    for name in ("status_reason", "error"):
        text = values[name]
        if text is not None and len(text.message) > MOST_SHOWN_TEXT:
            values[name] = text.model_copy(update={"message": shown_text(text.message)})
    return values


def _withheld(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a summary without what only those may see who may read the job."""
    of_lists = {"labels": {}, "has_notes": False, "metrics": {}, "progress": _NO_PROGRESS}
    nothing = of_lists | {"best": None, "error": None, "sweep": None, "schedule_id": None}
    return values | nothing | {"status_reason": values["status_reason"].model_copy(update={"message": ""})}


def _summary_values(facts: ListedJob, *, starred: bool, columns: dict[str, Scalar] | None = None) -> dict[str, Any]:
    """Returns the values of all fields of a `JobSummary`, which a `JobDetails` has too."""
    reason = facts.reason
    return {
        "id": facts.id,
        "name": facts.name,
        "trainer": facts.trainer,
        "state": facts.state,
        "status_reason": StatusReason.trusted(
            code=reason.code,
            message=reason.message,
            position=facts.in_line,
            since=time(reason.since),
            estimate=estimate_or_none(facts.estimate),
        ),
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
        "metrics": facts.metrics,
        "best": None if facts.best is None else _best(facts.best, metric=facts.monitor),
        "devices": [HeldDevice.model_validate(device) for device in facts.devices],
        "error": None if facts.error is None else ErrorView.model_validate(facts.error),
        "created_at": time(facts.created_at),
        "started_at": time_or_none(facts.started_at),
        "finished_at": time_or_none(facts.finished_at),
        "version": facts.version,
        "position": facts.position,
        "columns": columns,
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


def _encoded(view: JobSummary) -> bytes:
    return view.__pydantic_serializer__.to_json(view)  # as `model_dump_json`, which makes a text of it first


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
    return AfterView.trusted(job_id=facts.job_id, name=facts.name, on=facts.on, state=facts.state)


def _best(best: BestCheckpoint, *, metric: str) -> BestView:
    return BestView(
        metric=metric,
        value=best.value,
        epoch=best.epoch,
        step=best.step,
        checkpoint_id=best.id,
        remeasured=(best.remeasured or {}).get(metric),
    )
