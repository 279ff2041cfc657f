"""Stars jobs, for the caller alone."""

from starlette.responses import Response

from api.auth.callers import JobId, JobWriter
from api.openapi.routers import guarded
from api.services import ServicesDep
from store.jobs import stars
from torchyard.contract.errors import Unavailable

router = guarded("jobs", Unavailable)


@router.put("/jobs/{job_id}/star", status_code=204, response_class=Response)
def star_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> Response:
    """Stars a job. Only you see your star."""
    with services.store.write("change") as session:
        stars.set_star(session, job_id, caller, starred=True)
    return Response(status_code=204)


@router.delete("/jobs/{job_id}/star", status_code=204, response_class=Response)
def unstar_job(services: ServicesDep, caller: JobWriter, job_id: JobId) -> Response:
    """Removes your star from a job."""
    with services.store.write("change") as session:
        stars.set_star(session, job_id, caller, starred=False)
    return Response(status_code=204)
