"""Returns metrics of a job."""

from typing import Annotated

from fastapi import Query

from api.auth.callers import JobId, JobReader, JobWriter
from api.curves import encoding
from api.curves.shares import MAX_POINTS, share
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.reads import Parts, in_turns, writes_in_turns
from api.services import ServicesDep
from store.output import series
from store.output.log_metrics import LogCurves
from store.output.series import PointFilter
from store.output.series_columns import SeriesColumns
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.jobs.requests import NewLogCurves
from torchyard.contract.telemetry.views import LogCurvesView, MetricsView
from torchyard.contract.wire.schema import MetricKey

router = guarded("telemetry", Conflict, Unavailable)

LogCurvesBody = Annotated[NewLogCurves, json_body(NewLogCurves, example={"pattern": r"loss[ =:]+(?P<value>\S+)"})]
Step = Annotated[int, Query(ge=0, lt=2**63)]


@router.get("/jobs/{job_id}/metrics", response_model=MetricsView)
@in_turns
def get_metrics(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    key: Annotated[
        list[MetricKey] | None, Query(max_length=1000, description="only the metrics with these keys")
    ] = None,
    from_step: Annotated[Step | None, Query(description="only points at or after this step")] = None,
    to_step: Annotated[Step | None, Query(description="only points at or before this step")] = None,
    max_points: Annotated[
        int, Query(ge=2, le=MAX_POINTS, description="maximum number of points in each series")
    ] = 1500,
    attempt: Annotated[int | None, Query(ge=0, lt=2**31, description="only points of this attempt")] = None,
) -> Parts[bytes]:
    """Returns the metrics of a job by step. A longer series keeps the minimum and maximum of each bucket.

    All series together have at most 100,000 points. `max_points` in the answer is the limit of each series.
    """
    where = PointFilter(keys=tuple(key or ()), from_step=from_step, to_step=to_step, attempt=attempt, in_points=True)
    with services.store.read() as session:
        counts = series.count_points(session, job_id, where.keys, caller=caller)
    most = min(max_points, share(counts))
    shown: list[bytes] = []
    some: list[tuple[str, SeriesColumns]] = []
    for item in series.read(services.store, job_id, where):
        if item is not None:
            series_key, columns = item
            some.append((series_key, _thin_out(columns, most)))
            continue
        shown += [encoding.series(some)] if some else []
        some.clear()
        yield
    shown += [encoding.series(some)] if some else []
    return b'{"data":[%b],"max_points":%d}' % (b",".join(shown), most)


@router.post("/jobs/{job_id}/metrics/from-log", response_model=LogCurvesView)
@writes_in_turns
def make_log_curves(
    services: ServicesDep, caller: JobWriter, job_id: JobId, wanted: LogCurvesBody
) -> Parts[LogCurvesView]:
    """Makes metrics from numbers in the log of rank 0, once the job has ended. A regular expression finds them.

    Existing metrics do not change, so repeating the request is safe. One request reads at most 64 MiB of lines, makes
    at most 100,000 points and takes at most 5 CPU-seconds. `complete` is false where a limit stopped it.
    """
    curves = yield from LogCurves(job_id, wanted.pattern).make(services.store, caller=caller)
    return LogCurvesView(keys=curves.keys, known=curves.known, points=curves.points, complete=curves.complete)


def _thin_out(columns: SeriesColumns, max_points: int) -> SeriesColumns:
    if len(columns.values) <= max_points:
        return columns
    # Imported here, because numpy is slow to import and most processes never need it.
    from api.curves import downsample

    return columns.at(downsample.select(columns.values, max_points))
