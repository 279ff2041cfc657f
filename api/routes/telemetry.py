"""What a job says while it runs: metrics and logs."""

from typing import Annotated

from fastapi import APIRouter, Query

from api import present
from api.auth import User, visible_job
from api.openapi import problems
from api.paging import AfterNumber, Limit, number_after, page
from api.services import Parts
from store.rows import logs, metrics
from store.rows.metrics import SeriesColumns
from torchyard.contract.errors import Unavailable
from torchyard.contract.schema import MetricKey
from torchyard.contract.views import LogLine, MetricsView, Page, PointView, SeriesView

router = APIRouter(tags=["telemetry"], responses=problems(Unavailable))

Step = Annotated[int, Query(ge=0, lt=2**63)]
Number = Annotated[int, Query(ge=0, lt=2**31)]


@router.get("/jobs/{job_id}/metrics")
def get_metrics(
    *,
    parts: Parts,
    user: User,
    job_id: str,
    key: Annotated[list[MetricKey] | None, Query(max_length=1000, description="these series only")] = None,
    from_step: Annotated[Step | None, Query(description="no point before this step")] = None,
    to_step: Annotated[Step | None, Query(description="no point behind this step")] = None,
    max_points: Annotated[int, Query(ge=2, le=100_000, description="of each series")] = 1500,
    attempt: Annotated[Number | None, Query(description="one attempt's points only")] = None,
) -> MetricsView:
    """Each series by step. One of more than `max_points` keeps the least and the greatest value of each stretch."""
    where = metrics.PointFilter(keys=tuple(key or ()), from_step=from_step, to_step=to_step, attempt=attempt)
    with parts.store.read() as session:
        visible_job(session, job_id, user)
        series = metrics.read(session, job_id, where)
    return MetricsView(data=[SeriesView(key=name, points=_points(found, max_points)) for name, found in series.items()])


@router.get("/jobs/{job_id}/logs")
def list_logs(
    *,
    parts: Parts,
    user: User,
    job_id: str,
    rank: Annotated[Number | None, Query(description="one rank's lines only")] = None,
    tail: Annotated[int | None, Query(ge=1, le=10_000, description="the last lines, in place of a page")] = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Page[LogLine]:
    """Lines of output, oldest first: those numbered above `after`, or the last `tail` ones."""
    line = number_after(after)
    with parts.store.read() as session:
        visible_job(session, job_id, user)
        if tail is not None:
            last = logs.tail(session, job_id, count=tail, rank=rank)
            return Page[LogLine](data=[present.log_line(row) for row in last])
        rows = logs.after(session, job_id, line=line, limit=limit + 1, rank=rank)
    return page(LogLine, [present.log_line(row) for row in rows], limit=limit, cursor=lambda shown: str(shown.line))


def _points(found: SeriesColumns, max_points: int) -> list[PointView]:
    columns = (found.steps, found.values, found.times, found.attempts)
    if len(found.values) > max_points:
        # Only here, as most of the service's processes never need it.
        from api import downsample

        chosen = downsample.select(found.values, max_points)
        columns = tuple(column[chosen] for column in columns)
    return [
        PointView(step=step, value=value, time=present.time(time), attempt=attempt)
        for step, value, time, attempt in zip(*(column.tolist() for column in columns), strict=True)
    ]
