"""Values of the columns of a table of jobs, for some of its jobs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
import json
from typing import Any

from sqlalchemy import cast, func, null, select
from sqlalchemy.orm import Session

from store.db.documents import Parsed, checkpoint_policy, values_at
from store.db.prepared import Prepared, among, texts
from store.jobs import show
from store.jobs.facts import Cells, ListedJob
from store.jobs.show import Policy
from store.output import checkpoints, metrics
from store.output.metrics import Figures
from store.tables import Base
from store.team.callers import Caller, may_read
from torchyard.contract.jobs.columns import (
    MOST_CHARACTERS,
    Column,
    LabelColumn,
    MetricColumn,
    NotesColumn,
    Scalar,
    SpecColumn,
    SweepColumn,
)
from torchyard.contract.wire.codec import json_number

_JOBS = Base.metadata.tables["jobs"].c
_MOST_NOTES = 1000
"""Characters of notes of which the first line is shown."""


def values(
    session: Session,
    job_ids: Sequence[str],
    columns: Sequence[Column],
    *,
    best: Mapping[str, str] | None = None,
) -> dict[str, Cells]:
    """Returns the values of the jobs that exist, by id. Give it some hundreds at most, which the caller may read.

    `best`: the ids of their best checkpoints, where they are known.
    """
    if not job_ids or not columns:
        return {}
    specs = [column for column in columns if isinstance(column, SpecColumn)]
    wanted = [column for column in columns if isinstance(column, MetricColumn)]
    query = _query(tuple(column.path for column in specs), session.get_bind().dialect.name)
    rows = query.rows(session, {"ids": texts(job_ids)})
    policies = {row.id: show.policy_in(row.checkpoint) for row in rows}
    figures = _figures(session, policies, wanted, best=best) if wanted else {}
    cells_by_job: dict[str, Cells] = {}
    for row in rows:
        cells: dict[Column, Scalar] = {
            column: cell(value) for column, value in zip(specs, row.of_spec or (), strict=False)
        }
        cells |= figures.get(row.id, {})
        cells |= {column: row.labels.get(column.key) for column in columns if isinstance(column, LabelColumn)}
        cells |= {column: _first_line(row.notes) for column in columns if isinstance(column, NotesColumn)}
        cells |= {column: row.sweep_id for column in columns if isinstance(column, SweepColumn)}
        cells_by_job[row.id] = cells
    return cells_by_job


def values_of_listed(
    session: Session, jobs: Sequence[ListedJob], columns: Sequence[Column], *, caller: Caller
) -> dict[str, Cells]:
    """Returns the values of those of the jobs that the caller may read, by id."""
    read = [job for job in jobs if may_read(caller, job)]
    best = {job.id: job.best.id for job in read if job.best is not None}
    return values(session, [job.id for job in read], columns, best=best)


def cell(value: Any) -> Scalar:
    """Returns what a table shows of a value of JSON."""
    if isinstance(value, (list, dict)):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return value[: MOST_CHARACTERS - 1] + "…"
    return value


# Building a statement costs more than executing it, and a table is read again and again with the same columns.
@lru_cache(maxsize=64)
def _query(paths: tuple[tuple[str, ...], ...], dialect: str) -> Prepared:
    parsed = values_at(_JOBS.spec, paths, dialect=dialect) if paths else cast(null(), Parsed)
    return Prepared(
        select(
            _JOBS.id,
            _JOBS.sweep_id,
            cast(_JOBS.labels, Parsed).label("labels"),
            func.substr(_JOBS.notes, 1, _MOST_NOTES).label("notes"),
            checkpoint_policy(_JOBS.spec).label("checkpoint"),
            parsed.label("of_spec"),
        ).where(among(_JOBS.id, "ids"))
    )


def _figures(
    session: Session, policies: Mapping[str, Policy], columns: Sequence[MetricColumn], *, best: Mapping[str, str] | None
) -> dict[str, dict[Column, Scalar]]:
    """Returns the values of columns of metrics by job."""
    series = metrics.read_figures(session, policies.keys(), keys={column.key for column in columns})
    if all(column.figure != "best" for column in columns):
        best = {}
    elif best is None:
        modes = {job_id: policy.mode for job_id, policy in policies.items()}
        best = {job_id: checkpoint.id for job_id, checkpoint in checkpoints.find_best_of_jobs(session, modes).items()}
    measured = checkpoints.read_metrics(session, best.values()) if best else {}
    figures: dict[str, dict[Column, Scalar]] = {}
    for job_id, policy in policies.items():
        at_best = measured.get(best.get(job_id, ""))
        figures[job_id] = {
            column: _figure(column, series.get((job_id, column.key)), policy=policy, at_best=at_best)
            for column in columns
        }
    return figures


def _figure(
    column: MetricColumn, series: Figures | None, *, policy: Policy, at_best: Mapping[str, Any] | None
) -> Scalar:
    if column.figure == "best" and at_best is not None:
        return at_best.get(column.key)
    if series is None:
        return None
    # Without a checkpoint, a job has a best value of the metric alone that its spec says how to compare.
    if column.figure == "best":
        if column.key != policy.monitor:
            return None
        return series.low if policy.mode == "min" else series.high
    if column.figure == "last":
        return json_number(series.latest)
    return series.low if column.figure == "min" else series.high


def _first_line(notes: str | None) -> str | None:
    lines = (notes or "").splitlines()
    return next((str(cell(line.strip())) for line in lines if line.strip()), None)
