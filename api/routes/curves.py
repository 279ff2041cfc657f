"""Returns metrics of several jobs, in columns."""

from dataclasses import replace
from typing import Annotated

from fastapi import Query
from pydantic import Field

from api.auth.callers import JobReader
from api.curves.columns import Shape, curves
from api.curves.encoding import encoded
from api.curves.shares import MAX_POINTS, share
from api.openapi.completion import problems
from api.openapi.routers import guarded
from api.parameters.reads import Parts, in_turns
from api.routes.telemetry import Step
from api.services import Services, ServicesDep
from store.output import series
from store.output.series import PointFilter
from torchyard.contract.errors import NotFound, Unavailable
from torchyard.contract.telemetry.curves import CurvesView, CurveView
from torchyard.contract.wire.schema import MetricKey

router = guarded("telemetry", Unavailable)
JobIdOrName = Annotated[str, Field(max_length=100)]


@router.get("/metrics", response_model=CurvesView, responses=problems(NotFound))
@in_turns
def get_curves(
    *,
    services: ServicesDep,
    caller: JobReader,
    job: Annotated[
        list[Annotated[str, Field(max_length=100)]], Query(min_length=1, max_length=50, description="ids of the jobs")
    ],
    key: Annotated[
        list[MetricKey] | None,
        Query(max_length=200, description="metrics to return for each job; default: none, only the list of metrics"),
    ] = None,
    smooth: Annotated[
        float, Query(ge=0, lt=1, description="weight of earlier points in the moving average; 0: no average")
    ] = 0,
    smooth_points: Annotated[
        int | None,
        Query(
            ge=1,
            le=1_000_000,
            description="number of points for which `smooth` is the weight; a curve with more "
            "or fewer points gets a weight that looks as smooth. Default: every "
            "curve gets `smooth`",
        ),
    ] = None,
    max_points: Annotated[
        int, Query(ge=2, le=MAX_POINTS, description="maximum number of points or buckets in each curve")
    ] = 1500,
    from_step: Annotated[Step | None, Query(description="only points at or after this step")] = None,
    to_step: Annotated[Step | None, Query(description="only points at or before this step")] = None,
    attempt: Annotated[int | None, Query(ge=0, lt=2**31, description="only points of this attempt")] = None,
    hidden: Annotated[bool, Query(description="also points that a later attempt logged again")] = False,
) -> Parts[bytes]:
    """Lists the metrics of up to 50 jobs, and returns the curves of the metrics that `key` names.

    A curve with more than `max_points` points is divided into buckets of equally many points. Above 200,000 points,
    bucket sizes and averages are approximate. With `smooth_points`, long and short curves look equally smooth: `smooth`
    of each curve is its weight. All curves together have at most 100,000 points or buckets; `max_points` in the answer
    is the limit of each curve.
    """
    keys = tuple(dict.fromkeys(key or ()))
    where = PointFilter(keys=keys, attempt=attempt, tails=hidden)
    if not smooth:  # an average begins at the first point, whatever is shown of it
        where = replace(where, from_step=from_step, to_step=to_step)
    with services.store.read() as session:
        jobs = series.list_series(session, dict.fromkeys(job), caller=caller)
    counts = [listed.count for one in jobs for listed in one.keys if listed.key in keys]
    most = min(max_points, share(counts * 2 if hidden else counts))
    shape = Shape(most, from_step=from_step, to_step=to_step, smooth=smooth, smooth_points=smooth_points)
    shown: list[CurveView] = []
    for one in jobs if keys else ():
        shown += yield from _curves(services, one.job_id, where, shape)
    return encoded(CurvesView(jobs=jobs, series=shown, max_points=most))


def _curves(services: Services, job_id: str, where: PointFilter, shape: Shape) -> Parts[list[CurveView]]:
    """Returns the curves of a job, in the order in which their keys were asked for."""
    by_key: dict[str, list[CurveView]] = {}
    for item in series.read(services.store, job_id, where):
        if item is None:
            yield
            continue
        key, columns = item
        by_key[key] = [*curves(job_id, key, columns, shape)]
    return [curve for key in where.keys for curve in by_key.get(key, ())]
