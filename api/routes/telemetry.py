"""Returns metrics of a job."""

from typing import Annotated

from fastapi import APIRouter, Query

from api import present
from api.auth import JobReader, visible_job
from api.openapi import problems
from api.services import ServicesDep
from api.shares import MAX_POINTS, share
from store.queries import series
from store.queries.series import PointFilter, SeriesColumns
from torchyard.contract.errors import Unavailable
from torchyard.contract.schema import MetricKey
from torchyard.contract.views import MetricsView, PointView, SeriesView

router = APIRouter(tags=["telemetry"], responses=problems(Unavailable))

Step = Annotated[int, Query(ge=0, lt=2**63)]


@router.get("/jobs/{job_id}/metrics")
def get_metrics(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    key: Annotated[list[MetricKey] | None, Query(max_length=1000, description="only these series")] = None,
    from_step: Annotated[Step | None, Query(description="only points at or after this step")] = None,
    to_step: Annotated[Step | None, Query(description="only points at or before this step")] = None,
    max_points: Annotated[int, Query(ge=2, le=MAX_POINTS, description="the most points of each series")] = 1500,
    attempt: Annotated[int | None, Query(ge=0, lt=2**31, description="only this attempt's points")] = None,
) -> MetricsView:
    """Returns each series by step. One of more than `max_points` keeps the least and greatest value of each bucket.

    All series together have at most 100,000 points. `max_points` in the answer is what that leaves to each.
    """
    where = PointFilter(keys=tuple(key or ()), from_step=from_step, to_step=to_step, attempt=attempt)
    with services.store.read() as session:
        visible_job(session, job_id, caller)
        most = min(max_points, share(series.counts(session, job_id, where.keys)))
        found = [
            SeriesView(key=name, points=_points(columns, most), source=columns.source or "run")
            for name, columns in series.read(session, job_id, where)
        ]
    return MetricsView(data=found, max_points=most)


def _points(found: SeriesColumns, max_points: int) -> list[PointView]:
    columns = (found.steps, found.values, found.times, found.attempts)
    if len(found.values) > max_points:
        # Imported here, because numpy is slow to import and most processes never need it.
        from api import downsample

        chosen = downsample.select(found.values, max_points)
        columns = tuple(column[chosen] for column in columns)
    return [
        PointView(step=step, value=value, time=present.time(time), attempt=attempt)
        for step, value, time, attempt in zip(*(column.tolist() for column in columns), strict=True)
    ]
